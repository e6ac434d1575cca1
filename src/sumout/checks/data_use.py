"""Checks of data: is anything observed, and does the density depend on all that the model was given?"""

from collections.abc import Iterator

import jax

from sumout.checks.examination import Examination, Finding
from sumout.jaxpr.equations import used_inputs
from sumout.model.program import Program


def check_observed(exam: Examination) -> Iterator[Finding]:
    """A model without observations was most often meant to have some."""
    program = exam.program.source or exam.program
    if program.observed or program.log_terms_named is None:
        return
    terms = jax.eval_shape(program.log_terms, *program.abstract_arguments())
    if set(terms) <= {*program.x, *program.z}:
        yield Finding(
            f"nothing is observed in '{program.name}', and it has no factor: the draws will be from its prior. Give "
            "the data to the site that they come from (obs=… in NumPyro, observed=… in PyMC)."
        )


def check_arguments(exam: Examination) -> Iterator[Finding]:
    """An argument that the density does not depend on was most often forgotten, or another one used in its place."""
    program = exam.program.source or exam.program
    unused = _unused(program)
    of_one = {name.partition(".")[0] for name in unused}  # the argument that the data are of
    unused += [name for name in program.unread if name not in of_one]
    if unused:
        named = ", ".join(f"'{name}'" for name in unused)
        yield Finding(
            f"the model was given {named}, on {'whose values' if len(unused) == 1 else 'the values of which'} nothing "
            "depends: neither the density nor a deterministic. Use it where it was meant to be used, or leave it out."
        )


def _unused(program: Program) -> list[str]:
    """Names of data, of those that may be told by their names, that appear in nothing that is computed."""
    if not isinstance(program.data, dict) or not program.data or program.arguments_as_data is None:
        return []
    outputs = [program.log_density, program.constrain]
    x, z, data = program.abstract_arguments()
    names = sorted(data)
    left = {name for name in names if name not in program.by_value}
    if program.forward:
        key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
        outputs.append(lambda *given: program.draw_forward(jax.numpy.zeros(key.shape, key.dtype), *given))
    for output in outputs:
        if not left:
            break
        used = used_inputs(jax.make_jaxpr(output)(x, z, data))
        first = len(jax.tree.leaves((x, z)))
        left -= {name for i, name in enumerate(names) if any(of_one[first + i] for of_one in used)}
    return [name for name in names if name in left]
