"""The suite runs in double precision, with annotations checked and JAX watching for random keys used twice.

Most tests compile more than they run, so code is compiled quickly rather than well.
"""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_disable_most_optimizations", True)

# Not the modules that users call, which are given wrong types on purpose, nor states of chains, which JAX builds with
# a leading axis of chains, nor the innermost loops of the reading, whose time is tested.
CHECKED = [f"sumout.reading.{name}" for name in "movement flatten evaluate factors graph equations loops steps".split()]
with install_import_hook([*CHECKED, "sumout.nuisance"], "beartype.beartype"):
    import sumout  # noqa: F401
