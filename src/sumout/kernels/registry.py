"""Kernels by name."""

from collections.abc import Mapping
from typing import Any

from sumout.errors import OptionError
from sumout.kernels.ghmc import GHMC
from sumout.kernels.hmc import HMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.nuts import NUTS
from sumout.kernels.psgld import PSGLD
from sumout.kernels.sghmc import SGHMC
from sumout.kernels.sgld import SGLD
from sumout.kernels.sgnht import SGNHT
from sumout.kernels.split_sghmc import SplitSGHMC
from sumout.model.program import Program
from sumout.plan.count_ends import CountEnds
from sumout.plan.plan import Plan, without_partners

KERNELS: tuple[type[Kernel], ...] = (GHMC, HMC, NUTS, SGHMC, SplitSGHMC, SGLD, PSGLD, SGNHT)


def find_kernel(kernel: Any, plan: Plan | None) -> Kernel:
    """A kernel from what the user gave: an object, a name, or None for the default.

    That is HMC. Where z is drawn, p(x|z, y) is at times steeper than the step size is tuned to: hence smaller steps.
    """
    if kernel is None:
        return HMC() if plan is None or plan.sums_all else HMC(target_acceptance=0.98)
    return _given(kernel)


def suit_kernel(
    kernel: Any, program: Program, overrides: Mapping[str, str] | None, ends: CountEnds | None = None
) -> Mapping[str, str] | None:
    """Overrides of a plan for a kernel: those that move z alone have nothing drawn with partners."""
    return overrides if kernel is None or _given(kernel).moves_jointly else without_partners(program, overrides, ends)


def _given(kernel: Any) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    by_name = {cls.name: cls for cls in KERNELS}
    if isinstance(kernel, str) and kernel in by_name:
        return by_name[kernel]()
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise OptionError(f"kernel={kernel.__name__} is the class: call it, kernel=sumout.{kernel.__name__}(…).")
    names = ", ".join(repr(name) for name in by_name)
    raise OptionError(f"kernel={kernel!r}: expected one of {names}, or an object such as sumout.SGHMC(step_size=0.05).")
