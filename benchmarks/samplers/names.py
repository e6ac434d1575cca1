"""All samplers, by name; nothing is imported before it is run."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

OURS, LEFT_IN, BY_HAND = "ours", "z left in", "z summed out beforehand"
NUMPYRO_CLOCK = "the draws made again from the last state by compiled code; where that takes long, a part of them"
WAYS = ("parallel", "vectorized")  # to run chains; the samplers of z are vectorised by jax.vmap
WAYS_OF_Z = ("parallel", "vmap")


@dataclass(frozen=True)
class Sampler:
    """A way to sample.

    Attributes:
        name: on the command line.
        title: in tables.
        kind: whether z is left in by the user, or summed out by hand or by an enumeration that must be asked for.
        module: that runs it, of this package.
        clock: how its warm seconds are taken.
        variants: ways to run the same; the better one counts.
        is_built: whether its program is built once for all runs.
    """

    name: str
    title: str
    kind: str
    module: str
    clock: str
    variants: tuple[str, ...] = ("",)
    is_built: bool = False

    def adapter(self) -> ModuleType:
        """The module that runs it."""
        return import_module(f"benchmarks.samplers.{self.module}")


_ALL = (
    Sampler("sumout", "sumout", OURS, "ours", "its own report, warm-up and compilation not counted"),
    Sampler("gibbs", "NumPyro DiscreteHMCGibbs", LEFT_IN, "numpyro_gibbs", NUMPYRO_CLOCK, WAYS_OF_Z),
    Sampler("mixed", "NumPyro MixedHMC", LEFT_IN, "numpyro_mixed", NUMPYRO_CLOCK, WAYS_OF_Z),
    Sampler(
        "pymc", "PyMC compound step", LEFT_IN, "pymc_compound",
        "from the first to the last draw after the warm-up of each chain, summed over chains, over 2 processes",
    ),
    Sampler(
        "jags", "JAGS", LEFT_IN, "jags_left_in",
        "a whole run less one that ends with the warm-up, two processes with two chains each",
    ),
    Sampler("enumeration", "NumPyro NUTS + enumeration", BY_HAND, "numpyro_enumeration", NUMPYRO_CLOCK, WAYS),
    Sampler("nuts", "NumPyro NUTS, by hand", BY_HAND, "numpyro_by_hand", NUMPYRO_CLOCK, WAYS),
    Sampler(
        "nutpie", "nutpie, by hand", BY_HAND, "nutpie_by_hand",
        "a second run with compiled code, times the share of its gradients that is not of the warm-up",
    ),
    Sampler(
        "stan", "Stan, by hand", BY_HAND, "stan_by_hand",
        "its own report of sampling without warm-up, summed over chains, over 2 processes", is_built=True,
    ),
)  # fmt: skip
SAMPLERS = {sampler.name: sampler for sampler in _ALL}
