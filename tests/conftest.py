"""The suite runs in double precision, with annotations checked.

Most tests compile more than they run, so code is compiled quickly rather than well.
"""

import gc
import logging
import signal
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler
from jaxtyping import install_import_hook

collect_ignore = ["on_some_processes.py", "on_two_devices.py"]  # scripts for processes of their own

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
# What one test has compiled, others need not; nor the next run.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

get_compile_options = compiler.get_compile_options


def compile_quickly(*args: Any, env_options_overrides: Any = None, **kwargs: Any) -> Any:
    """Emitting fusions the older way takes half the time; with optimisations on it may take for ever.

    In one part a module takes two thirds of the work that it takes in many, and the suite has no idle core to share.
    """
    if compiler._DISABLE_MOST_OPTIMIZATIONS.value:
        quick = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
        env_options_overrides = quick | (env_options_overrides or {})
    return get_compile_options(*args, env_options_overrides=env_options_overrides, **kwargs)


compiler.get_compile_options = compile_quickly


class RaiseUnforeseen(logging.Handler):
    """Where the reading fails for a reason nobody foresaw it takes a plainer way; here that is a failure to be seen."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


reading = logging.getLogger("sumout.reading")
reading.setLevel(logging.DEBUG)
reading.addHandler(RaiseUnforeseen())

# Not the modules that users call, which are given wrong types on purpose, nor states of chains, which JAX builds with
# a leading axis of chains, nor the innermost loops of the reading, whose time is tested.
CHECKED = (
    "jaxpr.flatten jaxpr.scans jaxpr.equations jaxpr.lazy_broadcast structure.factors structure.graph tables moves"
).split()
with install_import_hook([f"sumout.{name}" for name in CHECKED], "beartype.beartype"):
    import sumout  # noqa: F401

# What has been imported is there to stay, and traces make much that is soon gone: of all the time a tenth was spent in
# looking for garbage among them.
gc.freeze()
gc.set_threshold(100_000, 20, 100)
