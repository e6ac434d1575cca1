"""A Potts model: a picture of three classes, neighbours alike, seen through noise."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

import sumout

SIZE, CLASSES, COUPLING = 24, 3, 0.9


def picture(y):
    ordered = dist.TransformedDistribution(dist.Normal(jnp.array([-1.0, 0.0, 0.0]), 0.5), OrderedTransform())
    brightness = numpyro.sample("brightness", ordered)
    sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.5))
    z = numpyro.sample("z", dist.Categorical(jnp.ones(CLASSES) / CLASSES).expand(y.shape))
    alike = (z[1:] == z[:-1]).sum() + (z[:, 1:] == z[:, :-1]).sum()
    numpyro.factor("coupling", COUPLING * alike)
    numpyro.sample("y", dist.Normal(brightness[z], sigma), obs=y)


rng = np.random.default_rng(13)
row, column = np.indices((SIZE, SIZE))
truth = np.where((row - 8) ** 2 + (column - 8) ** 2 < 36, 2, np.where((row > 14) & (column > 10), 0, 1))
y = rng.normal(truth - 1.0, 0.7)

program = sumout.program(picture, y)
print(sumout.explain(program))
result = sumout.sample(program)
print(sumout.summary(result))

drawn = result.posterior["z"].values.reshape(-1, SIZE, SIZE)
share = np.stack([(drawn == k).mean(axis=0) for k in range(CLASSES)])
figure, panels = plt.subplots(1, 3, figsize=(8, 3), layout="constrained")
for panel, shown, title in zip(panels, (truth, y, share.argmax(axis=0)), ("truth", "seen", "found"), strict=True):
    panel.imshow(shown, cmap="viridis")
    panel.set(title=title, xticks=[], yticks=[])
plt.show()
