"""Coal-mining disasters in Britain: in which year did they become rarer?"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout

# Jarrett, Biometrika 66, 1979: disasters with ten or more killed, by year from 1851; two years are missing (-1).
COUNTS = (
    "4 5 4 0 1 4 3 4 0 6 3 3 4 0 2 6 3 3 5 4 5 3 1 4 4 1 5 5 3 4 2 5 2 2 3 4 2 1 3 -1 2 1 1 1 1 3 0 0 1 0 1 1 0 0 3 1 "
    "0 3 2 2 0 1 1 1 0 1 0 1 0 0 0 2 1 0 0 0 1 1 0 2 3 3 1 -1 2 1 1 1 1 2 4 2 0 0 1 4 0 0 0 1 0 0 0 0 0 1 0 0 1 0 1"
)


def disasters(counts, years, num_years):
    early = numpyro.sample("early", dist.Exponential(1.0))
    late = numpyro.sample("late", dist.Exponential(1.0))
    switch = numpyro.sample("switch", dist.DiscreteUniform(0, num_years - 1))
    numpyro.sample("counts", dist.Poisson(jnp.where(years < switch, early, late)), obs=counts)


everything = np.array(COUNTS.split(), int)
years = np.flatnonzero(everything >= 0)

program = sumout.program(disasters, everything[years], years, len(everything))
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 4), sharex=True, layout="constrained")
top.bar(1851 + years, everything[years], color="0.7")
top.set(ylabel="disasters")
bottom.bar(1851 + np.arange(len(everything)), found["switch"])
bottom.set(xlabel="year", ylabel="P(switch)")
plt.show()
