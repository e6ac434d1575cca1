"""A straight line through points of which some are outliers, each with an indicator of its own."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout

# Hogg, Bovy and Lang, "Data analysis recipes: fitting a model to data", 2010, table 1: x, y and the error of y.
POINTS = np.array(
    """201 592 61 244 401 25 47 583 38 287 402 15 203 495 21 58 173 15 210 479 27 202 504 14 198 510 30 158 416 16
    165 393 14 201 442 25 157 317 52 131 311 16 166 400 34 160 337 31 186 423 42 125 334 26 218 533 16 146 344 22
    """.split(),
    float,
).reshape(20, 3)


def line(x, y, error):
    level = numpyro.sample("level", dist.Normal(400, 200))
    slope = numpyro.sample("slope", dist.Normal(0, 5))
    share = numpyro.sample("share", dist.Beta(1, 4))
    spread = numpyro.sample("spread", dist.HalfNormal(200))
    with numpyro.plate("points", len(y)):
        is_outlier = numpyro.sample("is_outlier", dist.Bernoulli(share))
        scale = jnp.sqrt(error**2 + is_outlier * spread**2)
        numpyro.sample("y", dist.Normal(level + slope * (x - 170), scale), obs=y)


x, y, error = POINTS.T

program = sumout.program(line, x, y, error)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

level, slope = (result.posterior[name].values.ravel()[::80] for name in ("level", "slope"))
grid = np.array([30.0, 300.0])
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot(grid, level + slope * (grid[:, None] - 170), color="C0", alpha=0.1)
axes.errorbar(x, y, error, fmt="none", color="0.7")
shown = axes.scatter(x, y, c=np.asarray(found["is_outlier"].sel(is_outlier_value=1)), cmap="viridis", zorder=3)
figure.colorbar(shown, label="P(outlier)")
axes.set(xlabel="x", ylabel="y")
plt.show()
