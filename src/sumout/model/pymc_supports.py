"""Which values the discrete laws of PyMC allow: the lowest and the highest, as PyTensor graphs.

Between the two lie the whole numbers. A value between them that a law rules out (a hurdle, a gap in a mixture, a count
above another latent) has probability zero, which is the density's business. Laws made of others are followed down to
these: mixtures, hurdles and zero inflation, truncation, censoring, and custom laws given as a graph of others.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.discrete import DiscreteUniformRV, DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.distributions.simulator import SimulatorRV
from pymc.distributions.truncated import TruncatedRV
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random import basic as laws
from pytensor.tensor.random.op import RandomVariable

from sumout.errors import ModelError

Ends = tuple[Any, Any]
MARKOV_CHAIN = "DiscreteMarkovChainRV"  # of pymc_extras, which need not be installed
ONE_OF_MANY = (laws.MultinomialRV, DirichletMultinomialRV)


def law_of(rv: Variable) -> str:
    """The name of a variable's law."""
    op: Any = rv.owner.op  # pyright: ignore[reportOptionalMemberAccess]
    return (getattr(op, "_print_name", None) or (type(op).__name__.removesuffix("RV"),))[0]


def is_discrete(rv: Variable) -> bool:
    """Whether a variable takes whole numbers only. What is censored or truncated may do so as floats."""
    op: Any = rv.owner.op  # pyright: ignore[reportOptionalMemberAccess]
    if isinstance(op, CensoredRV):
        return is_discrete(rv.owner.inputs[0])  # pyright: ignore[reportOptionalMemberAccess]
    if isinstance(op, TruncatedRV):
        return is_discrete(base_of_truncated(rv.owner))
    return np.dtype(rv.type.dtype).kind in "biu"  # pyright: ignore[reportAttributeAccessIssue]


def is_dirac(rv: Variable) -> bool:
    """Whether a variable can take one value only."""
    return isinstance(rv.owner.op, DiracDeltaRV)  # pyright: ignore[reportOptionalMemberAccess]


def is_one_of_many(rv: Variable) -> bool:
    """Whether a variable is a vector of counts."""
    return isinstance(rv.owner.op, ONE_OF_MANY)  # pyright: ignore[reportOptionalMemberAccess]


def index_name(rv: Any) -> str:
    """Name of the discrete site that is the index of the one in a vector."""
    return f"{rv.name}_index"


def is_site(variable: Variable) -> bool:
    """Whether a variable is a discrete site as it is."""
    is_law = variable.owner is not None and hasattr(variable.owner.op, "ndim_supp")
    return is_law and is_discrete(variable) and not is_dirac(variable) and not is_one_of_many(variable)


def num_trials(rv: Variable) -> Variable:
    """Of a vector of counts, their sum."""
    node: Any = rv.owner
    return node.inputs[2] if isinstance(node.op, DirichletMultinomialRV) else node.op.dist_params(node)[0]


def refuse_law(name: str, rv: Variable, is_latent: bool) -> None:
    """Refuse laws that have no density, and latents whose law is neither discrete nor continuous."""
    node: Any = rv.owner
    if isinstance(node.op, SimulatorRV):
        raise ModelError(
            f"'{name}' is a pm.Simulator: it has no log density, only draws. Use pm.sample_smc, or write its law down."
        )
    if is_discrete(rv) or not is_latent:
        return
    is_censored = isinstance(node.op, CensoredRV)
    has_atom = isinstance(node.op, _BaseMixtureRV) and any(is_dirac(part) for part in node.inputs[2:])
    if is_censored or has_atom:
        raise ModelError(
            f"latent '{name}' ({law_of(rv)}) is continuous but has values of positive probability, so that it has no "
            "density on the real line. Make the choice between the two a Bernoulli latent of its own, or censor a "
            "deterministic copy of the latent."
        )


def ends(rv: Variable) -> Ends:
    """The lowest and the highest value, −∞ or ∞ where there is none; KeyError with the name of a law not known here."""
    node: Any = rv.owner
    if node is None:
        return rv, rv
    if type(node.op).__name__ == MARKOV_CHAIN:
        return 0, node.inputs[0].shape[-1] - 1
    for kind, rule in RULES.items():
        if isinstance(node.op, kind):
            return rule(node)
    if isinstance(node.op, Elemwise):
        rule = ARITHMETIC.get(type(node.op.scalar_op))
        if rule is not None:
            return rule(*map(ends, node.inputs))
    if isinstance(node.op, RandomVariable) or hasattr(node.op, "extended_signature") or _is_random(rv):
        raise KeyError(law_of(rv))
    return rv, rv


def _is_random(variable: Variable) -> bool:
    return any(v.owner is not None and isinstance(v.owner.op, RandomVariable) for v in ancestors([variable]))


def parameters_of(node: Any) -> Any:
    """The graphs of the parameters of a law."""
    return node.op.dist_params(node)


def _from(lowest: int) -> Callable[[Apply], Ends]:
    return lambda node: (lowest, np.inf)


def _highest(parameter: Variable) -> Any:
    """The highest value of a parameter: where it is a discrete latent, that of its law."""
    try:
        return ends(parameter)[1]
    except KeyError:
        return parameter


def _up_to_trials(node: Apply) -> Ends:
    return 0, _highest(parameters_of(node)[0])


def _uniform(node: Apply) -> Ends:
    lower, upper = parameters_of(node)
    try:
        return ends(lower)[0], _highest(upper)
    except KeyError:
        return lower, _highest(upper)


def _categories(node: Apply) -> Ends:
    return 0, parameters_of(node)[0].shape[-1] - 1


def _drawn_from_urn(node: Apply) -> Ends:
    good, bad, drawn = parameters_of(node)
    return pt.maximum(0, drawn - bad), pt.minimum(good, drawn)


def base_of_truncated(node: Any) -> Variable:
    """The law that is truncated."""
    return node.op.base_rv_op.make_node(*node.inputs[:-2]).default_output()


def _truncated(node: Any) -> Ends:
    lower, upper = node.inputs[-2:]
    lowest, highest = ends(base_of_truncated(node))
    return pt.maximum(lowest, pt.ceil(lower)), pt.minimum(highest, pt.floor(upper))


def _censored(node: Apply) -> Ends:
    inside, lower, upper = node.inputs
    lowest, highest = ends(inside)
    return pt.clip(lowest, lower, upper), pt.clip(highest, lower, upper)


def _mixture(node: Apply) -> Ends:
    """From the lowest of all components to the highest; a single one has its components along the last axis."""
    both = [ends(component) for component in node.inputs[2:]]
    if len(both) == 1:
        lower, upper = map(pt.as_tensor, both[0])
        return lower.min(axis=-1) if lower.ndim else lower, upper.max(axis=-1) if upper.ndim else upper
    lower, upper = both[0]
    for other_lower, other_upper in both[1:]:
        lower, upper = pt.minimum(lower, other_lower), pt.maximum(upper, other_upper)
    return lower, upper


def inner_of_custom(node: Any) -> Variable:
    """What a custom law is made of."""
    inner = node.op.fgraph
    given = dict(zip(inner.inputs, node.inputs, strict=True))
    # Other than clone_replace it keeps what it puts in, so that the model's own variables are known again.
    return graph_replace([inner.outputs[node.op.default_output or 0]], given, strict=False)[0]


def _custom(node: Any) -> Ends:
    return ends(inner_of_custom(node))


RULES: dict[type, Callable[[Any], Ends]] = {
    laws.BernoulliRV: lambda node: (0, 1),
    laws.BinomialRV: _up_to_trials,
    laws.BetaBinomialRV: _up_to_trials,
    laws.CategoricalRV: _categories,
    laws.PoissonRV: _from(0),
    laws.NegBinomialRV: _from(0),
    laws.GeometricRV: _from(1),
    laws.HyperGeometricRV: _drawn_from_urn,
    DiscreteUniformRV: _uniform,
    DiscreteWeibullRV: _from(0),
    DiracDeltaRV: lambda node: (node.inputs[-1], node.inputs[-1]),
    TruncatedRV: _truncated,
    CensoredRV: _censored,
    _BaseMixtureRV: _mixture,
    CustomSymbolicDistRV: _custom,
}
ARITHMETIC: dict[type, Callable[..., Ends]] = {
    ps.Add: lambda *parts: (sum(low for low, _ in parts), sum(high for _, high in parts)),
    ps.Sub: lambda one, other: (one[0] - other[1], one[1] - other[0]),
    ps.Neg: lambda one: (-one[1], -one[0]),
    ps.Cast: lambda one: one,
    ps.Floor: lambda one: (pt.floor(one[0]), pt.floor(one[1])),
    ps.Ceil: lambda one: (pt.ceil(one[0]), pt.ceil(one[1])),
    ps.Maximum: lambda one, other: (pt.maximum(one[0], other[0]), pt.maximum(one[1], other[1])),
    ps.Minimum: lambda one, other: (pt.minimum(one[0], other[0]), pt.minimum(one[1], other[1])),
    ps.Clip: lambda one, lower, upper: (pt.clip(one[0], lower[0], upper[0]), pt.clip(one[1], lower[1], upper[1])),
}
