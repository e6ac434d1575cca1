"""Spike and slab: which of thirty covariates belong in a regression? All indicators meet in every datum."""

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout


def regression(design, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([30]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    inclusion = numpyro.sample("inclusion", dist.Bernoulli(0.2).expand([30]))
    numpyro.sample("y", dist.Normal(design @ (inclusion * beta), sigma), obs=y)


rng = np.random.default_rng(0)
design = rng.normal(size=(60, 30))
y = 1.5 * design[:, 0] - design[:, 3] + 0.25 * design[:, 7] + 0.5 * rng.normal(size=60)

program = sumout.program(regression, design, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

included = result.posterior["inclusion"].mean(["chain", "draw"])
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.bar(np.arange(30), included, color=["C1" if i in (0, 3, 7) else "C0" for i in range(30)])
axes.set(xlabel="covariate (orange: in the truth)", ylabel="P(included)")
plt.show()
