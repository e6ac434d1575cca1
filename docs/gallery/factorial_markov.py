"""A factorial hidden Markov model: three switches, each on or off for some time, add up in one signal."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

import sumout

POWER = np.array([1.0, 2.1, 4.3])  # of each device, roughly known


def load(y):
    power = numpyro.sample("power", dist.Normal(POWER, 0.3))
    stay = numpyro.sample("stay", dist.Beta(18, 2).expand([3]))
    sigma = numpyro.sample("sigma", dist.LogNormal(-0.7, 0.5))

    def step(previous, y):
        law = [dist.Bernoulli(jnp.where(previous[d] == 1, stay[d], 1 - stay[d])) for d in range(3)]
        now = tuple(numpyro.sample(f"on_{d}", law[d]) for d in range(3))
        numpyro.sample("y", dist.Normal(sum(power[d] * now[d] for d in range(3)), sigma), obs=y)
        return now, None

    scan(step, (0, 0, 0), y)


rng = np.random.default_rng(14)
is_on = np.cumsum(rng.random((100, 3)) < 0.08, axis=0) % 2
y = rng.normal(is_on @ [1.1, 2.0, 4.5], 0.4)

program = sumout.program(load, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

figure, panels = plt.subplots(4, 1, figsize=(8, 5), sharex=True, layout="constrained")
panels[0].plot(y, ".", color="0.5")
panels[0].set(ylabel="load")
for d, panel in enumerate(panels[1:]):
    panel.fill_between(np.arange(100), found[f"on_{d}"].isel({f"on_{d}_value": 1}), step="mid", alpha=0.4)
    panel.step(np.arange(100), is_on[:, d], "k", where="mid", linewidth=0.8)
    panel.set(ylabel=f"P(on), {d}", ylim=(-0.05, 1.05))
panels[-1].set(xlabel="step (lines: simulated)")
plt.show()
