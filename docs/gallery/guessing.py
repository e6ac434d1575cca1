"""Item response theory with guessing: did a person know the answer, or guess it?"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import sigmoid

import sumout


def knowledge(y):
    people, items = y.shape
    with numpyro.plate("items", items, dim=-1):
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1.5))
        guess = numpyro.sample("guess", dist.Beta(5, 15))
    with numpyro.plate("people", people, dim=-2):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
        with numpyro.plate("answers", items, dim=-1):
            knows = numpyro.sample("knows", dist.Bernoulli(sigmoid(1.5 * (ability - difficulty))))
            numpyro.sample("y", dist.Bernoulli(jnp.where(knows == 1, 1.0, guess)), obs=y)


rng = np.random.default_rng(10)
ability, difficulty = rng.normal(size=100), np.linspace(-1.5, 1.5, 12)
knows = rng.random((100, 12)) < 1 / (1 + np.exp(-1.5 * (ability[:, None] - difficulty)))
y = (knows | (rng.random((100, 12)) < 0.25)).astype(int)

program = sumout.program(knowledge, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(ability, np.asarray(result.posterior["ability"].mean(["chain", "draw"])).ravel(), ".")
left.axline((0, 0), slope=1, color="0.7")
left.set(xlabel="ability, simulated", ylabel="posterior mean")
knew = np.asarray(found["knows"].sel(knows_value=1)).reshape(100, 12)
right.plot(np.sum(knew * y, axis=0), np.sum(knows & (y == 1), axis=0), "o")
right.axline((50, 50), slope=1, color="0.7")
right.set(xlabel="expected right answers that were known", ylabel="simulated", title="by item")
plt.show()
