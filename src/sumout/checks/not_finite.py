"""Where the log density is not finite: everywhere, at some points, or beyond an edge that gradients do not see."""

from collections.abc import Iterator

import numpy as np

from sumout.checks.examination import NUM_POINTS, ROUNDS, Examination, Finding
from sumout.checks.nonfinite_terms import explain_no_start, nonfinite_gradients, nonfinite_terms
from sumout.errors import StartError

FEWEST_NATS = 1000.0  # a log density that tends to −∞ smoothly has fallen this far before it overflows
BISECTIONS = 40
MOST_EDGES = 3  # points beyond an edge to look at


def check_start(exam: Examination) -> Iterator[Finding]:
    """There must be a point from which a chain can start."""
    if not exam.is_sound.any():
        attempts = f"{(ROUNDS + 1) * NUM_POINTS} random points"
        yield Finding(explain_no_start(exam.program, exam.program.log_density, exam.x, exam.z, attempts), StartError)


def check_nan(exam: Examination) -> Iterator[Finding]:
    """NaN at some points: a proposal there is rejected without a reason."""
    if not exam.is_sound.any():
        return
    is_nan = np.isnan(exam.tried) | (exam.tried == np.inf)
    if is_nan.any():
        points, tries = (where[:NUM_POINTS] for where in np.nonzero(is_nan))
        told = nonfinite_terms(
            exam.program, exam.tried_x[points], {n: z[points, tries] for n, z in exam.tried_z.items()}
        )
        yield Finding(
            f"the log density is NaN or infinite at {is_nan.sum()} of {is_nan.size} random points. {' '.join(told)} "
            "Look for a scale that can be negative, a logarithm or root of something negative, 0/0 or an overflow, and "
            "give the variable behind it the support it needs."
        )
    broken = np.isfinite(exam.values) & ~np.isfinite(exam.gradients).all(axis=1)
    if broken.any():
        told = nonfinite_gradients(exam.program, exam.x[broken], {name: z[broken] for name, z in exam.z.items()})
        named = sorted({exam.name(int(i)) for i in np.flatnonzero((~np.isfinite(exam.gradients[broken])).any(axis=0))})
        yield Finding(
            f"the gradient with respect to {', '.join(named[:5])} is not finite at {broken.sum()} of {NUM_POINTS} "
            f"random points where the log density is. {' '.join(told)} A jnp.where by x does not help: the derivative "
            "of the case that is not chosen is computed, too."
        )


def check_edges(exam: Examination) -> Iterator[Finding]:
    """A density that drops to zero discontinuously: the gradient leads chains right to the edge."""
    if not len(exam.anchors) or exam.program.num_x == 0:
        return
    anchor = int(exam.anchors[0])
    for point in np.flatnonzero(exam.values == -np.inf)[:MOST_EDGES]:
        if np.isfinite(exam.evaluate_at(anchor, exam.x[point][None])[0][0]):
            continue  # it is z that is impossible there
        inside, outside = _bisect(exam, anchor, exam.x[point])
        height = exam.evaluate_at(anchor, inside[None])[0][0]
        if exam.values[anchor] - height > FEWEST_NATS:
            continue
        told = ""
        if exam.program.log_terms_named is not None:
            z = {name: value[None] for name, value in exam.at(anchor).items()}
            told = " " + " ".join(nonfinite_terms(exam.program, outside[None], z))
        yield Finding(
            f"the log density drops from {height:.1f} to −∞ discontinuously as "
            f"{', '.join(_movers(exam, anchor, outside))} changes.{told} The support of something seems "
            "to depend on x, and gradients do not see where it ends: give the variable the support that the data leave "
            "it (an interval, a shifted or scaled variable)."
        )
        return


def _bisect(exam: Examination, anchor: int, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last finite point, as far as can be told, on the way from an anchor to a point, and the first beyond."""
    inside = exam.x[anchor]
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        is_finite = np.isfinite(exam.evaluate_at(anchor, (inside + middle * (outside - inside))[None])[0][0])
        low, high = (middle, high) if is_finite else (low, middle)
    return inside + low * (outside - inside), inside + high * (outside - inside)


def _movers(exam: Examination, anchor: int, outside: np.ndarray) -> list[str]:
    """Names of the variables of which one alone leads across the edge; all, where it takes several."""
    alone, start = [], 0
    for name, site in exam.program.x.items():
        x = np.array(exam.x[anchor])
        x[start : start + site.size] = outside[start : start + site.size]
        start += site.size
        if not np.isfinite(exam.evaluate_at(anchor, x[None])[0][0]):
            alone.append(f"'{name}'")
    return alone or [f"'{name}'" for name in exam.program.x][:5]
