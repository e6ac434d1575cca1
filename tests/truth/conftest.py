"""Long runs of code that other tests have watched for keys used twice: here the watch would only cost time.

For the same reason they are compiled well.
"""

import jax
import pytest


@pytest.fixture(autouse=True)
def _made_to_run_fast():
    jax.config.update("jax_disable_most_optimizations", False)
    with jax.debug_key_reuse(False):
        yield
    jax.config.update("jax_disable_most_optimizations", True)
