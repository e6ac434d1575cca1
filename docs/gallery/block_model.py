"""A stochastic block model of a karate club that split in two: every pair of members meets in a datum."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout

# Zachary, Journal of Anthropological Research 33, 1977: who met whom outside the club, by the first of each pair.
FRIENDS = {
    0: [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31], 1: [2, 3, 7, 13, 17, 19, 21, 30],
    2: [3, 7, 8, 9, 13, 27, 28, 32], 3: [7, 12, 13], 4: [6, 10], 5: [6, 10, 16], 6: [16], 8: [30, 32, 33], 9: [33],
    13: [33], 14: [32, 33], 15: [32, 33], 18: [32, 33], 19: [33], 20: [32, 33], 22: [32, 33],
    23: [25, 27, 29, 32, 33], 24: [25, 27, 31], 25: [31], 26: [29, 33], 27: [33], 28: [31, 33], 29: [32, 33],
    30: [32, 33], 31: [32, 33], 32: [33],
}  # fmt: skip


def club(first, second, met):
    within = numpyro.sample("within", dist.Beta(2, 8))
    between = numpyro.sample("between", dist.Beta(1, 15))
    z = numpyro.sample("z", dist.Bernoulli(0.5).expand([32]))
    side = jnp.concatenate([jnp.array([0]), z, jnp.array([1])])  # the sides of the two leaders are known
    numpyro.sample("met", dist.Bernoulli(jnp.where(side[first] == side[second], within, between)), obs=met)


first, second = np.triu_indices(34, 1)
met = np.array([b in FRIENDS.get(a, ()) for a, b in zip(first, second, strict=True)], int)

program = sumout.program(club, first, second, met)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

side = np.concatenate([[0.0], result.posterior["z"].mean(["chain", "draw"]).values, [1.0]])
order = np.argsort(side)
adjacency = np.zeros((34, 34))
adjacency[first, second] = adjacency[second, first] = met
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", width_ratios=(3, 2))
left.bar(np.arange(34), side)
left.set(xlabel="member", ylabel="P(side of member 33)")
right.imshow(adjacency[order][:, order], cmap="Greys")
right.set(xlabel="members in that order", yticks=[])
plt.show()
