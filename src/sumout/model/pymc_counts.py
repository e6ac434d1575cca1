"""What is known of a PyMC model's laws for sums over counts that are cut.

A PyMC law is named here as NumPyro's, of which `count_laws.py` knows tails and suprema; densities are PyMC's own. Laws
made of others are followed down to these:

    mixtures, zero inflation, hurdles    P(n > U) = Σ_k w_k P_k(n > U)
    truncation                           ratios p(k + 1) / p(k) are those of the law that is truncated
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pymc as pm
import pytensor.tensor as pt
from jaxtyping import Array
from pymc.distributions.censored import CensoredRV
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import _BaseMixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic as laws

from sumout.model.count_laws import largest_ratio, log_geometric_tail, log_supremum, log_tail
from sumout.model.program import CountTerms
from sumout.model.pymc_data import Inputs, by_values
from sumout.model.pymc_graphs import Function, make_function
from sumout.model.pymc_supports import (
    base_of_truncated,
    ends,
    inner_of_custom,
    is_discrete,
    is_one_of_many,
    parameters_of,
)

Named = dict[str, Any]
Values = Callable[[Named, Named], Named]

# NumPyro's law by PyMC's parameters. PyMC's geometric law begins at 1, NumPyro's at 0.
NUMPYRO_LAWS: dict[type, Callable[..., Any]] = {
    laws.PoissonRV: dist.Poisson,
    laws.NegBinomialRV: lambda n, p: dist.GammaPoisson(n, p / (1 - p)),
    laws.GeometricRV: dist.GeometricProbs,
    laws.BinomialRV: lambda n, p: dist.BinomialProbs(p, n),
    laws.BetaBinomialRV: lambda n, a, b: dist.BetaBinomial(a, b, n),
    DiscreteUniformRV: dist.DiscreteUniform,
    DiracDeltaRV: lambda value: dist.DiscreteUniform(value, value),
    laws.NormalRV: dist.Normal,
    laws.StudentTRV: dist.StudentT,
    laws.CauchyRV: dist.Cauchy,
    laws.LaplaceRV: dist.Laplace,
    laws.LogisticRV: dist.Logistic,
    laws.GumbelRV: dist.Gumbel,
    laws.VonMisesRV: dist.VonMises,
    laws.LogNormalRV: dist.LogNormal,
    laws.ExponentialRV: lambda scale: dist.Exponential(1 / scale),
    laws.GammaRV: lambda shape, scale: dist.Gamma(shape, 1 / scale),
    laws.MvNormalRV: lambda mu, cov, *_: dist.MultivariateNormal(mu, cov),
}
FIRST_VALUE = {laws.GeometricRV: 1}  # that stands for NumPyro's 0


@dataclass(frozen=True, eq=False)
class Known:
    """Something computed from graphs of a model.

    Attributes:
        graphs: of random variables and of a value.
        compute: `(value, *arrays) -> array`, the arrays being those of the graphs at that value.
        parameters: which of the graphs it follows from, where it is monotone in each alone; None where it is not.
    """

    graphs: Sequence[Variable]
    compute: Callable[..., Any]
    parameters: tuple[int, ...] | None = None


class PyMCCounts:
    """`CountTerms` of a PyMC model: `(x, z, data, upper)`, all by name.

    Args:
        model: the model; not kept.
        inputs: what its graphs are functions of.
        values: of x and z the value variables, by the names of their latents.
        counts: names of the unbounded counts that are part of the density.
        laws_of: the variables that have a term in the density, by name.
        log_terms: `(x, z, data) -> the terms`, by name, in the coordinates of the user.
    """

    def __init__(
        self,
        model: pm.Model,
        inputs: Inputs,
        values: Values,
        counts: Sequence[str],
        laws_of: dict[str, Variable],
        log_terms: Callable[..., Named],
    ):
        self._inputs, self._values, self._log_terms = inputs, values, log_terms
        continuous = [rv for name, rv in laws_of.items() if rv in model.free_RVs and not is_discrete(rv)]
        self._uppers = {name: pt.TensorType("int64", shape=(None,) * laws_of[name].ndim)() for name in counts}  # pyright: ignore[reportAttributeAccessIssue]
        known = {f"tail of {name}": _tail(laws_of[name], self._uppers[name]) for name in counts}
        known |= {f"supremum of {name}": _supremum(rv) for name, rv in laws_of.items()}
        known |= {f"value of {rv.name}": Known([rv], lambda value, array: array) for rv in continuous}
        self._known = {name: one for name, one in known.items() if one is not None}
        graphs = [pt.as_tensor(graph) for one in self._known.values() for graph in one.graphs]
        self._placed = inputs.place(by_values(model, graphs))

    @cached_property
    def _function(self) -> Function:
        return make_function([*self._uppers.values(), *self._inputs.variables], self._placed)

    def __call__(self, x: Named, z: Named, data: Named, upper: Named) -> CountTerms:
        """What is known at a point."""
        uppers = [jnp.asarray(upper[name]) for name in self._uppers]
        arrays = iter(self._function(*uppers, *self._inputs.arguments(self._values(x, z), data)))
        found, parameters = {}, {}
        for label, known in self._known.items():
            name, given = label.removeprefix("tail of "), [next(arrays) for _ in known.graphs]
            found[label] = known.compute(upper.get(name), *given)
            if known.parameters is not None:
                parameters[name] = tuple(given[i] for i in known.parameters)
        terms = self._log_terms(x, z, data)
        suprema = {
            name: jnp.broadcast_to(bound, terms[name].shape) for name, bound in _labelled(found, "supremum of ").items()
        }
        return CountTerms(terms, suprema, _labelled(found, "tail of "), _labelled(found, "value of "), parameters)


def _labelled(found: dict[str, Array | None], label: str) -> dict[str, Array]:
    named = {name.removeprefix(label): array for name, array in found.items() if name.startswith(label)}
    return {name: array for name, array in named.items() if array is not None}


def _law(rv: Variable) -> Callable[..., Any] | None:
    return NUMPYRO_LAWS.get(type(rv.owner.op))  # pyright: ignore[reportOptionalMemberAccess]


def _tail(rv: Variable, upper: Any) -> Known | None:
    """An upper bound on log P(n > upper)."""
    node: Any = rv.owner
    if isinstance(node.op, CustomSymbolicDistRV):
        return _tail(inner_of_custom(node), upper)
    if isinstance(node.op, _BaseMixtureRV):
        return _tail_of_mixture(rv, upper)
    law = _law(rv)
    if law is not None:
        first = FIRST_VALUE.get(type(node.op), 0)
        graphs = parameters_of(node)
        of_all = tuple(range(len(graphs)))
        return Known(graphs, lambda upper, *parameters: log_tail(law(*parameters), upper - first), of_all)
    return _tail_of_truncated(rv, upper) if isinstance(node.op, TruncatedRV) else None


def _tail_of_truncated(rv: Variable, upper: Any) -> Known | None:
    """Ratios do not change by truncation, and PyMC knows the density."""
    base = base_of_truncated(rv.owner)
    law, first = _law(base), FIRST_VALUE.get(type(base.owner.op), 0)  # pyright: ignore[reportOptionalMemberAccess]
    if law is None:
        return None

    def compute(upper: Array, log_first: Array, *parameters: Array) -> Any:
        ratio = largest_ratio(law(*parameters))
        return None if ratio is None else log_geometric_tail(log_first, ratio(upper + 1.0 - first))

    graphs = [pm.logp(rv, upper + 1), *parameters_of(base.owner)]
    return Known(graphs, compute, tuple(range(1, len(graphs))))


def _tail_of_mixture(rv: Variable, upper: Any) -> Known | None:
    """Of a single component, which has one law for each weight along its last axis, or of several."""
    weights, *components = rv.owner.inputs[1:]  # pyright: ignore[reportOptionalMemberAccess]
    is_single = len(components) == 1
    tails = [_tail(component, upper[..., None] if is_single else upper) for component in components]
    known = [tail for tail in tails if tail is not None]
    if len(known) < len(tails):
        return None

    def compute(upper: Array, weights: Array, *arrays: Array) -> Any:
        rest = iter(arrays)
        at = upper[..., None] if is_single else upper
        each = [tail.compute(at, *[next(rest) for _ in tail.graphs]) for tail in known]
        if any(one is None for one in each):
            return None
        stacked = each[0] if is_single else jnp.stack(each, axis=-1)
        return jax.nn.logsumexp(jnp.log(weights) + stacked, axis=-1)

    graphs, parameters = [weights], [0]
    for tail in known:
        parameters += [len(graphs) + i for i in tail.parameters or ()]
        graphs += tail.graphs
    is_monotone = not is_single and all(tail.parameters is not None for tail in known)
    return Known(graphs, compute, tuple(parameters) if is_monotone else None)


def _supremum(rv: Variable) -> Known | None:
    """An upper bound on the log density of each element, whatever the values of what it does not name."""
    node: Any = rv.owner
    if is_discrete(rv):
        return Known([], lambda value: jnp.zeros(())) if _is_known(rv) else None
    if isinstance(node.op, CensoredRV):
        inside = _supremum_at(node.inputs[0], rv)
        if inside is None:
            return None
        # At the ends a probability takes the place of the density.
        return Known(inside.graphs, lambda value, *arrays: _at_least_zero(inside.compute(value, *arrays)))
    return _supremum_at(rv, rv)


def _supremum_at(law_of: Variable, rv: Variable) -> Known | None:
    law = _law(law_of)
    if law is None:
        return None
    parameters = parameters_of(law_of.owner)
    return Known([rv, *parameters], lambda _, value, *parameters: log_supremum(law(*parameters), value))


def _at_least_zero(bound: Array | None) -> Array | None:
    return None if bound is None else jnp.maximum(bound, 0.0)


def _is_known(rv: Variable) -> bool:
    """Whether a discrete law is one whose probabilities are known to be at most one."""
    if is_one_of_many(rv):
        return True
    try:
        ends(rv)
    except KeyError:
        return False
    return True
