"""`sumout.explain`: the plan in plain words."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from sumout.calls import html_of, public
from sumout.kernels.kernel import Kernel
from sumout.kernels.registry import find_kernel, suit_kernel
from sumout.model.front_ends import program as make_program
from sumout.model.program import Program
from sumout.plan.plan import METHODS, Plan, plan_for
from sumout.structure.graph import Shape, component_shapes
from sumout.structure.structure import Structure

PLURALS = {"path": "paths", "tree": "trees", "ring": "rings", "clique": "cliques", "network": "networks"}
SHAPES = {
    "isolated": "on their own: no factor joins them to another site",
    "path": "each site shares a factor with the one before and the one after",
    "tree": "joined without loops",
    "ring": "joined in a closed chain",
    "clique": "every site shares a factor with every other",
    "network": "joined with loops",
}


class Explanation(str):
    """A text that also shows itself as such at the prompt, and in a notebook with the structure drawn.

    Attributes:
        plan: what is explained.
    """

    plan: Plan

    def __new__(cls, text: str, plan: Plan) -> "Explanation":
        """A text about a plan."""
        made = super().__new__(cls, text)
        made.plan = plan
        return made

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:  # copies, and what is sent elsewhere, are plain texts
        return str, (str(self),)

    def _repr_html_(self) -> str:
        return html_of(self)


@public
def explain(
    program: Program | Any,
    *args: Any,
    plan: Mapping[str, str] | None = None,
    kernel: Kernel | str | None = None,
    **kwargs: Any,
) -> Explanation:
    """Say in plain words what the discrete sites are, how they depend on each other, and what will be done with them.

    Args:
        program: a Program, a PyMC model, or a NumPyro model followed by its arguments.
        *args: arguments of the NumPyro model.
        plan: as for `sumout.sample`.
        kernel: as for `sumout.sample`.
        **kwargs: keyword arguments of the NumPyro model.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
        >>> print(sumout.explain(mixture, np.zeros(100)))
        mixture: 2 continuous coordinates (mu), 100 discrete sites (z).
        <BLANKLINE>
        z: 100 sites with values {0, 1}
          summed out exactly, then drawn exactly for each draw of x (a table of 2 values for each site)
        <BLANKLINE>
        How they depend on each other: 100 sites on their own: no factor joins them to another site.
        0 pairs of neighbours, 1 colour; read off 2 arrays of factors with 200 elements that depend on z.
        <BLANKLINE>
        Work: one sum over z fills 600 entries of tables; to draw the same sites once would fill 600.
        <BLANKLINE>
        Kernel: HMC(step_size=None, num_leapfrog=None, jitter=0.5, target_acceptance=0.9, dense=False)
    """
    made = program if isinstance(program, Program) else make_program(program, *args, **kwargs)
    planned = plan_for(made, suit_kernel(kernel, made, plan))
    return describe(planned, find_kernel(kernel, planned))


def describe(plan: Plan, kernel: Kernel | str) -> Explanation:
    """The text for a plan and a kernel, or what is known of the kernel in words."""
    structure = plan.structure
    program = structure.program
    paragraphs = [_headline(program)]
    for name, choices in plan.choices.items():
        site = program.z[name]
        lines = [f"{name}: {_count(site.num_elements, 'site')} with values {site.support}"]
        for choice in choices:
            number = f"{choice.num_sites} of them " if len(choices) > 1 else ""
            lines.append(f"  {number}{METHODS[choice.method]} ({choice.reason})")
        paragraphs.append("\n".join(lines))
    paragraphs += filter(None, (move.describe() for move in plan.moves))
    if program.z:
        paragraphs.append(_structure(structure))
    if plan.summation is not None:
        paragraphs.append(
            f"Work: one sum over z fills {plan.summing:,.0f} entries of tables; to draw the same sites once would fill "
            f"{plan.drawing:,.0f}."
        )
    if structure.opaque:
        paragraphs.append(
            f"The reading cannot see into: {', '.join(structure.opaque)}. What passes through counts as depending on "
            "everything that goes in."
        )
    if program.fixed:
        paragraphs.append(
            f"Used by value inside the model, so kept as constants in compiled code: {', '.join(program.fixed)}."
        )
    paragraphs += program.notes
    paragraphs.append(f"Kernel: {kernel}")
    return Explanation("\n\n".join(paragraphs), plan)


def _headline(program: Program) -> str:
    return (
        f"{program.name}: {_count(program.num_x, 'continuous coordinate')} ({', '.join(program.x) or 'none'}), "
        f"{_count(program.num_z, 'discrete site')} ({', '.join(program.z) or 'none'})."
    )


def _structure(structure: Structure) -> str:
    counted = Counter(component_shapes(structure.graph))
    parts = [_shape(shape, number) for shape, number in sorted(counted.items(), key=lambda item: -item[1])[:4]]
    if len(counted) > len(parts):
        parts.append(f"{len(counted) - len(parts)} more kinds of groups")
    depending = int((np.diff(structure.scopes.indptr) > 0).sum())
    return (
        f"How they depend on each other: {'; '.join(parts)}.\n"
        f"{_count(structure.num_edges, 'pair')} of neighbours, {_count(structure.num_colours, 'colour')}; read off "
        f"{_count(len(structure.factor_shapes), 'array')} of factors with {depending} elements that depend on z."
    )


def _shape(shape: Shape, number: int) -> str:
    if shape.kind == "isolated":
        return f"{_count(number, 'site')} {SHAPES['isolated']}"
    kind = shape.kind if number == 1 else PLURALS[shape.kind]
    return f"{number} {kind} of {shape.size} sites ({SHAPES[shape.kind]})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
