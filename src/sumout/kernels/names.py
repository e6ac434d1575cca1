"""Kernels by name."""

from typing import Any

from sumout.errors import OptionError
from sumout.kernels.alternating import AlternatingHMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.sghmc import SGHMC

KERNELS: tuple[type[Kernel], ...] = (SGHMC, AlternatingHMC)


def find_kernel(kernel: Any) -> Kernel:
    """A kernel from what the user gave: an object, a name, or None for the default."""
    if kernel is None:
        return AlternatingHMC()
    if isinstance(kernel, Kernel):
        return kernel
    by_name = {cls.name: cls for cls in KERNELS}
    if isinstance(kernel, str) and kernel in by_name:
        return by_name[kernel]()
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise OptionError(f"kernel={kernel.__name__} is the class: call it, kernel=sumout.{kernel.__name__}(…).")
    names = ", ".join(repr(name) for name in by_name)
    raise OptionError(f"kernel={kernel!r}: expected one of {names}, or an object such as sumout.SGHMC(step_size=0.05).")
