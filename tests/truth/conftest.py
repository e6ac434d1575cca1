"""Long runs: they are compiled well."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _made_to_run_fast():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
