"""Topics in documents (latent Dirichlet allocation): the topic of every word is left in."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout

TOPICS, VOCABULARY, DOCUMENTS, LENGTH = 3, 20, 40, 50
# Two anchor words for each topic, which it is known to use often: so topics have names.
PRIOR = 1.0 + 9.0 * (np.arange(VOCABULARY) // 2 == np.arange(TOPICS)[:, None])


def allocation(word, document):
    with numpyro.plate("documents", DOCUMENTS):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(TOPICS)))
    with numpyro.plate("topics", TOPICS):
        phi = numpyro.sample("phi", dist.Dirichlet(PRIOR))
    with numpyro.plate("words", len(word)):
        z = numpyro.sample("z", dist.Categorical(theta[document]))
        numpyro.sample("word", dist.Categorical(phi[z]), obs=word)


rng = np.random.default_rng(8)
theta = rng.dirichlet(np.full(TOPICS, 0.4), size=DOCUMENTS)
phi = np.stack([rng.dirichlet(row) for row in PRIOR])
document = np.repeat(np.arange(DOCUMENTS), LENGTH)
word = np.array([rng.choice(VOCABULARY, p=theta[d] @ phi) for d in document])

program = sumout.program(allocation, word, document)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, true, panel in (("theta", theta, axes[0]), ("phi", phi, axes[1])):
    panel.plot(true.ravel(), result.posterior[name].mean(["chain", "draw"]).values.ravel(), ".")
    panel.axline((0, 0), slope=1, color="0.7")
    panel.set(xlabel="simulated with", ylabel="posterior mean", title=name)
plt.show()
