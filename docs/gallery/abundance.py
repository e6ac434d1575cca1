"""N-mixture: how many animals live at each site, if each visit sees only some of them?"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout


def abundance(meadow, y):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    p = numpyro.sample("p", dist.Beta(2, 2))
    with numpyro.plate("sites", y.shape[0], dim=-2):
        n = numpyro.sample("n", dist.Poisson(jnp.exp(intercept + slope * meadow[:, None])))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Binomial(n, p), obs=y)


rng = np.random.default_rng(3)
meadow = rng.normal(size=60)
n = rng.poisson(np.exp(1.5 + 0.6 * meadow))
y = rng.binomial(n[:, None], 0.45, size=(60, 4))

program = sumout.program(abundance, meadow, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

drawn = result.posterior["n"].values.reshape(-1, 60)
low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
order = np.argsort(n)
axes.vlines(np.arange(60), low[order], high[order], linewidth=2, alpha=0.5, label="90 %")
axes.plot(n[order], "k_", label="true abundance")
axes.plot(y.max(axis=1)[order], "C1.", label="most seen in a visit")
axes.set(xlabel="site, by true abundance", ylabel="animals")
axes.legend()
plt.show()
