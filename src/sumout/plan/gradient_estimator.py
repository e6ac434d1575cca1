"""`sumout.gradient_estimator`: the stochastic gradient of log p(x|y) by itself, for a loop of one's own."""

from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import Array

from sumout.errors import OptionError
from sumout.model.front_ends import as_program
from sumout.model.program import Nuisance, Program
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.free_data import fill_in_data, free_data
from sumout.plan.plan import plan_for, without_partners
from sumout.plan.target import estimate_gradient, make_target


def gradient_estimator(
    program: Program | Any, num_samples: int = 1, *, plan: Mapping[str, str] | None = None
) -> Callable[..., tuple[Array, Nuisance]]:
    """An unbiased stochastic gradient of log p(x|y), for use in a loop of one's own.

    The estimate is unbiased when z comes from p(z|x,y): hand the returned z to the next call. It can be jitted
    and vmapped.

    Args:
        program: from `sumout.program` or `sumout.density`, or a PyMC model.
        num_samples: how many draws of z to average over.
        plan: what to do with a discrete site, by name, as for `sumout.sample`. Sites that are summed out add no noise;
            `"draw"` has them drawn.

    Returns:
        `(key, x, z, data=None) -> (gradient, z)` with x the flat unconstrained vector and z a dict of arrays; data are
        arrays that take the place of the program's, by their names in `program.data`, as far as the structure does not
        follow from their values.

    Example:
        >>> import jax, jax.numpy as jnp, sumout
        >>> from numpyro.distributions import Normal, constraints
        >>> def two_normals(x, z, data):
        ...     return Normal(jnp.where(z["right"], 1.0, -1.0), 0.5).log_prob(x["x"])
        >>> program = sumout.density(two_normals, x={"x": (constraints.real, ())}, z={"right": sumout.finite(2)})
        >>> estimate = jax.jit(sumout.gradient_estimator(program, plan={"right": "draw"}))
        >>> gradient, z = estimate(jax.random.key(1), jnp.array([1.0]), {"right": jnp.array(0)})
        >>> gradient.shape, int(z["right"])
        ((1,), 1)
    """
    if not isinstance(num_samples, int) or num_samples < 1:
        raise OptionError(f"num_samples={num_samples!r}: the number of draws to average over must be at least 1.")
    program = as_program(program)
    plan = without_partners(program, plan, NOT_CUT)
    freed = free_data(program, plan)
    target = make_target(plan_for(freed, plan, NOT_CUT))

    def estimator(key: Array, x: Array, z: Nuisance, data: Mapping[str, Any] | None = None) -> tuple[Array, Nuisance]:
        estimate = estimate_gradient(target, num_samples, key, x, z, fill_in_data(freed, data))
        return estimate.gradient, estimate.z

    return estimator
