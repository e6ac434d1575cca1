"""Potts: a picture of 32 × 32 pixels of three classes, neighbours alike, seen through noise.

The coupling is known; the brightness of each class, in ascending order, and the noise are not. The lattice is too wide
to be summed out by hand.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model
from benchmarks.models.ordering import ordered_in_pymc

SIZE, CLASSES, COUPLING = 32, 3, 0.8
BASE_MEAN, BASE_SD = np.array([-1.0, 0.0, 0.0]), np.array([1.0, 0.5, 0.5])
SWEEPS = 200


def make_data() -> Data:
    rng = np.random.default_rng(4)
    z = rng.integers(CLASSES, size=(SIZE, SIZE))
    is_even = np.indices((SIZE, SIZE)).sum(axis=0) % 2 == 0
    for sweep in range(2 * SWEEPS):
        alike = np.pad(z[..., None] == np.arange(CLASSES), ((1, 1), (1, 1), (0, 0))).astype(int)
        near = alike[2:, 1:-1] + alike[:-2, 1:-1] + alike[1:-1, 2:] + alike[1:-1, :-2]
        drawn = np.argmax(COUPLING * near + rng.gumbel(size=near.shape), axis=-1)
        z = np.where(is_even == (sweep % 2 == 0), drawn, z)
    return {"y": rng.normal(np.array([-1.0, 0.0, 1.0])[z], 0.6)}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.distributions.transforms import OrderedTransform

    def left_in(y):
        mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(BASE_MEAN, BASE_SD), OrderedTransform()))
        sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.5))
        z = numpyro.sample("z", dist.Categorical(jnp.ones(CLASSES) / CLASSES).expand([SIZE, SIZE]))
        alike = (z[1:] == z[:-1]).sum() + (z[:, 1:] == z[:, :-1]).sum()
        numpyro.factor("coupling", COUPLING * alike)
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)

    return Forms(left_in)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Deterministic("mu", ordered_in_pymc(pm.Normal("mu_base", BASE_MEAN, BASE_SD)))
        sigma = pm.LogNormal("sigma", -0.5, 0.5)
        z = pm.Categorical("z", p=np.full(CLASSES, 1 / CLASSES), shape=(SIZE, SIZE))
        alike = pm.math.eq(z[1:], z[:-1]).sum() + pm.math.eq(z[:, 1:], z[:, :-1]).sum()
        pm.Potential("coupling", COUPLING * alike)
        pm.Normal("y", mu[z], sigma, observed=data["y"])
    return model


def in_bugs(data: Data) -> dict:
    """Beside the picture the pairs of neighbours, the first row and column without one above and to the left."""
    pairs = np.ma.ones((SIZE, SIZE), int)
    pairs[0] = np.ma.masked
    base = {"base_mean": BASE_MEAN, "base_sd": BASE_SD}
    return {**data, **base, "S": SIZE, "K": CLASSES, "coupling": COUPLING, "down": pairs, "across": pairs.T}


MODEL = Model(
    name="potts",
    title="Potts, 32 × 32 × 3",
    data=make_data,
    parameters=("mu", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    bugs_data=in_bugs,
)
