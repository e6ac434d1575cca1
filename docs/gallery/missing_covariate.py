"""Logistic regression with a covariate that is missing for a third of the patients."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.nn import sigmoid

import sumout


def outcome(age, smokes, missing, known, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([3]))
    tilt = numpyro.sample("tilt", dist.Normal(0, 1).expand([2]))  # who smokes depends on age
    p = sigmoid(tilt[0] + tilt[1] * age)
    numpyro.sample("smokes", dist.Bernoulli(p[known]), obs=smokes)
    imputed = numpyro.sample("imputed", dist.Bernoulli(p[missing]))
    exposure = jnp.zeros(len(y)).at[known].set(smokes).at[missing].set(imputed)
    numpyro.sample("y", dist.Bernoulli(logits=beta[0] + beta[1] * age + beta[2] * exposure), obs=y)


rng = np.random.default_rng(12)
age = rng.normal(size=300)
smokes = (rng.random(300) < 1 / (1 + np.exp(0.5 + 0.5 * age))).astype(int)
y = (rng.random(300) < 1 / (1 + np.exp(1 - 0.5 * age - 1.5 * smokes))).astype(int)
is_missing = rng.random(300) < 1 / 3
missing, known = np.flatnonzero(is_missing), np.flatnonzero(~is_missing)

program = sumout.program(outcome, age, smokes[known], missing, known, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for k, (name, true) in enumerate((("intercept", -1.0), ("age", 0.5), ("smokes", 1.5))):
    drawn = result.posterior["beta"].values[..., k].ravel()
    axes.hist(drawn, 60, density=True, alpha=0.6, color=f"C{k}", label=name)
    axes.axvline(true, color=f"C{k}")
axes.set(xlabel="coefficient (lines: simulated with)")
axes.legend()
plt.show()
