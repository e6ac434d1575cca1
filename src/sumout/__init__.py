"""sumout: leave the discrete variables in; sumout sums them out."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumout.api import *  # noqa: F403

SAME_NAME = frozenset(("explain", "marginals", "maximize", "program"))  # functions called like the module they are in


class _Package(ModuleType):
    """The package, which loads JAX and all else only when a public name is asked for: `sumout --help` does not wait."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'sumout' has no attribute '{name}'")
        api = importlib.import_module("sumout.api")
        if name != "__all__" and name not in api.__all__:
            raise AttributeError(f"module 'sumout' has no attribute '{name}'")
        vars(self)[name] = getattr(api, name)
        return vars(self)[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in SAME_NAME and isinstance(value, ModuleType)):  # whose import would hide the function
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _Package
