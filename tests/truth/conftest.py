"""Long runs of code that other tests have watched for keys used twice: here the watch would only cost time."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _unwatched_keys():
    with jax.debug_key_reuse(False):
        yield
