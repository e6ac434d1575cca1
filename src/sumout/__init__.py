"""sumout: leave the discrete variables in; sumout sums them out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumout.frontends.density import density
from sumout.frontends.numpyro import program
from sumout.supports import count, finite, implicit

if TYPE_CHECKING:
    from sumout.about_z import marginals
    from sumout.ascent.maximum import Maximum
    from sumout.diagnose.summary import summary
    from sumout.doctor.check import check
    from sumout.explanation import explain
    from sumout.gradient import gradient_estimator
    from sumout.kernels.ghmc import GHMC
    from sumout.kernels.hmc import HMC
    from sumout.kernels.nuts import NUTS
    from sumout.kernels.psgld import PSGLD
    from sumout.kernels.sghmc import SGHMC
    from sumout.kernels.sgld import SGLD
    from sumout.kernels.sgnht import SGNHT
    from sumout.kernels.split_sghmc import SplitSGHMC
    from sumout.modes import maximize
    from sumout.pages.report import report
    from sumout.reading.structure import Structure, read
    from sumout.run.load import load
    from sumout.run.sample import sample

# Imported when it is first asked for: what makes a program need not know what samples from it.
_LATER = {
    "GHMC": "kernels.ghmc",
    "HMC": "kernels.hmc",
    "NUTS": "kernels.nuts",
    "PSGLD": "kernels.psgld",
    "SGHMC": "kernels.sghmc",
    "SGLD": "kernels.sgld",
    "SGNHT": "kernels.sgnht",
    "Maximum": "ascent.maximum",
    "SplitSGHMC": "kernels.split_sghmc",
    "Structure": "reading.structure",
    "check": "doctor.check",
    "explain": "explanation",
    "gradient_estimator": "gradient",
    "load": "run.load",
    "marginals": "about_z",
    "maximize": "modes",
    "read": "reading.structure",
    "report": "pages.report",
    "sample": "run.sample",
    "summary": "diagnose.summary",
}

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


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'sumout' has no attribute '{name}'")
    return globals().setdefault(name, getattr(import_module(f"sumout.{_LATER[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
