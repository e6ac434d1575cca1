"""sumout: leave the discrete variables in; sumout sums them out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumout.ascent.maximum import Maximum
from sumout.doctor.check import check
from sumout.explain import explain
from sumout.frontends.density import density
from sumout.frontends.numpyro import program
from sumout.gradient import gradient_estimator
from sumout.kernels.ghmc import GHMC
from sumout.kernels.hmc import HMC
from sumout.kernels.nuts import NUTS
from sumout.kernels.psgld import PSGLD
from sumout.kernels.sghmc import SGHMC
from sumout.kernels.sgld import SGLD
from sumout.kernels.sgnht import SGNHT
from sumout.kernels.split_sghmc import SplitSGHMC
from sumout.marginals import marginals
from sumout.maximize import maximize
from sumout.reading.structure import Structure, read
from sumout.run.load import load
from sumout.run.sample import sample
from sumout.supports import count, finite, implicit

if TYPE_CHECKING:
    from sumout.diagnose.summary import summary
    from sumout.pages.report import report

# What is not needed to sample is imported when it is first asked for.
_LATER = {"report": "sumout.pages.report", "summary": "sumout.diagnose.summary"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'sumout' has no attribute '{name}'")
    return globals().setdefault(name, getattr(import_module(_LATER[name]), name))


__all__ = [
    "GHMC",
    "HMC",
    "NUTS",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Maximum",
    "SplitSGHMC",
    "Structure",
    "check",
    "count",
    "density",
    "explain",
    "finite",
    "gradient_estimator",
    "implicit",
    "load",
    "marginals",
    "maximize",
    "program",
    "read",
    "report",
    "sample",
    "summary",
]
