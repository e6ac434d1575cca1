"""Preconditioned stochastic gradient Langevin dynamics (Li, Chen, Carlson and Carin 2016).

    x ← x + ½ η G ĝ + N(0, η G − ¼ η² G² V̂)        G = 1 / (λ + √mean ĝ²)²

The scale of a coordinate comes from the gradients met during warm-up instead of from the draws: small where the density
is steep and also where the gradient is noisy. The paper divides by √mean ĝ² once and goes on averaging for ever,
leaving out the term that a changing G calls for; here G has the units of a variance, as the scale of the other kernels
does, and is fixed after warm-up, when nothing is left out.
"""

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Array

from sumout.adaptation.mass_matrix import RunningSteepness
from sumout.adaptation.window_adaptation import Tuning
from sumout.errors import OptionError
from sumout.kernels.leapfrog import Point
from sumout.kernels.sgld import SGLD
from sumout.kernels.stochastic_gradient import FIRST_STEP_SIZE
from sumout.model.program import Nuisance
from sumout.plan.target import GradientEstimate


@dataclass(frozen=True)
class PSGLD(SGLD):
    """Preconditioned stochastic gradient Langevin dynamics.

    Attributes:
        step_size: ε in units of the scale, with η = ε²; None to tune it, and the preconditioner, during warm-up.
        noise: V̂, the variance of the gradient noise; None measures it during warm-up.
        num_samples: draws of z averaged in one gradient.
        damping: λ.

    Example:
        >>> import sumout
        >>> sumout.PSGLD(damping=0.01)
        PSGLD(step_size=None, noise=None, num_samples=1, damping=0.01)
    """

    name = "psgld"
    damping: float = 1e-5

    def __post_init__(self):
        super().__post_init__()
        if not self.damping > 0:
            raise OptionError(f"PSGLD: damping={self.damping!r} must be positive.")

    def init(self, key: Array, start: Point, z: Nuisance) -> Any:
        """A chain at its start, untuned; the scale will be learnt from gradients."""
        window = RunningSteepness.start(start.x, self.damping)
        return replace(super().init(key, start, z), tuning=Tuning.start(window, self.step_size or FIRST_STEP_SIZE))

    def learn_from(self, x: Array, estimate: GradientEstimate) -> Array:
        """The scale is learnt from the gradient."""
        del x
        return estimate.gradient
