"""Zero inflation: some visitors never fish; of those who do, some catch nothing."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout


def fishing(persons, y):
    share = numpyro.sample("share", dist.Beta(1, 1))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]))
    with numpyro.plate("groups", len(y)):
        fishes = numpyro.sample("fishes", dist.Bernoulli(share))
        numpyro.sample("y", dist.Poisson(fishes * jnp.exp(beta[0] + beta[1] * persons)), obs=y)


rng = np.random.default_rng(16)
persons = rng.integers(1, 5, size=200)
y = rng.poisson((rng.random(200) < 0.6) * np.exp(-0.5 + 0.5 * persons))

program = sumout.program(fishing, persons, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))
found = sumout.marginals(program, result)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.hist(y, np.arange(-0.5, 20), color="0.7")
left.set(xlabel="fish", ylabel="groups")
fished = np.asarray(found["fishes"].sel(fishes_value=1))
right.plot(persons[y == 0], fished[y == 0], "o")
right.set(xlabel="persons in a group that caught nothing", ylabel="P(fished)", xticks=[1, 2, 3, 4])
plt.show()
