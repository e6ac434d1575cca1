"""Occupancy: where an animal is absent, it is never seen; where it is present, it may be missed."""

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import sigmoid

import sumout


def occupancy(forest, y):
    intercept = numpyro.sample("intercept", dist.Normal(0, 1.5))
    slope = numpyro.sample("slope", dist.Normal(0, 1.5))
    p = numpyro.sample("p", dist.Beta(1, 1))
    with numpyro.plate("sites", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(sigmoid(intercept + slope * forest[:, None])))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(z * p), obs=y)


rng = np.random.default_rng(1)
forest = rng.normal(size=150)
is_present = rng.random(150) < 1 / (1 + np.exp(0.5 - 1.2 * forest))
y = (is_present[:, None] & (rng.random((150, 4)) < 0.35)).astype(int)

program = sumout.program(occupancy, forest, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

presence = np.asarray(found["z"].sel(z_value=1)).ravel()
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for was_seen, label in ((True, "seen at least once"), (False, "never seen")):
    chosen = y.any(axis=1) == was_seen
    axes.plot(forest[chosen], presence[chosen], ".", label=label)
axes.set(xlabel="forest cover, standardised", ylabel="P(present)")
axes.legend()
plt.show()
