"""Which of its inputs does each output of a traced function depend on?"""

from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval


def used_inputs(closed: ClosedJaxpr) -> list[list[bool]]:
    """For each output, and for each input, whether the one depends on the other, or may."""
    outputs = range(len(closed.jaxpr.outvars))
    alone = [[j == i for j in outputs] for i in outputs]
    return [list(partial_eval.dce_jaxpr(closed.jaxpr, wanted)[1]) for wanted in alone]
