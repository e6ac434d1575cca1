"""`sumout.maximize`: the mode of p(x|y), all z summed out or drawn afresh for every gradient.

    x̂ = argmax_x log Σ_z p(x, z, y)

This is not the x of the most probable pair (x, z): what a single z gives to x, many others may outweigh.
"""

import math
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.calls import public
from sumout.checks.guard import Guard
from sumout.checks.not_finite import explain_no_start
from sumout.compile.ahead import briefly
from sumout.errors import ConvergenceWarning, ModelError, OptionError, StartError
from sumout.model.arguments import as_jax
from sumout.model.front_ends import as_program
from sumout.model.initial_values import any_z
from sumout.model.program import Nuisance, Program
from sumout.optimize.lbfgs import ascend_exactly
from sumout.optimize.maximum import Ascent, Maximum, build_maximum, refuse_moving_supports
from sumout.optimize.stochastic_ascent import ascend_with_draws
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.plan import plan_for, without_partners
from sumout.plan.row_sums import make_row_sums
from sumout.plan.target import Target, make_target
from sumout.randomness import Key, as_seed, new_key, split
from sumout.run.bars import bar
from sumout.run.minibatch import choose_minibatch
from sumout.run.mode_search import FullData, find_mode
from sumout.run.row_pool import HeldRows
from sumout.run.starts import Ascents


@public
def maximize(
    program: Program | Any,
    *,
    starts: int = 8,
    steps: int = 2000,
    learning_rate: float = 0.1,
    seed: int | jax.Array = 0,
    plan: Mapping[str, str] | None = None,
    jacobian: bool = False,
    progress: bool | None = None,
    minibatch: Mapping[str, int] | None = None,
) -> Maximum:
    """Find the mode of p(x|y), the maximum a posteriori of x with z summed out, and z's conditional there.

    Each start is a short ascent from a random point. Where all z is summed out it is finished by L-BFGS; where some is
    drawn, by Adam with fresh z for every gradient and decreasing steps, of which the second half are averaged. The
    highest of the optima found is returned. Warns where it may not be one.

    Args:
        program: from `sumout.program` or `sumout.density`, or a PyMC model.
        starts: number of ascents, each from a point of its own.
        steps: steps of an ascent; where all z is summed out it ends sooner once it has converged.
        learning_rate: of Adam, on the real line, at the first step; not used where all z is summed out.
        seed: fixes all randomness, a number or one of JAX's keys; the same seed gives the same maximum.
        plan: what to do with a discrete site, by name, as for `sumout.sample`.
        jacobian: False for the mode of the density of x in its own coordinates, as Stan's optimizer has it; True for
            the mode of the density on the real line, with the Jacobian, which is the one the samplers use.
        progress: show a progress bar; None shows it in terminals and notebooks only.
        minibatch: rows of a plate, or of several, that are held in memory at a time, as in `{"n": 1000}`: ascents go on
            some rows, then quasi-Newton steps on all of them in chunks. z of rows is summed out and not reported. Not
            with `starts`, `steps` or `learning_rate`, which are for ascents on all rows.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def survey(y):
        ...     theta = numpyro.sample("theta", dist.Beta(1, 1))
        ...     with numpyro.plate("employees", len(y)):
        ...         coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Bernoulli(0.5 * (1 - coin) + theta * coin), obs=y)
        >>> found = sumout.maximize(sumout.program(survey, np.array([1, 1, 1, 0, 0])))
        >>> print(found.x["theta"].round(4), found.z["coin"][0].round(4))  # P(tails), P(heads) behind a yes
        0.7 [0.4167 0.5833]
        >>> found.converged
        True
    """
    seed = as_seed(seed)
    program = as_program(program)
    _check_options(program, starts, steps, learning_rate, seed, jacobian)
    chosen = choose_minibatch(program, minibatch)
    if chosen is not None:
        if (starts, steps, learning_rate) != (8, 2000, 0.1):
            raise OptionError(
                "maximize: starts, steps and learning_rate have no meaning with minibatch: leave them out."
            )
        return _maximize_rows(program, chosen, plan, jacobian, int(seed))
    key_start, key_guard, key_ascent, key_z = split(new_key(seed), 4)
    with bar(progress) as drawn:

        def report(done: int, notes: str) -> None:
            drawn.show(f"ascending, {starts} starts", done, steps, notes)

        drawn.phase("reading the model")
        aim = program if jacobian else program.without_jacobian()
        made = plan_for(aim, without_partners(aim, plan, NOT_CUT), NOT_CUT)
        aim = made.structure.program
        refuse_moving_supports(aim)
        target = make_target(made)
        drawn.phase("compiling")

        x, z = _start(aim, target, key_start, starts)
        one = jax.tree.map(lambda a: a[0], z)
        Guard(made).compare(key_guard, x[0], one)
        if made.sums_all:
            optima = ascend_exactly(
                lambda x, data: target.log_density(x, one, data), x, z, aim.data,
                steps=steps, compiler_options=briefly(aim), report=report,
            )  # fmt: skip
        else:
            optima = ascend_with_draws(
                target, key_ascent, x, z, aim.data,
                steps=steps, learning_rate=float(learning_rate), compiler_options=briefly(aim), report=report,
            )  # fmt: skip
    return build_maximum(made, optima, starts, key_z)


def _maximize_rows(
    program: Program, minibatch: Mapping[str, int], plan: Mapping[str, str] | None, jacobian: bool, seed: int
) -> Maximum:
    """The mode by ascents on some rows and steps on all."""
    sums = make_row_sums(program, minibatch, plan, jacobian)
    rows = sums.each[0].rows
    held = HeldRows(rows)
    found = find_mode(sums, FullData(sums, held.some, held.pieces), held.some, new_key(seed))
    shared, kept = rows.shared, set.intersection(*(set(one.rows.kept) for one in sums.each))
    first = jax.jit(rows.take)(held.some, jnp.arange(rows.batch, dtype=jnp.int32))
    x = jnp.asarray(found.x, jnp.result_type(float))
    values = shared.constrain(x, any_z(shared), first)
    values = {name: np.asarray(value) for name, value in values.items() if name in kept}
    unconstrained = {name: np.asarray(value) for name, value in shared.unravel(x).items()}
    distance = found.decrement**0.5
    words = f"{distance:.2g} posterior deviations from where the gradient of all {sums.size:,} rows points"
    message = f"A mode, {words}." if found.is_found else f"No mode: {words} after {found.passes} passes over them."
    if not found.is_found:
        warnings.warn(f"maximize: {message} Check the priors.", ConvergenceWarning, stacklevel=4)
    ascent = Ascent(values, 0.0, 0.0, found.is_found)
    return Maximum(values, unconstrained, found.log_density, {}, None, found.is_found, message, (ascent,))


def _check_options(program: Any, starts: Any, steps: Any, learning_rate: Any, seed: Any, jacobian: Any) -> None:
    if not isinstance(program, Program):
        raise OptionError(
            f"maximize: expected a Program, got {type(program).__name__}; make one with sumout.program(model, *args) "
            "from a NumPyro model or sumout.density(log_density, x=…, z=…) from a function."
        )
    least = {"starts": 1, "steps": 10, "seed": 0}
    for name, value in {"starts": starts, "steps": steps, "seed": seed}.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least[name]:
            raise OptionError(f"maximize: {name}={value!r} must be a whole number of at least {least[name]}.")
    is_number = isinstance(learning_rate, Real) and not isinstance(learning_rate, bool)
    if not is_number or not 0 < float(learning_rate) < math.inf:
        raise OptionError(
            f"maximize: learning_rate={learning_rate!r} must be a positive number: about how far x moves in a step."
        )
    if not isinstance(jacobian, bool):
        raise OptionError(
            f"maximize: jacobian={jacobian!r} must be False, for the mode in x's own coordinates, or True, for the "
            "mode on the real line."
        )
    if program.num_x == 0:
        raise ModelError(
            f"maximize: '{program.name}' has no continuous variable, so there is no x to maximise over; "
            "sumout.marginals gives the most probable z."
        )


def _start(program: Program, target: Target, key: Key, number: int) -> tuple[Array, Nuisance]:
    """The highest point of every ascent that found one of finite density."""
    data = as_jax(program.data)
    optima = jax.tree.map(lambda a: a[0], Ascents(program, target, number).run(key[None], data, below=0.0))
    x, z = optima.points.x, optima.z
    kept = np.flatnonzero(np.isfinite(optima.log_density))
    if not len(kept):
        raise StartError(explain_no_start(program, target.log_density, x, z, f"{number} starts"))
    return as_jax(jax.tree.map(lambda a: a[kept], (x, z)))
