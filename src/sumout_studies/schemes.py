"""The schemes of the paper's section 4, and ours.

The paper's have one step size for each model, the one that gives HMC on the marginal the most effective draws, no
scales, 10 gradients between draws, and no noise correction. Ours are what the library does by default, z being drawn in
the first two though it could be summed out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sumout.kernels.ghmc import GHMC
from sumout.kernels.hmc import HMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.nuts import NUTS
from sumout.kernels.sghmc import SGHMC
from sumout.kernels.split_sghmc import SplitSGHMC
from sumout.model.program import Program

STEPS = 10
FRICTION = 0.1

# Largest bulk ESS of HMC on the marginal; `sumout studies --full` searches for it again.
STEP_SIZES = {"survey": 0.2, "gmm": 0.03, "hmm": 1.0}


@dataclass(frozen=True)
class Scheme:
    """A way to sample.

    Attributes:
        name: what the command line calls it.
        title: what tables call it.
        words: what it does.
        kernel: the kernel, given the step size of the paper's schemes.
        method: what is done with z, of the methods of a plan; None leaves it to the plan.
        steps: kernel steps between draws; None leaves it to the kernel.
        by_hand: whether it runs on the density marginalised by hand.
        is_ours: whether it is not in the paper.
    """

    name: str
    title: str
    words: str
    kernel: Callable[[float], Kernel]
    method: str | None = None
    steps: int | None = None
    by_hand: bool = False
    is_ours: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it leaves the posterior invariant whatever its step size."""
        return self.kernel(1.0).is_exact

    def plan(self, program: Program) -> dict[str, str] | None:
        """What to ask for the discrete sites of the program."""
        return None if self.method is None else dict.fromkeys(program.z, self.method)


def _as_in_the_paper(num_samples: int) -> Callable[[float], Kernel]:
    return lambda step_size: SGHMC(step_size, friction=FRICTION, noise=0.0, num_samples=num_samples)


def _hmc(step_size: float) -> Kernel:
    return HMC(step_size, num_leapfrog=STEPS, jitter=0.0)


_ALL = (
    Scheme(
        "sghmc-1", "sgHMC, 1 sample",
        "Stochastic gradient HMC with one draw of z for every gradient, no noise correction.",
        _as_in_the_paper(1), "gibbs", STEPS,
    ),
    Scheme(
        "sghmc-10", "sgHMC, 10 samples",
        "The same with the gradient averaged over ten draws of z.",
        _as_in_the_paper(10), "gibbs", STEPS,
    ),
    Scheme(
        "mh-hmc", "MH+HMC",
        "Sitewise Metropolis on z, alternating with a trajectory of HMC on x.",
        _hmc, "metropolis", 1,
    ),
    Scheme(
        "hmc", "HMC, marginalized",
        "HMC on the density with z summed out by hand.",
        _hmc, None, 1, by_hand=True,
    ),
    Scheme(
        "split", "split sgHMC",
        "Stochastic gradient HMC by symmetric splitting, gradient noise measured and subtracted, all tuned.",
        lambda _: SplitSGHMC(), "draw", is_ours=True,
    ),
    Scheme(
        "ghmc", "GHMC, fresh z",
        "Exact: a fresh z for every gradient, one leapfrog step, accept or reject; tuned.",
        lambda _: GHMC(), "draw", is_ours=True,
    ),
    Scheme(
        "sum", "automatic sum + HMC",
        "z summed out by sumout, HMC on what is left; tuned. The default.",
        lambda _: HMC(), is_ours=True,
    ),
    Scheme(
        "nuts", "automatic sum + NUTS",
        "z summed out by sumout, NUTS on what is left; tuned.",
        lambda _: NUTS(), is_ours=True,
    ),
)  # fmt: skip
SCHEMES = {scheme.name: scheme for scheme in _ALL}
