"""From the optima of the ascents to a `Maximum`: the best of them by name, z given it, and whether it has converged."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import QUICK_COMPILE, briefly
from sumout.errors import ConvergenceWarning, ModelError
from sumout.jaxpr.equations import used_inputs
from sumout.model.packing import Packs
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Finite
from sumout.optimize.lbfgs import Optima, lengths
from sumout.optimize.stochastic_ascent import DRAWS
from sumout.plan.plan import Plan
from sumout.randomness import Key, fold_in, split
from sumout.results.marginals import frequencies, probabilities
from sumout.threads import attentive_jit

SAME = 0.1  # nats: optima that differ by less are as high as each other
MOST_SHOWN = 8  # variables
FAR = 15.0  # on the real line: there a probability is within 3e-7 of 0 or 1, a scale 3e-7 or 3 million
WITHOUT_TABLE = ("metropolis", "prior", "forward")  # methods that know no probabilities, only draws


@dataclass(frozen=True)
class Ascent:
    """Where one start ended.

    Attributes:
        x: named values as the user knows them.
        gap: by how many nats its log density is below that of the maximum; negative if it is higher.
        gap_error: standard error of the gap, where z is drawn; 0 where it is summed out.
        converged: whether it ended at a mode.
    """

    x: Mapping[str, np.ndarray]
    gap: float
    gap_error: float
    converged: bool


@dataclass(frozen=True, repr=False)
class Maximum:
    """A mode of p(x|y), and what z is there.

    Attributes:
        x: named values as the user knows them, and the deterministics. A deterministic that depends on z is computed
            with `z_mode`, and left out where there is none.
        unconstrained: x on the real line.
        log_density: log p(x, y), z summed out, with or without the Jacobian as asked for; None where some z is drawn,
            as it is not known then.
        z: for each discrete site with finitely many values the probabilities of its values given x, along a last axis;
            exact where z is summed out, averaged over 1,000 moves of z at x where it is drawn. For counts and for sites
            known by their sampler the mean over these moves.
        z_mode: the most probable joint z given x; None where some z is drawn.
        converged: whether x is a mode.
        message: why it is taken for one, or why not, and what else was seen.
        starts: where the ascents ended.
    """

    x: Mapping[str, np.ndarray]
    unconstrained: Mapping[str, np.ndarray]
    log_density: float | None
    z: Mapping[str, np.ndarray]
    z_mode: Mapping[str, np.ndarray] | None
    converged: bool
    message: str
    starts: tuple[Ascent, ...]

    def __repr__(self) -> str:
        lines = [f"{name} = {_shorten(value)}" for name, value in list(self.x.items())[:MOST_SHOWN]]
        if len(self.x) > MOST_SHOWN:
            lines.append(f"… and {len(self.x) - MOST_SHOWN} more")
        known = "not known, as z is drawn" if self.log_density is None else f"{self.log_density:.6g}"
        return "\n".join([*lines, f"log density: {known}", self.message, self._describe_starts()])

    def _describe_starts(self) -> str:
        """How many starts ended as high, and how far below the others did."""
        converged = [start for start in self.starts if start.converged]
        lower = [f"{start.gap:.3g}" for start in converged if start.gap > SAME + 3 * start.gap_error]
        lost = sum(not start.converged for start in self.starts)
        words = f"{len(self.starts)} starts: {len(converged) - len(lower)} ended as high"
        words += f", {len(lower)} in lower modes ({', '.join(lower[:5])} nats below)" if lower else ""
        return words + (f", {lost} did not converge." if lost else ".")


def _shorten(value: np.ndarray) -> str:
    return np.array2string(np.asarray(value), precision=4, threshold=10, edgeitems=3, separator=", ")


def refuse_moving_supports(program: Program) -> None:
    """Where the support of x depends on z, x is not one value."""
    moving = _named_by_z(program)
    for name in program.x:
        if name in moving:
            raise ModelError(
                f"maximize: the support of '{name}' depends on a discrete site, so its value changes with z and has no "
                "mode of its own; give it a fixed support, for instance by scaling a variable on (0, 1)."
            )


def _named_by_z(program: Program) -> set[str]:
    """Which of the values that the user sees depend on z."""
    closed, shapes = jax.make_jaxpr(program.constrain, return_shape=True)(*program.abstract_arguments())
    each = zip(sorted(shapes), used_inputs(closed), strict=True)  # JAX sorts dicts
    found = {name: any(used[1 : 1 + len(program.z)]) for name, used in each}
    packs = getattr(program.constrain_named, "packs", Packs())
    return {user_name for name, is_found in found.items() if is_found for user_name in packs.names(name)}


def build_maximum(plan: Plan, optima: Optima, starts: int, key: Key) -> Maximum:
    """The best of the optima as the user knows it; warns where there are doubts."""
    program, best = plan.structure.program, optima.best
    x, z = jnp.asarray(optima.x[best]), jax.tree.map(lambda a: a[best], optima.z)
    compiled = partial(attentive_jit, compiler_options=QUICK_COMPILE)
    mode = None
    if plan.summation is not None and plan.sums_all:
        mode = compiled(plan.summation.most_probable)(x, z, program.data)
    constrain = compiled(jax.vmap(program.constrain, in_axes=(0, None, None)))
    values = {name: np.asarray(v) for name, v in constrain(optima.x, z if mode is None else mode, program.data).items()}
    values = program.user_values(values, axis=1)
    left_out = set() if mode is not None else _named_by_z(program)
    gaps, errors = optima.gaps
    message, is_doubtful = _describe(plan, optima, starts, values)
    if is_doubtful:
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    return Maximum(
        x={name: value[best] for name, value in values.items() if name not in left_out},
        unconstrained={name: np.asarray(value) for name, value in program.unravel(x).items()},
        log_density=float(optima.log_density[best]) if plan.sums_all else None,
        z=_given_x(plan, key, x, z),
        z_mode=None
        if mode is None
        else program.packs.unpack({n: np.asarray(v) for n, v in mode.items() if n not in program.forward}),
        converged=bool(optima.is_converged[best]),
        message=message,
        starts=tuple(
            Ascent({name: values[name][i] for name in program.x}, float(gap), float(error), bool(converged))
            for i, (gap, error, converged) in enumerate(zip(gaps, errors, optima.is_converged, strict=True))
        ),
    )


def _given_x(plan: Plan, key: Key, x: Array, z: Nuisance) -> dict[str, np.ndarray]:
    """Probabilities of the values of every site given x; means of those without a list of values."""
    program = plan.structure.program
    known_by_draws = [
        name for name, choices in plan.choices.items() if any(choice.method in WITHOUT_TABLE for choice in choices)
    ]

    moves = DRAWS if known_by_draws or not plan.sums_all else 1

    @partial(attentive_jit, compiler_options=briefly(program))
    def average(key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        key_sweep, key_forward = split(key)

        def move(carry: tuple[Nuisance, Array], i: Array) -> tuple[tuple[Nuisance, Array], Nuisance]:
            z, total = carry
            z = plan.sweep(fold_in(key_sweep, i), x, z, data)
            whole = program.draw_forward(fold_in(key_forward, i), x, z, data)
            return (z, total + probabilities(plan, x, z, data)), {name: whole[name] for name in known_by_draws}

        shape = jax.eval_shape(lambda: probabilities(plan, x, z, data))
        (_, total), drawn = jax.lax.scan(move, (z, jnp.zeros(shape.shape, shape.dtype)), jnp.arange(moves))
        return total / moves, drawn

    table, drawn = average(key, x, z, program.data)
    found = {}
    for name, numbers in plan.structure.site_numbers.items():
        support = program.z[name].support
        if isinstance(support, Finite):
            rows = np.array(table)[numbers, : support.num_values]
            unknown = np.isnan(rows).any(axis=1)
            if unknown.any():
                rows[unknown] = frequencies(support, drawn[name])[unknown]
            found[name] = rows.reshape(*support.shape, support.num_values)
        else:
            found[name] = np.asarray(drawn[name]).mean(axis=0)
    return program.packs.unpack(found)


def _describe(plan: Plan, optima: Optima, starts: int, values: dict[str, np.ndarray]) -> tuple[str, bool]:
    """Whether the best ascent has converged, by what criterion, and what became of the others; and whether to warn."""
    program, best = plan.structure.program, optima.best
    x, gradient = optima.x[best], optima.gradient[best]
    if not optima.is_converged[best]:
        return _describe_failure(program, x, gradient, optima.is_unconverged[best]), True
    doubts = []
    for name, part in program.unravel(x).items():
        is_bounded = values[name][best].shape != part.shape or not np.allclose(values[name][best], part)
        if is_bounded and np.abs(part).max(initial=0.0) > FAR:
            doubts.append(f"{name} is far out on the real line, as where the mode lies at the edge of the support.")
    has_diverged = (optima.is_unconverged & (np.abs(optima.x) > FAR)).any(axis=1)
    gaps, errors = optima.gaps
    others = has_diverged | (gaps < -(SAME + 3 * errors))
    if others.any():
        doubts.append(
            f"{others.sum()} other ascents diverged or went higher without converging: this is a local mode, and the "
            "density may be unbounded. A prior that keeps scales away from zero would help."
        )
    if plan.sums_all:
        words = f"Converged: the gradient is zero (a step gains {np.abs(gradient * lengths(x)).max():.0e} nats)."
    else:
        words = f"Converged: averaged over {DRAWS:,} draws of z, the gradient is zero within its error."
    lost = starts - len(optima.x)
    lost_words = [f"{lost} of {starts} starts found no point of finite density."] if lost else []
    return " ".join([words, *doubts, *lost_words]), bool(doubts)


def _describe_failure(program: Program, x: np.ndarray, gradient: np.ndarray, is_unconverged: np.ndarray) -> str:
    """Along which variables the best ascent did not converge, and what to do."""
    named = program.unravel(is_unconverged)  # pyright: ignore[reportArgumentType]
    where = [name for name, part in named.items() if part.any()]
    shown = ", ".join(where[:5]) + (" and others" if len(where) > 5 else "")
    if not np.isfinite(gradient).all():
        return f"Did not converge: the density or its gradient is not finite at the end of the ascent (see {shown})."
    if (np.abs(x[is_unconverged]) > FAR).any():
        return (
            f"Did not converge: {shown} diverged, to {np.abs(x[is_unconverged]).max():.3g} on the real line, and the "
            "density may be unbounded. Check the priors: one that keeps scales away from zero would help."
        )
    gain = np.abs(gradient * lengths(x)).max()
    return (
        f"Did not converge: along {shown} the log density still rises (by {gain:.2g} nats for a step). "
        "Take more steps or, where z is drawn, another learning_rate; or the density is too narrow a spike for the "
        "precision of x."
    )
