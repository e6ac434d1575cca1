"""Random programs, each with brute force as its oracle.

A program is a sum of random terms (`terms.py`) over a few discrete sites and coordinates of x, all determined by one
number, the seed. All joint values of z are listed, and the program's own log density in plain JAX at these says what
is right: the value with z summed out, its gradient, marginals, most probable z, conditionals, likelihoods. Values of z
with a log density of −∞ (or none at all) are impossible: they have weight 0.

    python -m hostile.random_programs 0 200        looks at the programs of these seeds, in both precisions
    python -m hostile.random_programs 17           prints one and shrinks it if it fails

(with `tests` and `src` on the path).
"""

import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sumout
from sumout.errors import SumoutError
from sumout.model.program import Program
from sumout.model.supports import Finite
from sumout.plan.plan import Plan, make_plan
from sumout.plan.target import make_target
from sumout.results.likelihood import build_likelihood
from sumout.results.marginals import probabilities

from enumeration import joint_states, state_numbers
from hostile.terms import IMPOSSIBLE, KINDS, OWN_DERIVATIVE, Chooser, Env, Pick
from transitions import transition_matrices

MOST_STATES = 600
MOST_TRANSITIONS = 100  # states of which transition matrices are made
NUM_POINTS = 3
STEPS = (1e-3, 1e-4)  # of differences; where they disagree there is a kink near by
VALUES = (2, 2, 3, 4, [-1, 1], [-2, 0, 3], [0.5, 1.5], [-0.5, 0.0, 2.0], [False, True], "uint8", "int8", "own")
SHAPES = ((), (2,), (2,), (3,), (3,), (4,), (5,), (2, 2))
X = {
    "a": (constraints.real, ()),
    "p": (constraints.unit_interval, ()),
    "s": (constraints.positive, ()),
    "v": (constraints.real, (2,)),
}


@dataclass(frozen=True)
class Spec:
    """Which random program: a seed, of its terms those that are kept (None: all), and sites cut to two values.

    With a `kind`, one term of that kind.
    """

    seed: int
    kept: tuple[int, ...] | None = None
    cut: frozenset[str] = frozenset()
    kind: str = ""


@dataclass(frozen=True)
class RandomProgram:
    """A program as it was put together."""

    spec: Spec
    supports: dict[str, Finite]
    terms: dict[int, tuple[str, Chooser, Pick]]
    observations: tuple[tuple[str, Chooser, Pick], ...] = ()

    @property
    def data(self) -> dict[str, np.ndarray]:
        choosers = [c for _, c, _ in (*self.terms.values(), *self.observations)]
        return {name: value for c in choosers for name, value in c.data.items()}

    @property
    def kinds(self) -> set[str]:
        return {name for name, _, _ in self.terms.values()}

    def log_density(self, x: Any, z: Any, data: Any) -> Any:
        """The program in plain JAX."""
        e = Env(x, z, data or {})
        return sum((term(e) for _, _, term in self.terms.values()), -0.5 * sum((v**2).sum() for v in x.values()))

    def __str__(self) -> str:
        lines = [f"{self.spec}"]
        for name, support in self.supports.items():
            values = support.values.tolist()
            lines.append(f"  {name}: {support.dtype} {values} shape {support.shape}")
        for i, (kind, chooser, _) in self.terms.items():
            lines.append(f"  {i}: {kind}({', '.join(chooser.notes)})")
        lines += [f"  y: {kind}({', '.join(chooser.notes)})" for kind, chooser, _ in self.observations]
        return "\n".join(lines)


def make(spec: Spec) -> RandomProgram:
    """Put a program together."""
    rng = np.random.default_rng([spec.seed, 1_000_000])
    supports = _supports(rng, is_named=is_numpyro(spec))
    shapes = {name: support.shape for name, support in supports.items()}
    names, terms = list(KINDS), {}
    for i in range(1 if spec.kind else int(rng.choice([2, 3, 4, 5], p=[0.6, 0.2, 0.1, 0.1]))):
        if spec.kept is None or i in spec.kept:
            own = np.random.default_rng([spec.seed, i])
            kind = spec.kind or names[own.integers(len(names))]
            chooser = Chooser(own, shapes, f"t{i}_")
            terms[i] = kind, chooser, KINDS[kind](chooser)
    observations = ()
    if is_numpyro(spec):
        own = np.random.default_rng([spec.seed, 2_000_000])
        kind = list(OBSERVATIONS)[own.integers(len(OBSERVATIONS))]
        chooser = Chooser(own, shapes, "y_")
        observations = ((kind, chooser, OBSERVATIONS[kind](chooser)),)
    used = set().union(*(c.sites for _, c, _ in (*terms.values(), *observations)))
    kept = {n: _cut(s) if n in spec.cut else s for n, s in supports.items() if n in used}
    return RandomProgram(spec, kept, terms, observations)


def is_numpyro(spec: Spec) -> bool:
    """Whether the program is written as a NumPyro model."""
    return spec.seed % 5 == 4


def _supports(rng: np.random.Generator, is_named: bool) -> dict[str, Finite]:
    supports, states = {}, 1.0
    for number in range(int(rng.integers(1, 4))):
        shape = SHAPES[rng.integers(len(SHAPES))]
        size = int(np.prod(shape))
        choice = VALUES[rng.integers(4 if is_named else len(VALUES))]
        if choice in ("uint8", "int8"):
            listed = np.array([0, 1, 2] if choice == "uint8" else [-3, 1], choice)
            support = Finite(listed, shape)
        elif choice == "own":
            values = np.sort(np.array([rng.choice(6, 3, replace=False) - 2 for _ in range(size)]), axis=1)
            allowed = np.arange(3) < rng.integers(2, 4, size=(size, 1))
            support = Finite(values, shape, allowed)
        else:
            support = sumout.finite(choice, shape)
        states *= float(support.num_values) ** size
        if states > MOST_STATES:
            break
        supports[f"z{number}"] = support
    return supports or {"z0": sumout.finite(2, 3)}


def _cut(support: Finite) -> Finite:
    allowed = None if support.allowed is None else support.allowed[..., :2]
    return Finite(support.values[..., :2], support.shape, allowed)


# NumPyro: the same terms as factors, and data that depend on one site each.


def _observe(law: Callable[[Chooser], Callable[[Env, Any], Any]], draw: Callable[[Any, int], np.ndarray]):
    def make_observation(c: Chooser) -> Pick:
        many, n = c.vector()
        given, y = law(c), np.asarray(draw(c.rng, n))
        return lambda e: (given(e, many(e)), y)

    return make_observation


def _with_scale(c: Chooser) -> Callable[[Env, Any], Any]:
    w, s = c.real(), c.positive()
    return lambda e, z: dist.Normal(w(e) * z, s(e))


def _zero_inflated(c: Chooser) -> Callable[[Env, Any], Any]:
    s = c.positive()
    return lambda e, z: dist.Poisson(s(e) * (z > 0))


def _detected(c: Chooser) -> Callable[[Env, Any], Any]:
    p = c.probability()
    return lambda e, z: dist.Bernoulli(p(e) * (z > 0))


def _counted(c: Chooser) -> Callable[[Env, Any], Any]:
    p = c.probability()
    return lambda e, z: dist.Binomial(jnp.asarray(z, int), p(e))


def _bounded(c: Chooser) -> Callable[[Env, Any], Any]:
    return lambda e, z: dist.Uniform(0.0, e.x["s"] + 1.0 + z)


OBSERVATIONS = {
    "normal": _observe(_with_scale, lambda rng, n: rng.normal(size=n)),
    "zero_inflated": _observe(_zero_inflated, lambda rng, n: rng.integers(0, 3, size=n)),
    "detected": _observe(_detected, lambda rng, n: rng.integers(0, 2, size=n)),
    "counted": _observe(_counted, lambda rng, n: rng.integers(0, 2, size=n)),
    "bounded": _observe(_bounded, lambda rng, n: rng.uniform(0, 1.5, size=n)),
}


def numpyro_model(parts: RandomProgram, is_observed: bool = True) -> Callable[[Any], None]:
    def model(data: Any) -> None:
        x = {
            "a": numpyro.sample("a", dist.Normal(0, 1)),
            "p": numpyro.sample("p", dist.Beta(2, 2)),
            "s": numpyro.sample("s", dist.LogNormal(0, 1)),
            "v": numpyro.sample("v", dist.Normal(0, 1).expand([2]).to_event(1)),
        }
        z = {}
        for name, support in parts.supports.items():
            law = dist.Categorical(logits=jnp.arange(support.num_values) * 0.3 * x["a"])
            if support.num_values == 2:
                law = dist.Bernoulli(x["p"])
            z[name] = numpyro.sample(name, law.expand(support.shape))
        e = Env(x, z, data or {})
        for i, (_, _, term) in parts.terms.items():
            numpyro.factor(f"t{i}", term(e))
        for _, _, observe in parts.observations if is_observed else ():
            law, y = observe(e)
            numpyro.sample("y", law, obs=jnp.asarray(y))

    return model


def build(parts: RandomProgram, is_observed: bool = True) -> Program:
    """The program as sumout has it."""
    if is_numpyro(parts.spec):
        return sumout.program(numpyro_model(parts, is_observed), parts.data)
    return sumout.density(parts.log_density, x=X, z=parts.supports, data=parts.data or None)


# The oracle.


@dataclass(frozen=True)
class Truth:
    """What brute force says, in double precision: at every point for every joint state the log density."""

    states: dict[str, Any]
    points: np.ndarray
    table: np.ndarray  # (points, states), −∞ where z is impossible
    value: np.ndarray
    gradient: np.ndarray  # NaN where it cannot be told
    scale: np.ndarray  # how large the numbers are that a value is computed from

    @property
    def weights(self) -> np.ndarray:
        return np.exp(self.table - self.value[:, None])


def points_for(program: Program, seed: int) -> np.ndarray:
    """Random x; in the last some coordinates are zero, where people start."""
    rng = np.random.default_rng([seed, 3_000_000])
    points = 0.7 * rng.normal(size=(NUM_POINTS, program.num_x))
    points[-1, rng.integers(program.num_x)] = 0.0
    return points


def find_truth(parts: RandomProgram) -> Truth:
    with jax.enable_x64(True):
        program = build(parts)
        states = joint_states(program)
        points = points_for(program, parts.spec.seed)
        of_states = jax.vmap(lambda x, z: program.log_density(x, z, program.data), (None, 0))
        moves = [sign * times * step for step in STEPS for sign in (1, -1) for times in (1, 2)]
        around = points[:, None, None] + np.array(moves)[:, None, None] * np.eye(program.num_x)
        every = np.concatenate([points[:, None], around.reshape(NUM_POINTS, -1, program.num_x)], axis=1)
        tables = np.array(jax.jit(jax.vmap(of_states, (0, None)))(every.reshape(-1, program.num_x), states))
        tables = tables.reshape(NUM_POINTS, -1, tables.shape[-1])
        tables[np.isnan(tables)] = -np.inf
        values = _log_sum(tables)
        gradient = _difference(values[:, 1:].reshape(NUM_POINTS, len(STEPS), 4, program.num_x))
        if OWN_DERIVATIVE & parts.kinds:
            gradient = _mean_gradient(program, points, states, tables[:, 0])
    with np.errstate(invalid="ignore"):
        heavy = np.exp(tables[:, 0] - values[:, :1]) > 1e-9
    scale = 1 + np.max(np.where(heavy, np.abs(tables[:, 0]), 0), axis=1)
    return Truth(states, points, tables[:, 0], values[:, 0], gradient, scale)


def _log_sum(table: np.ndarray) -> np.ndarray:
    highest = table.max(axis=-1)
    safe = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(np.exp(table - safe[..., None]).sum(axis=-1)) + safe


def _difference(values: np.ndarray) -> np.ndarray:
    """Derivatives from the values at +h, +2h, −h, −2h for two h; NaN where these differ."""
    with np.errstate(invalid="ignore"):
        h = np.array(STEPS)[:, None]
        each = (8 * (values[:, :, 0] - values[:, :, 2]) - (values[:, :, 1] - values[:, :, 3])) / (12 * h)
        agree = np.abs(each[:, 0] - each[:, 1]) < 1e-6 * (1 + np.abs(each[:, 1]))
    return np.where(agree, each[:, 0], np.nan)


def gradients_of_states(program: Program) -> Any:
    return jax.vmap(jax.grad(lambda x, z: program.log_density(x, z, program.data)), (None, 0))


def _mean_gradient(program: Program, points: np.ndarray, states: Any, tables: np.ndarray) -> np.ndarray:
    """The average of the program's own gradients; NaN where one that counts is not finite."""
    each = jax.jit(jax.vmap(gradients_of_states(program), (0, None)))(points, states)
    weights = np.exp(tables - _log_sum(tables)[:, None])[..., None]
    return np.where(weights > 0, weights * np.asarray(each), 0.0).sum(axis=1)


# Looking at a program.


@dataclass
class Verdict:
    """What was found: failures (what, and how), notes, and how much was compared."""

    spec: Spec
    failures: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    opaque: tuple[str, ...] = ()
    compared: Counter = field(default_factory=Counter)

    @property
    def what(self) -> set[str]:
        return {what for what, _ in self.failures}


@contextmanager
def unforeseen(verdict: Verdict) -> Iterator[None]:
    """Where the reading had to take a plainer way, that is a failure, too."""
    logger, handler = logging.getLogger("sumout.reading"), logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        verdict.failures.append(("unforeseen", record.getMessage().splitlines()[0][:200]))

    handler.emit = emit
    before = logger.handlers, logger.level
    logger.handlers, logger.level = [handler], logging.DEBUG
    logger.manager._clear_cache()
    try:
        yield
    finally:
        logger.handlers, logger.level = before
        logger.manager._clear_cache()


def examine(spec: Spec, is_double: bool = True, truth: Truth | None = None) -> Verdict:
    """Compare all that sumout says of a program with brute force."""
    parts, verdict = make(spec), Verdict(spec)
    truth = truth or find_truth(make(spec))  # made anew: JAX keeps what a function closes over in one precision
    with jax.enable_x64(is_double), unforeseen(verdict):
        try:
            _Examination(parts, truth, verdict, is_double).run()
        except SumoutError as error:
            verdict.refused = f"{type(error).__name__}: {error}"
        except Exception as error:
            where = [f for f in traceback.extract_tb(error.__traceback__) if "sumout" in f.filename]
            place = f" at {where[-1].filename.split('/')[-1]}:{where[-1].lineno}" if where else ""
            verdict.failures.append(("crash", f"{type(error).__name__}: {str(error)[:150]}{place}"))
    return verdict


class _Examination:
    """One program in one precision."""

    def __init__(self, parts: RandomProgram, truth: Truth, verdict: Verdict, is_double: bool):
        self.parts, self.truth, self.verdict, self.is_double = parts, truth, verdict, is_double
        self.program = build(parts)
        self.tolerance = 1e-8 if is_double else 2e-4
        self.good = [p for p in range(NUM_POINTS) if np.isfinite(truth.value[p])]
        self.states = {n: jnp.asarray(truth.states[n], site.dtype) for n, site in self.program.z.items()}

    def run(self) -> None:
        structure = sumout.read(self.program)
        self.verdict.opaque = structure.opaque
        if not self.good:
            return
        # Tracing and compiling takes the time: beside value and gradient, one thing for each program and precision.
        turn = (self.parts.spec.seed + 2 * self.is_double) % 5
        self.check_sum(make_plan(structure), turn)
        few = len(self.truth.table[0]) <= MOST_TRANSITIONS
        if turn == 2 or (turn == 4 and not few):
            self.check_conditionals(make_plan(structure, dict.fromkeys(self.program.z, "gibbs")))
        elif turn == 3:
            name = sorted(self.program.z)[-1]
            self.check_partial_sum(make_plan(structure, {name: "draw"}), name)
        elif turn == 4:
            self.check_transitions(make_plan(structure, dict.fromkeys(self.program.z, "metropolis")))

    def state(self, number: int) -> dict[str, Any]:
        return {name: values[number] for name, values in self.states.items()}

    def compare(self, what: str, p: int, found: Any, expected: Any, scale: Any = 1.0) -> None:
        """Note where numbers differ; what brute force cannot tell (NaN) is not compared."""
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        counts = ~np.isnan(expected)
        with np.errstate(invalid="ignore"):
            close = np.abs(found - expected) <= self.tolerance * (scale + np.abs(expected))
        close |= found == expected
        self.verdict.compared[what] += int(counts.sum())
        if np.all(close | ~counts):
            return
        if self.is_ill_conditioned(what, p, found, expected):
            self.verdict.compared[f"excused {what}"] += 1
        elif what == "gradient" and self.is_own_gradient(p, found):
            self.verdict.compared["excused own gradient"] += 1
        else:
            shown = f"point {p}: found {np.round(found, 6).tolist()}, should be {np.round(expected, 6).tolist()}"
            self.verdict.failures.append((what, shown[:300]))

    def is_ill_conditioned(self, what: str, p: int, found: np.ndarray, expected: np.ndarray) -> bool:
        """Whether, in single precision, the program in plain JAX is as far off as what was found."""
        if self.is_double or not np.all(np.isfinite(found) | np.isnan(expected)):
            return False
        program, x = self.program, jnp.asarray(self.truth.points[p])
        of_states = jax.vmap(lambda x, z: program.log_density(x, z, program.data), (None, 0))
        table = np.asarray(jax.jit(of_states)(x, self.states), float)
        is_given = what in ("partial", "conditionals", "likelihood")  # where rare values of z count, too
        possible = np.isfinite(self.truth.table[p]) if is_given else self.truth.weights[p] > 1e-12
        with np.errstate(invalid="ignore"):
            off = np.nanmax(np.where(possible, np.abs(table - self.truth.table[p]), 0.0))
            if what == "gradient":
                each = np.asarray(jax.jit(gradients_of_states(program))(x, self.states), float)
                mean = np.where(possible[:, None], self.truth.weights[p][:, None] * each, 0.0).sum(axis=0)
                off = max(off, np.nanmax(np.abs(mean - expected), initial=0.0))
            return bool(np.nanmax(np.abs(found - expected)) <= 20 * off)

    def is_own_gradient(self, p: int, found: np.ndarray) -> bool:
        """Whether the program's own gradients say the same: where two kinks meet, JAX's are not those of the sum.

        So it is with NumPyro's Bernoulli at logits of exactly zero. What is no number at a possible z stays none.
        """
        with jax.enable_x64(True):
            program, truth = build(make(self.parts.spec)), self.truth
            own = _mean_gradient(program, truth.points[p : p + 1], truth.states, truth.table[p : p + 1])[0]
        close = np.abs(found - own) <= self.tolerance * (truth.scale[p] + np.abs(own))
        return bool(np.all(close | (np.isnan(found) & np.isnan(own))))

    def check_sum(self, plan: Plan, turn: int) -> None:
        """Value, gradient and log likelihood; marginals or the most probable z in their turn."""
        truth, program = self.truth, self.program
        z, data = self.state(0), program.data
        likelihood = build_likelihood(plan) if program.log_likelihood_named is not None else None

        def all_at(x: Any) -> Any:
            found = {"value": make_target(plan).value_and_gradient(x, z, data)}
            if turn == 0 and plan.summation is not None:
                found["marginals"] = plan.summation.log_marginals(x, z, data)
            if turn == 1 and plan.summation is not None:
                found["mode"] = plan.summation.most_probable(x, z, data)
            if likelihood is not None and not isinstance(likelihood, str):
                found["likelihood"] = likelihood(x, z, data)
                found["terms"] = jax.vmap(lambda z: program.log_likelihood(x, z, data))(self.states)
            return found

        if not plan.sums_all:
            self.verdict.failures.append(("plan", "not summed out"))
            return
        at = jax.jit(all_at)  # not mapped over the points: that takes longer to trace than it saves
        each = [jax.device_get(at(jnp.asarray(x))) for x in truth.points]
        found = jax.tree.map(lambda *values: np.stack(values), *each)
        without = self.table_without_data() if "likelihood" in found else None
        for p in self.good:
            self.compare("value", p, found["value"][0][p], truth.value[p], truth.scale[p])
            scale = truth.scale[p] + np.nanmax(np.abs(truth.gradient[p]), initial=0)
            self.compare("gradient", p, found["value"][1][p], truth.gradient[p], scale + (10 if self.is_double else 0))
            if "marginals" in found:
                expected = self.marginals(truth.weights[p])
                self.compare("marginals", p, np.exp(found["marginals"][p]), expected, truth.scale[p])
            if "mode" in found:
                mode = {name: values[p : p + 1] for name, values in found["mode"].items()}
                self.compare("mode", p, truth.table[p][self.number(mode)], truth.table[p].max(), truth.scale[p])
            if without is not None:
                expected = _log_likelihoods(np.asarray(found["terms"]["y"][p], float), without[p])
                self.compare("likelihood", p, found["likelihood"]["y"][p], expected, truth.scale[p])

    def number(self, z: dict[str, Any]) -> int:
        _, numbers = state_numbers(self.truth.states)
        wanted, _ = state_numbers({name: np.asarray(z[name]) for name in self.truth.states})
        return numbers.get(wanted[0].tobytes(), 0)

    def marginals(self, weights: np.ndarray) -> np.ndarray:
        """Probabilities of every value of every element; NaN where it has no such value."""
        tables, most = [], max(site.support.num_values for site in self.program.z.values())
        for name, site in self.program.z.items():
            values, allowed = site.support.rows()
            drawn = np.asarray(self.truth.states[name], float).reshape(len(weights), -1)
            for i, (row, ok) in enumerate(zip(values, allowed, strict=True)):
                each = [weights[drawn[:, i] == float(v)].sum() if a else np.nan for v, a in zip(row, ok, strict=True)]
                tables.append([*each, *[np.nan] * (most - len(each))])
        return np.array(tables)

    def table_without_data(self) -> np.ndarray:
        """The log density of everything but the data."""
        with jax.enable_x64(True):
            bare = build(make(self.parts.spec), is_observed=False)  # made anew, as for the truth
            of_states = jax.vmap(lambda x, z: bare.log_density(x, z, bare.data), (None, 0))
            table = np.array(jax.jit(jax.vmap(of_states, (0, None)))(self.truth.points, self.truth.states))
        table[np.isnan(table)] = -np.inf
        return table

    def check_conditionals(self, plan: Plan) -> None:
        """The conditionals of every site, given each of a few possible states."""
        rng, given = np.random.default_rng(self.parts.spec.seed), []
        for p in self.good:
            possible = np.flatnonzero(self.truth.weights[p] > 1e-8)
            given += [(p, s) for s in rng.choice(possible, min(3, len(possible)), replace=False)]
        at = jnp.asarray(self.truth.points[[p for p, _ in given]])
        z = {name: values[np.array([s for _, s in given])] for name, values in self.states.items()}
        tables = jax.jit(jax.vmap(lambda x, z: probabilities(plan, x, z, self.program.data)))(at, z)
        flat, _ = state_numbers(self.truth.states)
        for (p, s), table in zip(given, np.asarray(tables), strict=True):
            expected = []
            for i in range(flat.shape[1]):
                same = (np.delete(flat, i, axis=1) == np.delete(flat[s], i)).all(axis=1)
                logs = np.where(same, self.truth.table[p], -np.inf)
                expected.append(self.marginals(np.exp(logs - _log_sum(logs)))[i])
            self.compare("conditionals", p, table, np.array(expected), self.truth.scale[p])

    def check_partial_sum(self, plan: Plan, name: str) -> None:
        """The log density with all but one site summed out."""
        if plan.summation is None:
            return
        drawn = np.asarray(self.truth.states[name], float).reshape(len(self.truth.table[0]), -1)
        chosen = np.random.default_rng(self.parts.spec.seed).choice(len(drawn), min(4, len(drawn)), replace=False)
        z = {n: values[chosen] for n, values in self.states.items()}
        of_states = jax.vmap(lambda x, z: plan.log_density(x, z, self.program.data), (None, 0))
        found = np.asarray(jax.jit(jax.vmap(of_states, (0, None)))(jnp.asarray(self.truth.points), z))
        for p in self.good:
            for i, s in enumerate(chosen):
                same = (drawn == drawn[s]).all(axis=1)
                expected = _log_sum(np.where(same, self.truth.table[p], -np.inf))
                self.compare("partial", p, found[p, i], expected, self.truth.scale[p] + max(0.0, -expected))

    def check_transitions(self, plan: Plan) -> None:
        """Metropolis: every part of a sweep leaves p(z|x) as it is."""
        p = self.good[0]
        weights = self.truth.weights[p]
        for matrix in transition_matrices(plan, jnp.asarray(self.truth.points[p]), self.states):
            self.compare("transitions", p, weights @ matrix, weights, self.truth.scale[p])


def _log_likelihoods(terms: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Log p(y_i | x, other y) from the terms of the data `(states, data)` and the density of all else `(states,)`."""
    terms = np.where(np.isnan(terms), -np.inf, terms)
    found = []
    for i in range(terms.shape[1]):
        others = without + np.delete(terms, i, axis=1).sum(axis=1)
        total = _log_sum(others)
        found.append(_log_sum(others + terms[:, i]) - total if np.isfinite(total) else np.nan)
    return np.array(found)


# Shrinking.


def shrink(spec: Spec, is_double: bool = True) -> Spec:
    """The same failure in fewer terms and values."""
    wanted = examine(spec, is_double).what
    parts = make(spec)
    spec = replace(spec, kept=tuple(parts.terms))

    def still_fails(smaller: Spec) -> bool:
        try:
            return bool(make(smaller).supports) and bool(examine(smaller, is_double).what & wanted)
        except Exception:
            return False

    for i in parts.terms:
        smaller = replace(spec, kept=tuple(k for k in spec.kept or () if k != i))
        if still_fails(smaller):
            spec = smaller
    for name in make(spec).supports:
        smaller = replace(spec, cut=spec.cut | {name})
        if still_fails(smaller):
            spec = smaller
    return spec


def attack(seeds: range, precisions: tuple[bool, ...] = (True, False)) -> Iterator[tuple[bool, Verdict]]:
    """Examine the programs of many seeds."""
    for seed in seeds:
        spec = Spec(seed)
        parts = make(spec)
        truth = find_truth(parts) if parts.supports else None
        for is_double in precisions if truth is not None else ():
            yield is_double, examine(spec, is_double, truth)


def main(arguments: list[str]) -> None:
    first, *rest = map(int, arguments)
    if not rest:
        print(make(Spec(first)))
        for is_double in (True, False):
            verdict = examine(Spec(first), is_double)
            print("double" if is_double else "single", verdict)
            if verdict.failures:
                print(make(shrink(Spec(first), is_double)))
        return
    start, counts, compared = time.time(), Counter(), Counter()
    for is_double, verdict in attack(range(first, rest[0])):
        counts["double" if is_double else "single"] += 1
        compared.update(verdict.compared)
        counts["refused"] += bool(verdict.refused)
        counts["opaque"] += bool(verdict.opaque)
        if verdict.refused:
            print(verdict.spec.seed, "REFUSED", verdict.refused[:200], flush=True)
        if verdict.failures:
            kinds = make(verdict.spec).kinds
            counts["failed"] += 1
            precision = "double" if is_double else "single"
            print(verdict.spec.seed, precision, verdict.failures[0], sorted(kinds & IMPOSSIBLE), flush=True)
    print(dict(counts), dict(compared), f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
