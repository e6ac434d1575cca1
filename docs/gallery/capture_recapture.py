"""Cormack–Jolly–Seber: survival from captures and recaptures; who is dead stays dead."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import mask

import sumout


def survival(captures, first):
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    with numpyro.plate("animals", captures.shape[0]):
        alive = 1
        for t in range(1, captures.shape[1]):
            with mask(mask=t > first):  # nothing is known of an animal before it is first caught
                before = jnp.where(t - 1 > first, alive, 1)
                alive = numpyro.sample(f"alive_{t}", dist.Bernoulli(before * phi))
                numpyro.sample(f"y_{t}", dist.Bernoulli(alive * p), obs=captures[:, t])


rng = np.random.default_rng(2)
first = rng.integers(0, 6, size=120)
occasions = np.arange(8)
death = first + rng.geometric(1 - 0.7, size=120)  # survives an interval with probability 0.7
can_be_seen = (occasions > first[:, None]) & (occasions < death[:, None])
captures = (occasions == first[:, None]) | (can_be_seen & (rng.random((120, 8)) < 0.5))

program = sumout.program(survival, captures.astype(int), first)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

draws = result.posterior.to_dataset().stack(sample=["chain", "draw"]).isel(sample=slice(None, None, 4))
figure, axes = plt.subplots(figsize=(4.5, 3.4), layout="constrained")
axes.plot(draws["phi"], draws["p"], ".", markersize=1.5)
axes.plot(0.7, 0.5, "k+", markersize=12, label="simulated with")
axes.set(xlabel="survival", ylabel="recapture")
axes.legend()
plt.show()
