"""Major earthquakes in the world, 1900 to 2006, as a hidden Markov model with three rates."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions.transforms import OrderedTransform

import sumout

# Zucchini and MacDonald, Hidden Markov Models for Time Series, 2009, table 1.1: magnitude 7 or more, by year.
COUNTS = (
    "13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13 26 13 14 22 24 21 22 "
    "26 21 23 24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18 15 20 15 22 19 16 30 27 29 23 20 16 21 "
    "21 25 16 18 15 18 14 10 15 8 15 6 11 8 7 18 16 13 12 13 20 15 16 12 18 15 16 13 15 16 11 11"
)


def earthquakes(counts):
    ordered = dist.TransformedDistribution(dist.Normal(jnp.array([2.5, -0.7, -0.7]), 0.5), OrderedTransform())
    rate = jnp.exp(numpyro.sample("log_rate", ordered))
    transition = numpyro.sample("transition", dist.Dirichlet(1 + 8 * jnp.eye(3)))

    def year(previous, count):
        state = numpyro.sample("state", dist.Categorical(transition[previous]))
        numpyro.sample("count", dist.Poisson(rate[state]), obs=count)
        return state, None

    scan(year, 0, counts)


counts = np.array(COUNTS.split(), int)

program = sumout.program(earthquakes, counts)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

years = 1900 + np.arange(len(counts))
rates = np.exp(result.posterior["log_rate"].mean(["chain", "draw"]).values)
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.plot(years, counts, "o-", color="0.6", markersize=3, linewidth=0.7)
axes.step(years, rates[np.asarray(found["state_mode"])], where="mid", color="C1")
axes.set(xlabel="year", ylabel="earthquakes", title="most probable path of the rate")
plt.show()
