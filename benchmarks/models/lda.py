"""LDA: 100 documents of 60 words on 5 topics.

Each topic has two anchor words, of which it is known beforehand that it uses them often; so topics have names.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model, stan_program

DOCUMENTS, LENGTH, TOPICS, VOCABULARY = 100, 60, 5, 40
ANCHORS = 2
PRIOR = np.ones((TOPICS, VOCABULARY))  # of each topic's words
for _topic in range(TOPICS):
    PRIOR[_topic, _topic * ANCHORS : (_topic + 1) * ANCHORS] = 10.0


def make_data() -> Data:
    rng = np.random.default_rng(8)
    theta = rng.dirichlet(np.full(TOPICS, 0.5), size=DOCUMENTS)
    phi = np.stack([rng.dirichlet(row) for row in PRIOR])
    document = np.repeat(np.arange(DOCUMENTS), LENGTH)
    topic = [rng.choice(TOPICS, p=theta[d]) for d in document]
    return {"word": np.array([rng.choice(VOCABULARY, p=phi[k]) for k in topic]), "document": document}


def word_counts(word: np.ndarray, document: np.ndarray) -> np.ndarray:
    """Of each word in each document: given the parameters, all that the words tell."""
    counts = np.zeros((DOCUMENTS, VOCABULARY), int)
    np.add.at(counts, (np.asarray(document), np.asarray(word)), 1)
    return counts


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def parameters():
        with numpyro.plate("documents", DOCUMENTS):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(TOPICS)))
        with numpyro.plate("topics", TOPICS):
            phi = numpyro.sample("phi", dist.Dirichlet(PRIOR))
        return theta, phi

    def left_in(word, document):
        theta, phi = parameters()
        with numpyro.plate("words", len(word)):
            z = numpyro.sample("z", dist.Categorical(theta[document]))
            numpyro.sample("word", dist.Categorical(phi[z]), obs=word)

    def by_hand(word, document):
        theta, phi = parameters()
        numpyro.factor("word", (word_counts(word, document) * jnp.log(theta @ phi)).sum())

    return Forms(left_in, by_hand)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones((DOCUMENTS, TOPICS)))
        phi = pm.Dirichlet("phi", PRIOR)
        z = pm.Categorical("z", p=theta[data["document"]])
        pm.Categorical("word", p=phi[z], observed=data["word"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones((DOCUMENTS, TOPICS)))
        phi = pm.Dirichlet("phi", PRIOR)
        pm.Potential("word", (word_counts(**data) * pm.math.log(theta @ phi)).sum())
    return model


def in_stan(data: Data) -> dict:
    sizes = {"D": DOCUMENTS, "K": TOPICS, "V": VOCABULARY}
    return {**sizes, "counts": word_counts(**data).tolist(), "prior": PRIOR.tolist()}


def in_bugs(data: Data) -> dict:
    sizes = {"D": DOCUMENTS, "K": TOPICS, "V": VOCABULARY, "N": len(data["word"]), "prior": PRIOR}
    return {**sizes, "word": np.asarray(data["word"]) + 1, "document": np.asarray(data["document"]) + 1}


MODEL = Model(
    name="lda",
    title="LDA, 100 × 60 × 5",
    data=make_data,
    parameters=("theta", "phi"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: stan_program("lda"),
    stan_data=in_stan,
    bugs_data=in_bugs,
)
