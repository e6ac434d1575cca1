"""sumout: leave the discrete variables in; sumout sums them out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumout.model.density import density
from sumout.model.front_ends import program
from sumout.model.on_disk import on_disk
from sumout.model.supports import count, finite, implicit

if TYPE_CHECKING:
    __version__: str
    from sumout.checks.check import check
    from sumout.kernels.ghmc import GHMC
    from sumout.kernels.hmc import HMC
    from sumout.kernels.nuts import NUTS
    from sumout.kernels.psgld import PSGLD
    from sumout.kernels.sghmc import SGHMC
    from sumout.kernels.sgld import SGLD
    from sumout.kernels.sgnht import SGNHT
    from sumout.kernels.split_sghmc import SplitSGHMC
    from sumout.optimize.maximize import maximize
    from sumout.optimize.maximum import Maximum
    from sumout.plan.gradient_estimator import gradient_estimator
    from sumout.reports.explain import explain
    from sumout.reports.report import report
    from sumout.results.inference_data import to_inference_data
    from sumout.results.marginals import marginals
    from sumout.results.numpyro_samples import to_numpyro
    from sumout.results.predict import predict
    from sumout.results.relabel import relabel
    from sumout.results.summary import summary
    from sumout.run.numpyro_kernel import numpyro_kernel
    from sumout.run.sample import sample
    from sumout.run.steps import steps, tune
    from sumout.store.load import load
    from sumout.structure.structure import Structure, read

# Imported when it is first asked for: what makes a program need not know what samples from it.
_LATER = {
    "GHMC": "kernels.ghmc",
    "HMC": "kernels.hmc",
    "NUTS": "kernels.nuts",
    "PSGLD": "kernels.psgld",
    "SGHMC": "kernels.sghmc",
    "SGLD": "kernels.sgld",
    "SGNHT": "kernels.sgnht",
    "Maximum": "optimize.maximum",
    "SplitSGHMC": "kernels.split_sghmc",
    "Structure": "structure.structure",
    "check": "checks.check",
    "explain": "reports.explain",
    "gradient_estimator": "plan.gradient_estimator",
    "load": "store.load",
    "marginals": "results.marginals",
    "maximize": "optimize.maximize",
    "numpyro_kernel": "run.numpyro_kernel",
    "predict": "results.predict",
    "read": "structure.structure",
    "relabel": "results.relabel",
    "report": "reports.report",
    "sample": "run.sample",
    "steps": "run.steps",
    "summary": "results.summary",
    "to_inference_data": "results.inference_data",
    "to_numpyro": "results.numpyro_samples",
    "tune": "run.steps",
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
    "numpyro_kernel",
    "on_disk",
    "predict",
    "program",
    "read",
    "relabel",
    "report",
    "sample",
    "steps",
    "summary",
    "to_inference_data",
    "to_numpyro",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":  # pyproject.toml has it; to look it up takes longer than it is worth with every import
        from importlib.metadata import version

        return globals().setdefault(name, version("sumout"))
    if name not in _LATER:
        raise AttributeError(f"module 'sumout' has no attribute '{name}'")
    return globals().setdefault(name, getattr(import_module(f"sumout.{_LATER[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
