"""`sumout.predict`: data replicated from the posterior or the prior, or predicted for new rows."""

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sumout.calls import public
from sumout.errors import ModelError, ModelWarning, OptionError
from sumout.model.front_ends import as_program
from sumout.model.initial_values import any_z
from sumout.model.prediction import Prediction, Request
from sumout.model.program import Program
from sumout.plan.plan import plan_for
from sumout.randomness import Key, as_seed, fold_in, new_key
from sumout.results.data_tree import build_tree
from sumout.threads import attentive_jit

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

PRIOR_DRAWS = 1000
RECOVERING = 2**20  # purpose of keys, beside the numbers of chains


@public
def predict(
    program: Program | Any,
    result: "xr.DataTree | None" = None,
    *,
    data: Mapping[str, Any] | None = None,
    redraw: Sequence[str] | None = None,
    var_names: Sequence[str] | None = None,
    draws: int | None = None,
    seed: Any = 0,
) -> "xr.DataTree":
    """Draw data from the posterior predictive distribution, or without a result from the prior predictive one.

    For the data that the program was made of, x and z are those of the posterior. For new data the latents that belong
    to rows of data are drawn anew, from their laws given all else; z and x that belong to no row (coefficients, which
    of them count, a time of change) are those of the posterior.

    Args:
        program: the one that was sampled from, made by `sumout.program`, or the PyMC model.
        result: from `sumout.sample`; None for draws from the prior.
        data: new data by the names of the model's arguments (of PyMC: of its `pm.Data`); others stay as they were. Of
            what is observed in the model only the shape counts.
        redraw: names of the latents to draw anew; None for those that belong to new rows. An empty list keeps all, as
            for the same rows with another covariate.
        var_names: sites and deterministics to return; by default all that are observed.
        draws: of each chain, evenly spaced; None for all (from the prior: 1000 draws).
        seed: the same seed gives the same draws.

    Returns:
        The result with the group `posterior_predictive`; with new data that group alone, as the data of the result are
        of other rows. Its `attrs["redrawn"]` lists what was drawn anew, which is in the group, too. Without a result
        the groups `prior` and `prior_predictive`, beside `observed_data`.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> program = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
        >>> result = sumout.sample(program, draws=50, tune=50, chains=2)
        >>> dict(sumout.predict(program, result).posterior_predictive.y.sizes)
        {'chain': 2, 'draw': 50, 'points': 3}
        >>> new = sumout.predict(program, result, data={"y": np.zeros(7)}).posterior_predictive
        >>> dict(new.y.sizes), new.attrs["redrawn"]
        ({'chain': 2, 'draw': 50, 'points': 7}, ['z'])
    """
    program, seed = as_program(program), as_seed(seed)
    _check(program, result, data, draws, seed)
    chosen = np.zeros(0, int) if result is None else _spaced(result["posterior"].sizes["draw"], draws)
    latents = {} if result is None else _latents(program, result, chosen, new_key(seed))
    shape = (1, draws or PRIOR_DRAWS) if result is None else (result["posterior"].sizes["chain"], len(chosen))
    keys = np.stack([fold_in(fold_in(new_key(seed), chain), np.arange(shape[1])) for chain in range(shape[0])])
    request = Request(keys, latents, dict(data or {}), redraw, var_names)
    assert program.predictor is not None
    made = program.predictor(request)
    for words in made.warnings:
        warnings.warn(words, ModelWarning, stacklevel=3)
    return _as_tree(program, result, made, is_new=bool(data), chosen=chosen)


def _as_tree(program: Program, result: Any, made: Prediction, *, is_new: bool, chosen: Any) -> "xr.DataTree":
    """The groups, beside those of the result where they are of the same data."""
    name = "prior_predictive" if result is None else "posterior_predictive"
    groups = {name: {**made.values, **({} if result is None else made.latents)}}
    if result is None:
        groups["prior"] = made.latents
    observed = program.observed if result is None and not is_new else {}
    dims = {variable: list(of_it) for variable, of_it in made.dims.items()}
    tree = build_tree(groups, {}, observed, constant={}, coords=made.coords, dims=dims, coordinates=[], attrs={})
    tree[name].attrs["redrawn"] = [] if result is None else list(made.latents)
    if result is None:
        return tree
    labels = result["posterior"].coords
    numbers = {axis: labels[axis].values for axis in ("chain", "draw") if axis in labels}
    if "draw" in numbers:
        numbers["draw"] = numbers["draw"][chosen]
    tree[name].dataset = tree[name].to_dataset().assign_coords(numbers)
    if is_new:
        return tree
    whole = result.copy()
    whole[name] = tree[name]
    return whole


def _check(program: Any, result: Any, data: Any, draws: Any, seed: Any) -> None:
    if not isinstance(program, Program):
        raise OptionError(
            f"predict: expected a Program, got {type(program).__name__}; make one with sumout.program(model, *args)."
        )
    if program.few is not None:
        program.refuse_on_disk()
    if program.predictor is None:
        raise ModelError(
            f"predict: '{program.name}' is a log density, which does not say by what laws data are drawn. Write the "
            "model for NumPyro or PyMC, or draw data yourself from result.posterior."
        )
    if result is not None and "posterior" not in getattr(result, "children", ()):
        raise OptionError(f"predict: expected a result of sumout.sample, got {type(result).__name__}.")
    if data is not None and not isinstance(data, Mapping):
        raise OptionError(
            f"predict: data should be a dict from names of the model's arguments to new values, got "
            f"{type(data).__name__}."
        )
    for name, value, least in (("draws", 1 if draws is None else draws, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise OptionError(f"predict: {name}={value!r} must be a whole number of at least {least}.")


def _spaced(num: int, wanted: int | None) -> np.ndarray:
    """Numbers of draws, evenly spaced."""
    return np.arange(num) if wanted is None or wanted >= num else np.linspace(0, num - 1, wanted).round().astype(int)


def _latents(program: Program, result: Any, chosen: Any, key: Key) -> dict[str, np.ndarray]:
    """Draws of all that the program has and the posterior knows; of z that was not kept from its exact conditional."""
    posterior = result["posterior"]
    missing = [name for name in (*program.x, *program.z) if name not in posterior]
    if any(name in program.x for name in missing) or (missing and "unconstrained_posterior" not in result.children):
        raise OptionError(f"predict: the result has no '{missing[0]}'; was it another program that was sampled from?")
    known = {str(name): np.asarray(values.values)[:, chosen] for name, values in posterior.data_vars.items()}
    # Large sites are recorded in small types, which would overflow in the model's arithmetic.
    known |= {name: known[name].astype(site.dtype, copy=False) for name, site in program.z.items() if name in known}
    return {**known, **(_recovered(program, result, chosen, key) if missing else {})}


def _recovered(program: Program, result: Any, chosen: Any, key: Key) -> dict[str, np.ndarray]:
    """Draws of z given those of x, for results without z; all of it must be summed out."""
    plan = plan_for(program, None)
    if not plan.sums_all or program.forward or plan.ends is not None:
        name = next(iter(plan.drawn or program.forward or program.z))
        raise OptionError(
            f"predict: the result has no '{name}', which cannot be drawn from its conditional given x alone: keep it "
            "(keep= of sumout.sample)."
        )
    group, rolled = result["unconstrained_posterior"], plan.structure.program
    columns = [np.asarray(group[name].values)[:, chosen].reshape(*group[name].shape[:1], len(chosen), -1)
               for name in program.x]  # fmt: skip
    x = np.concatenate(columns, axis=-1)
    if x.shape[-1] != program.num_x:
        raise OptionError("predict: the shapes of the result do not fit the program; was it another one?")
    keys = np.stack([fold_in(fold_in(key, RECOVERING + c), np.arange(x.shape[1])) for c in range(len(x))])
    z = any_z(rolled)

    def one(each: Any, data: Any) -> Any:
        return plan.recover(each[0], each[1], z, data)

    draw = attentive_jit(lambda keys, x, data: jax.lax.map(lambda each: one(each, data), (keys, x)))
    flat = draw(keys.reshape(-1, 2), x.reshape(-1, x.shape[-1]).astype(jnp.result_type(float)), rolled.data)
    shaped = {name: np.asarray(value).reshape(*x.shape[:2], *value.shape[1:]) for name, value in flat.items()}
    return rolled.packs.unpack(shaped, axis=2)
