"""The suite runs in double precision, with JAX watching for random keys used twice."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_debug_key_reuse", True)
