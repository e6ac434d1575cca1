"""The paper's two normals (its Figure 2): how often does a chain change sides?

    z ~ Bernoulli(½),   x | z ~ Normal(±1, ½)

HMC alternating with z stays on one side for whole trajectories. With z drawn afresh for every gradient, x follows the
gradient of the marginal and crosses the valley as soon as it comes near it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import Normal, constraints

from sumout.kernels.ghmc import GHMC
from sumout.kernels.hmc import HMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.sgnht import SGNHT
from sumout.kernels.split_sghmc import SplitSGHMC
from sumout.model.density import density
from sumout.model.program import Program
from sumout.model.supports import finite
from sumout.reports.html import FAINT, INK, PALETTE
from sumout_studies.measure import sample_untrusted

if TYPE_CHECKING:  # an extra
    from matplotlib.figure import Figure

CENTRE, SPREAD = 1.0, 0.5
SIDE = 0.5  # beyond ± this, x is on one side; between, it is on its way
SHOWN = 2000  # gradients in the picture

SCHEMES: dict[str, Kernel] = {
    "GHMC, fresh z": GHMC(),
    "sgHMC, fresh z": SplitSGHMC(num_samples=1),
    "thermostat, fresh z": SGNHT(),
    "HMC alternating with z": HMC(num_leapfrog=10),
}


def two_normals(x: dict[str, Array], z: dict[str, Array], data: Any) -> Array:
    """Log density of the paper's listing, without its constant."""
    del data
    return jnp.asarray(Normal(jnp.where(z["right"], CENTRE, -CENTRE), SPREAD).log_prob(x["x"]))


def make_program() -> Program:
    """The program, z left in."""
    return density(two_normals, x={"x": (constraints.real, ())}, z={"right": finite(2)})


@dataclass(frozen=True)
class Crossings:
    """A run of one scheme.

    Attributes:
        x: position after every step of the kernel, `(chain, step)`.
        gradients_per_step: gradients that one step takes.
    """

    x: np.ndarray
    gradients_per_step: int

    @property
    def per_gradient(self) -> float:
        """Changes of side for each gradient."""
        changes = sum(_changes(chain) for chain in self.x)
        return changes / (self.x.size * self.gradients_per_step)


def _changes(x: np.ndarray) -> int:
    sides = np.sign(x[np.abs(x) > SIDE])
    return int((np.diff(sides) != 0).sum())


def run(program: Program, kernel: Kernel, gradients: int = 20_000, seed: int = 0) -> Crossings:
    """Four chains, z drawn, every step of the kernel kept."""
    draws = gradients // kernel.gradients_per_step
    result = sample_untrusted(program, kernel, plan={"right": "draw"}, draws=draws, steps=1, seed=seed)
    return Crossings(np.asarray(result["posterior"]["x"].values), kernel.gradients_per_step)


def draw(runs: dict[str, Crossings]) -> "Figure":
    """The path of one chain of each scheme against gradients taken, and beside it all its draws and the density."""
    from matplotlib.figure import Figure  # an extra

    figure = Figure((10, 1.6 * len(runs)), layout="constrained")
    rows = figure.subplots(len(runs), 2, sharey=True, squeeze=False, width_ratios=(5, 1))
    bars = {"bins": 60, "range": (-3, 3), "density": True, "orientation": "horizontal"}
    grid = np.linspace(-3, 3, 301)
    height = sum(np.exp(-0.5 * ((grid - centre) / SPREAD) ** 2) for centre in (-CENTRE, CENTRE))
    height = height / (2 * SPREAD * np.sqrt(2 * np.pi))
    for (name, made), (left, right) in zip(runs.items(), rows, strict=True):
        shown = made.x[0, : SHOWN // made.gradients_per_step]
        left.plot(np.arange(len(shown)) * made.gradients_per_step, shown, linewidth=0.7, color=PALETTE[0])
        left.axhline(0, linewidth=0.5, color=FAINT)
        often = f"{1000 * made.per_gradient:.1f} changes of side in 1,000 gradients"
        left.set_title(f"{name}: {often}", loc="left", size=10)
        left.set_xlim(0, SHOWN)
        left.set_ylabel("x")
        right.hist(made.x.ravel(), **bars, color=PALETTE[0], alpha=0.4)
        right.plot(height, grid, linewidth=1, color=INK)
        right.set_xticks([])
        right.spines[["top", "right", "bottom"]].set_visible(False)
        left.spines[["top", "right"]].set_visible(False)
    rows[-1, 0].set_xlabel("gradients")
    rows[0, 1].set_title("draws, density", size=10)
    return figure
