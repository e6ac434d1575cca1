"""What stochastic gradient kernels share: without an accept/reject step they are only as right as their tuning.

Two things make their draws wrong. The step is finite, and the gradient is noisy. Both are watched during warm-up:

* the energy error ΔH of one leapfrog step at a fixed z says how coarse the step is for the density at hand. On a
  standard Gaussian |ΔH| / √num_x is about 0.3 ε³; the step size is tuned until it is what it would be there at the
  kernel's own `standard_step`. The bias meter would say it directly, but one window of the warm-up knows it to some ten
  per cent only, where the third root of an energy error is known to a few.
* the variance V̂ of the gradient noise, per coordinate, from two gradients with a fresh z each. Every kernel knows which
  share of the noise that it should inject the gradient supplies already; the step size is kept so small that the share
  stays below a quarter on average, and the kernel injects the rest.

At the end of every window the bias meter is read all the same (`BiasControl`). Where it says, beyond its error, that
the draws are too wide, both limits are lowered.

With two samples or more in a gradient, V̂ is measured at every step anew, as V differs from place to place; with one, it
is the average over the warm-up. A measurement is noisy but right on average. Where it exceeds what should be injected,
nothing is injected, and the excess is carried over: later steps inject less.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sumout.adaptation.bias_meter import BiasControl
from sumout.adaptation.mass_matrix import RunningScale
from sumout.adaptation.window_adaptation import SETTLING, Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import Kernel
from sumout.kernels.leapfrog import Point, energy_change, gain, leap
from sumout.model.program import Data, Nuisance
from sumout.plan.target import GradientEstimate, Target, estimate_gradient
from sumout.randomness import fold_in, normal, split

FIRST_STEP_SIZE = 1e-3  # where tuning begins: without rejection too small a step does no harm, too large a one does
ENERGY_ERROR = 0.3  # of one step on a standard Gaussian, in units of ε³ √num_x
MOST_SHARE = 0.25  # of the injected noise that the gradient may supply, on average
MOST_EXCESS = 100.0  # carried over, in shares of the noise of one step; more only piles up where it is never used up


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noise:
    """What is known of the gradient noise.

    Attributes:
        variance: of the noise in x, per coordinate, averaged over the warm-up.
        count: how many measurements are behind it.
        excess: variance that earlier gradients supplied too much, as a share of the noise of one step.
    """

    variance: Float[Array, " num_x"]
    count: Float[Array, ""]
    excess: Float[Array, " num_x"]

    def update(self, measured: Array, forget: Array) -> "Noise":
        """Take one more measurement into account, as the first one if `forget`."""
        count = jnp.where(forget, 0, self.count) + 1
        is_sound = jnp.all(jnp.isfinite(measured))
        variance = self.variance + (measured - self.variance) / count
        variance, count = jnp.where(is_sound, variance, self.variance), jnp.where(is_sound, count, self.count)
        return replace(self, variance=variance, count=count)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Position, z, momentum in units of the scale (unused in kernels without one), what was tuned and measured."""

    x: Float[Array, " num_x"]
    z: Nuisance
    momentum: Float[Array, " num_x"]
    tuning: Tuning
    noise: Noise
    bias_control: BiasControl


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Info:
    """What a step has to report.

    Attributes:
        log_density: log p(x, z, y) where the gradient was taken.
        step_size: ε used.
        noise_share: how much of the noise that should be injected the gradient itself supplies, the largest share over
            coordinates.
        is_noise_too_large: the share exceeds 1, or the excess keeps growing, so that the draws are over-dispersed.
        diverging: the step was not finite, and the chain stayed where it was, or the log density was not.
    """

    log_density: Float[Array, ""]
    step_size: Float[Array, ""]
    noise_share: Float[Array, ""]
    is_noise_too_large: Bool[Array, ""]
    diverging: Bool[Array, ""]


class StochasticGradientKernel(Kernel):
    """A kernel driven by a noisy gradient, without an accept/reject step."""

    is_exact = False
    standard_step: ClassVar[float]  # the ε that would do on a standard Gaussian
    num_samples: int
    noise: float | None

    def __post_init__(self):
        """Check the options that all such kernels have."""
        super().__post_init__()
        name = type(self).__name__
        if self.noise is not None and not self.noise >= 0:
            raise OptionError(f"{name}: noise={self.noise!r} is a variance and cannot be negative; None measures it.")
        if not isinstance(self.num_samples, Integral) or self.num_samples < 1:
            raise OptionError(f"{name}: num_samples={self.num_samples!r} must be a whole number of at least 1.")

    def share(self, step_size: Array, variance: Array) -> Array:
        """The share of the injected noise that a gradient noise of this variance, in units of the scale, supplies."""
        raise NotImplementedError

    def tuned(self, states: Any) -> dict[str, Array]:
        """Step size, scale, noise, and by how much the bias meter had the step size lowered."""
        return {**super().tuned(states), "gradient_noise": states.noise.variance, "caution": states.bias_control.factor}

    def init(self, key: Array, start: Point, z: Nuisance) -> Any:
        """At rest; untuned."""
        del key
        x = start.x
        variance = jnp.full_like(x, 0.0 if self.noise is None else self.noise)
        tuning = Tuning.start(RunningScale.start(x), self.step_size or FIRST_STEP_SIZE)
        noise = Noise(variance, jnp.zeros((), x.dtype), jnp.zeros_like(x))
        return State(x, z, jnp.zeros_like(x), tuning, noise, BiasControl.start(x))

    def learn_from(self, x: Array, estimate: GradientEstimate) -> Array:
        """What the scale is learnt from: the position."""
        del estimate
        return x

    def estimate(self, key: Array, x: Array, z: Nuisance, data: Data) -> GradientEstimate:
        """A fresh gradient at x."""
        assert isinstance(self.target, Target)
        return estimate_gradient(self.target, self.num_samples, key, x, z, data)

    def half_step(self, key: Array, state: Any, data: Data) -> tuple[Array, GradientEstimate, Array]:
        """Half a drift, a fresh gradient there, and the half kick that it gives."""
        step_size, scale = state.tuning.step_size, state.tuning.scale
        middle = state.x + 0.5 * step_size * scale * state.momentum
        estimate = self.estimate(key, middle, state.z, data)
        return middle, estimate, 0.5 * step_size * scale * estimate.gradient

    def room(self, state: Any, estimate: GradientEstimate) -> tuple[Array, Noise]:
        """The share of the noise that is left to inject, and the excess carried over."""
        is_local = self.noise is None and self.num_samples > 1
        variance = estimate.noise if is_local else state.noise.variance
        room = 1 - self.share(state.tuning.step_size, variance * state.tuning.scale**2) - state.noise.excess
        excess = jnp.maximum(-room, 0) if is_local else jnp.zeros_like(room)
        return jnp.maximum(room, 0), replace(state.noise, excess=excess)

    def conclude(self, before: Any, after: Any, estimate: GradientEstimate) -> tuple[Any, Info]:
        """The state after a step and the report of it; a step that is not finite is not taken."""
        is_sound = jnp.all(jnp.isfinite(after.x)) & jnp.all(jnp.isfinite(after.momentum))
        stopped = replace(before, momentum=jnp.zeros_like(before.momentum))
        step_size = before.tuning.step_size
        share = jnp.max(self.share(step_size, before.noise.variance * before.tuning.scale**2), initial=0)
        is_noise_too_large = (share > 1) | jnp.any(after.noise.excess > MOST_EXCESS)
        diverging = ~is_sound | ~jnp.isfinite(estimate.log_density)
        info = Info(estimate.log_density, step_size, share, is_noise_too_large, diverging)
        return jax.tree.map(lambda a, b: jnp.where(is_sound, a, b), after, stopped), info

    def adapt(self, key: Array, state: Any, info: Info, data: Data, t: Array, length: Array) -> Any:
        """Measure gradient noise and energy error at the chain's position; tune step size and scale unless given."""
        del info
        if self.step_size is not None and self.noise is not None:
            return state
        assert isinstance(self.target, Target)
        key_noise, key_momentum = split(key)
        num_samples = max(self.num_samples, 2)
        estimate = estimate_gradient(self.target, num_samples, key_noise, state.x, state.z, data)
        noise, z = state.noise, estimate.z
        if self.noise is None:
            forget = (t == length // 8) | (t == length // 2)
            noise = noise.update(estimate.noise * (num_samples / self.num_samples), forget)
        if self.step_size is not None:
            return replace(state, z=z, noise=noise)
        tuning, control = state.tuning, state.bias_control.update(state.x, estimate.gradient)
        fresh = normal(key_momentum, state.x.shape, state.x.dtype)
        rows = self.target.subsample(fold_in(key_noise, num_samples), data)
        end = leap(self.target, state.x, fresh, z, rows, tuning.step_size, tuning.scale)
        if self.target.log_ratio is None:
            _, _, change = energy_change(self.target, (state.x, fresh), end, z, rows)
        else:
            ratio = self.target.log_ratio(state.x, end[0], z, rows)
            change = gain((jnp.zeros_like(ratio), fresh), (ratio, end[1]))
        standard = ENERGY_ERROR * (control.factor * self.standard_step) ** 3 * np.sqrt(max(state.x.size, 1))
        share = jnp.max(self.share(tuning.step_size, noise.variance * tuning.scale**2), initial=0)
        # One half where the step is as large as it should be, by whichever is worse; 0 far below, 1 far above.
        excess = jnp.minimum(jnp.maximum(jnp.abs(change) / standard, 0.5 * share / (control.factor * MOST_SHARE)), 1.0)
        tuning = tuning.update(self.learn_from(state.x, estimate), 1 - excess, 0.5, t, length)
        rate = self.time_per_step(tuning.step_size)
        control = jax.lax.cond(tuning.window.count == 0, lambda: control.read(rate), lambda: control)
        # No rejection stops a step that is far too large: the momentum it gained must not reach the next.
        momentum = jnp.where(jnp.abs(change) > 100 * standard, 0.0, state.momentum)
        momentum = jnp.where(t < SETTLING * length, fresh, momentum)
        return replace(state, z=z, noise=noise, tuning=tuning, momentum=momentum, bias_control=control)
