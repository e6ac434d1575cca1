"""A mixture of two normals: which component each point came from is left in."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

import sumout


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(0, 3).expand([2]), OrderedTransform()))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 1).expand([2]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


y = np.random.default_rng(0).normal(np.repeat([-2.0, 2.0], [100, 200]), 1.0)

program = sumout.program(mixture, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)  # P(z_i = k | y), exact for each draw of x

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.hist(y, 40, color="0.8")
left.set(xlabel="y", title="300 points")
right.plot(y, found["z"].sel(z_value=1), ".", markersize=3)
right.set(xlabel="y", title="P(second component)")
plt.show()
