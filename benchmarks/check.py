"""Do all forms of a model have the same density? At some random points they may differ by a constant only.

Compared are, in the user's own coordinates (of means in order, in those of their base): z summed out by hand in
NumPyro, in PyMC and in Stan, and by sumout where it sums everything; and with z left in, NumPyro and PyMC.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.model import Data, Model, find_model
from benchmarks.models.ordering import base_of

POINTS = 3
TOLERANCE = 1e-6  # relative to the size of the log densities

Named = dict[str, np.ndarray]


def check_model(name: str, console: Console, with_stan: bool = False) -> bool:
    """Compare, and say what was found."""
    import jax

    with jax.enable_x64(True):
        densities, points = _densities(find_model(name), with_stan)
    is_fine = True
    for group, forms in densities.items():
        values = {
            form: np.array([float(function(point)) for point in points[group]]) for form, function in forms.items()
        }
        first = next(iter(values), "")
        for form in list(values)[1:]:
            gap = values[form] - values[first]
            off = np.abs(gap - gap[0]).max() / max(1.0, np.abs(values[first]).max())
            is_same = bool(off < TOLERANCE)
            is_fine &= is_same
            words = "agree" if is_same else "DIFFER"
            console.print(f"{name}, {group}: {first} and {form} {words} ({off:.1e})", highlight=False)
    return is_fine


def _densities(model: Model, with_stan: bool) -> tuple[dict[str, dict[str, Callable]], dict[str, list[Named]]]:
    """Log densities by group and form, and the points of each group."""
    data, forms = model.data(), model.numpyro()
    rng = np.random.default_rng(0)
    summed: dict[str, Callable] = {}
    left_in: dict[str, Callable] = {}
    points = [_point(forms.left_in, data, model.parameters, rng) for _ in range(POINTS)]
    if forms.by_hand:
        summed["NumPyro by hand"] = _numpyro(forms.by_hand, data)
        ours = _sumout(forms.left_in, data)
        if ours:
            summed["sumout"] = ours
    if model.pymc_by_hand:
        summed["PyMC by hand"] = _pymc(model.pymc_by_hand(data))
    if model.stan and with_stan:
        summed["Stan by hand"] = _stan(model, data)
    in_pymc = model.pymc(data)
    z_names = {variable.name for variable in in_pymc.free_RVs} - {"mu_base", *model.parameters}
    for form in filter(None, (forms.left_in, forms.drawn)):
        z = _discrete(form, data, rng)
        if set(z[0]) == z_names:
            left_in = {"NumPyro": _numpyro(form, data), "PyMC": _pymc(in_pymc)}
            with_z = [{**point, **one} for point, one in zip(points, z, strict=True)]
    return {"z summed out": summed, "z left in": left_in}, {"z summed out": points, "z left in": with_z}


def _sites(form: Callable, data: Data) -> dict[str, Any]:
    """Latent sites."""
    import jax
    from numpyro import handlers

    trace = handlers.trace(handlers.seed(form, jax.random.key(0))).get_trace(**data)
    return {name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}


def _point(form: Callable, data: Data, parameters: tuple[str, ...], rng: np.random.Generator) -> Named:
    """Random values of the parameters."""
    from numpyro.distributions import biject_to

    named = {}
    for name, site in _sites(form, data).items():
        if name in parameters:
            bijection = biject_to(site["fn"].support)
            free = rng.normal(scale=0.3, size=bijection.inverse_shape(np.shape(site["value"])))
            named[name] = np.asarray(bijection(free))
    return named


def _discrete(form: Callable, data: Data, rng: np.random.Generator) -> list[Named]:
    """Random values of z: 0 and 1 are possible everywhere."""
    shapes = {
        name: np.shape(site["value"]) for name, site in _sites(form, data).items() if site["fn"].support.is_discrete
    }
    return [{name: rng.integers(2, size=shape) for name, shape in shapes.items()} for _ in range(POINTS)]


def _log_det_of_order(named: Named) -> float:
    """From the density of means in order to that of their base."""
    return float(base_of(named["mu"])[1:].sum())


def _numpyro(form: Callable, data: Data) -> Callable[[Named], float]:
    from numpyro.infer.util import log_density

    is_ordered = _is_ordered(form, data)

    def density(named: Named) -> float:
        import jax

        with jax.enable_x64(True):
            value = float(log_density(form, (), data, {name: np.asarray(v) for name, v in named.items()})[0])
        return value + (_log_det_of_order(named) if is_ordered else 0.0)

    return density


def _is_ordered(form: Callable, data: Data) -> bool:
    from numpyro.distributions import constraints

    return any(site["fn"].support is constraints.ordered_vector for site in _sites(form, data).values())


def _sumout(form: Callable, data: Data) -> Callable[[Named], float] | None:
    """With z summed out by sumout; None where it would draw some."""
    import jax
    import jax.numpy as jnp
    from numpyro.distributions import biject_to

    import sumout
    from sumout.plan.plan import plan_for

    program = sumout.program(form, **data)
    plan = plan_for(program)
    if not plan.sums_all:
        return None
    sites = _sites(form, data)
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    is_ordered = _is_ordered(form, data)

    def density(named: Named) -> float:
        with jax.enable_x64(True):
            flat, log_det = [], 0.0
            for name in program.x:
                bijection = biject_to(sites[name]["fn"].support)
                free = bijection.inv(jnp.asarray(named[name]))
                log_det += float(bijection.log_abs_det_jacobian(free, named[name]).sum())
                flat.append(np.ravel(free))
            value = float(plan.log_density(jnp.concatenate(flat), z, program.data)) - log_det
        return value + (_log_det_of_order(named) if is_ordered else 0.0)

    return density


def _pymc(model: Any) -> Callable[[Named], float]:
    logp = model.compile_logp(jacobian=False)

    def density(named: Named) -> float:
        point = {}
        for variable in model.free_RVs:
            name = variable.name
            value = base_of(named["mu"]) if name == "mu_base" else named[name]
            transform = model.rvs_to_transforms[variable]
            if transform is not None:
                value = transform.forward(value, *variable.owner.inputs).eval()
            point[model.rvs_to_values[variable].name] = value
        return float(logp(point))

    return density


def _stan(model: Model, data: Data) -> Callable[[Named], float]:
    import stan

    posterior = stan.build(model.stan(), model.stan_data(data), random_seed=1)

    def density(named: Named) -> float:
        given = {name: np.asarray(value).tolist() for name, value in named.items()}
        if "mu_base" in posterior.param_names:
            given["mu_base"] = base_of(named["mu"]).tolist()
        free = posterior.unconstrain_pars(
            {name: v for name, v in given.items() if name != "mu" or "mu_base" not in given}
        )
        return posterior.log_prob(free, adjust_transform=False)

    return density
