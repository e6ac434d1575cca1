"""sumout: leave the discrete variables in; sumout sums them out."""

from sumout.diagnose import summary
from sumout.explain import explain
from sumout.frontends.density import density
from sumout.frontends.numpyro import program
from sumout.gradient import gradient_estimator
from sumout.kernels.alternating import AlternatingHMC
from sumout.kernels.sghmc import SGHMC
from sumout.reading.structure import Structure, read
from sumout.run.sample import sample
from sumout.supports import count, finite, implicit

__all__ = [
    "SGHMC",
    "AlternatingHMC",
    "Structure",
    "count",
    "density",
    "explain",
    "finite",
    "gradient_estimator",
    "implicit",
    "program",
    "read",
    "sample",
    "summary",
]
