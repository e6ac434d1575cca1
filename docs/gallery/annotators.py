"""Dawid and Skene: what is the true class of each item, and how reliable is each annotator?"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout

CLASSES, ANNOTATORS = 3, 5


def annotations(y):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("annotators", ANNOTATORS, dim=-2), numpyro.plate("classes", CLASSES, dim=-1):
        confusion = numpyro.sample("confusion", dist.Dirichlet(1 + 3 * jnp.eye(CLASSES)))
    with numpyro.plate("items", len(y), dim=-2):
        z = numpyro.sample("z", dist.Categorical(share))
        with numpyro.plate("answers", ANNOTATORS, dim=-1):
            numpyro.sample("y", dist.Categorical(confusion[jnp.arange(ANNOTATORS), z]), obs=y)


rng = np.random.default_rng(5)
truth = rng.choice(CLASSES, size=80, p=[0.5, 0.3, 0.2])
skill = np.array([0.9, 0.8, 0.7, 0.6, 0.4])
is_right = rng.random((80, ANNOTATORS)) < skill
y = np.where(is_right, truth[:, None], rng.integers(CLASSES, size=(80, ANNOTATORS)))

program = sumout.program(annotations, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
hits = np.asarray(result.posterior["confusion"].mean(["chain", "draw"]))
left.plot(skill + (1 - skill) / CLASSES, np.einsum("akk->ak", hits), "o")
left.axline((0.5, 0.5), slope=1, color="0.7")
left.set(xlabel="P(right answer), simulated", ylabel="found, by class")
best = np.asarray(found["z"]).reshape(80, CLASSES)
right.hist(best.max(axis=-1), 20)
right.set(xlabel="P(most probable class)", title=f"{(best.argmax(-1) == truth).sum()} of 80 items right")
plt.show()
