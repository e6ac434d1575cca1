"""Chains of any NumPyro kernel, for the adapters beside this file.

The first run is what a user does: one call of `run`. `run` compiles anew whenever it is called, so for the warm clock
the kernel's own `sample` is run in a loop of ours that is compiled beforehand, from the last state of all chains. Where
the first run took long fewer draws are made, and their time is scaled up.
"""

import time
from typing import Any

import jax
import numpyro
from numpyro.infer import MCMC

from benchmarks.model import Data, Model
from benchmarks.samplers.sampler import CannotTakeError, Run, Settings

LONG = 30.0  # seconds that the run for the warm clock may take, roughly
FEWEST = 20  # draws of each chain for the warm clock
TO_COMPILE = {"parallel": jax.pmap, "vectorized": jax.jit, "vmap": lambda function: jax.jit(jax.vmap(function))}


def run_chains(model: Model, kernel: Any, data: Data, settings: Settings, variant: str) -> Run:
    """One call of `run`; the clock comes after."""
    if variant == "parallel":
        numpyro.set_host_device_count(settings.chains)  # threads that share the cores
    start = time.perf_counter()
    mcmc = MCMC(
        kernel, num_warmup=settings.tune, num_samples=settings.draws, num_chains=settings.chains,
        chain_method=jax.vmap if variant == "vmap" else variant, progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(settings.seed), **data)
    samples = mcmc.get_samples(group_by_chain=True)
    draws = {name: jax.device_get(samples[name]) for name in model.parameters}
    seconds = time.perf_counter() - start

    def warm() -> float:
        number = max(FEWEST, min(settings.draws, round(2 * settings.draws * LONG / seconds)))

        def again(state):
            return jax.lax.fori_loop(0, number, lambda _, state: kernel.sample(state, (), data), state)

        compiled = TO_COMPILE[variant](again).lower(mcmc.last_state).compile()
        before = time.perf_counter()
        jax.block_until_ready(compiled(mcmc.last_state))
        return (time.perf_counter() - before) * settings.draws / number

    return Run(draws, warm)


def by_hand(model: Model) -> Any:
    """The form with z summed out by hand."""
    form = model.numpyro().by_hand
    if form is None:
        raise CannotTakeError("there is no form with z summed out by hand")
    return form


def enumerated(model: Model) -> Any:
    """The form for enumeration."""
    from numpyro.contrib.funsor import config_enumerate

    forms = model.numpyro()
    return config_enumerate(forms.enumerated or forms.left_in)


def drawn(model: Model) -> Any:
    """The form for NumPyro's samplers of z."""
    forms = model.numpyro()
    return forms.drawn or forms.left_in
