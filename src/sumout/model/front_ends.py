"""From whatever users have to a `Program`: each front end is one adapter, found by what it is given.

A front end is imported when a model of its kind comes along, never before. A PyMC model can only exist where PyMC has
been imported, so that looking among the imported modules is enough to recognise one.
"""

import sys
from typing import Any

from sumout.calls import public
from sumout.errors import OptionError
from sumout.model.numpyro import program as numpyro_program
from sumout.model.program import Program


@public
def program(model: Any = None, *args: Any, **kwargs: Any) -> Program:
    """Make a program from an unmodified NumPyro model and its arguments, or from a PyMC model.

    Args:
        model: a NumPyro model or a PyMC model with at least one discrete latent site; inside `with pm.Model():` it can
            be left out.
        *args: arguments of the NumPyro model; arrays among them become data. A PyMC model holds its own data, as they
            are when the program is made.
        **kwargs: keyword arguments of the model, likewise.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
        >>> program = sumout.program(mixture, jnp.array([-1.0, 0.9, 1.1]))
        >>> list(program.x), list(program.z)
        (['mu'], ['z'])
    """
    if model is None:
        model = _model_in_context()
    if isinstance(model, Program) and not args and not kwargs:
        return model
    if not is_pymc(model):
        return numpyro_program(model, *args, **kwargs)  # pyright: ignore[reportArgumentType]
    if args or kwargs:
        raise OptionError("program: a PyMC model takes no arguments; its data are in it (pm.Data, pm.set_data).")
    from sumout.model.pymc import kept_program

    return kept_program(model)  # pyright: ignore[reportArgumentType]


def as_program(model: Any) -> Any:
    """The program of a PyMC model, or of the one in whose context this is called; anything else as it is."""
    return program(model) if model is None or is_pymc(model) else model


def is_pymc(model: Any) -> bool:
    """Whether this is a model of PyMC's."""
    pymc = sys.modules.get("pymc")
    return pymc is not None and isinstance(model, pymc.Model)


def _model_in_context() -> Any:
    pymc = sys.modules.get("pymc")
    model = None if pymc is None else pymc.Model.get_context(error_if_none=False)
    if model is None:
        raise OptionError(
            "no model was given: pass a Program, a NumPyro model or a PyMC model, or call this inside `with model:` of "
            "a PyMC model."
        )
    return model
