"""One model runs at a time.

NumPyro's stack of handlers and its setting of validation belong to the whole process: a model that is traced in one
thread would be seen by the handlers of another. JAX traces a model whenever it needs to, so the lock is taken where the
user's function is called, and nowhere further out: nothing that waits for another thread happens inside.
"""

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RUNNING = RLock()


def one_at_a_time(run: Callable[P, T]) -> Callable[P, T]:
    """The function, which runs a user's model, with no other model running meanwhile."""

    @wraps(run)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with RUNNING:
            return run(*args, **kwargs)

    return alone
