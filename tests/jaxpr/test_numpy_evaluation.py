"""What NumPy computes in the place of XLA is what XLA computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sumout.jaxpr.numpy_evaluation import evaluate
from sumout.jaxpr.numpy_forms import gather
from sumout.model.arguments import as_jax

FILL, CLIP = lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP
NUMBERS = lax.GatherDimensionNumbers
# What is looked up in an array of 5 × 4 × 3: the rule, sizes of windows, shape of the indices.
LOOK_UPS = {
    "rows": (NUMBERS((1, 2), (0,), (0,)), (1, 4, 3), (6, 1)),
    "elements": (NUMBERS((), (0, 1, 2), (2, 0, 1)), (1, 1, 1), (6, 3)),
    "columns": (NUMBERS((0, 2), (1,), (1,)), (5, 1, 3), (2, 1)),
    "windows": (NUMBERS((0, 2), (1,), (0, 2)), (2, 1, 2), (6, 2)),
    "a table of them": (NUMBERS((1, 3), (0,), (1, 0)), (1, 2, 3), (6, 7, 2)),
    "batches": (NUMBERS((1,), (1,), (1,), (0,), (0,)), (1, 1, 2), (5, 1)),
    "batches inside": (NUMBERS((), (0,), (0,), (1, 2), (2, 0)), (1, 1, 1), (3, 6, 4, 1)),
}


@pytest.mark.parametrize("name", LOOK_UPS)
@pytest.mark.parametrize("mode", [FILL, CLIP])
def test_gathers_are_those_of_jax(name, mode):
    rng = np.random.default_rng(0)
    numbers, sizes, shape = LOOK_UPS[name]
    array = rng.integers(1, 1000, (5, 4, 3)).astype(np.int32)
    indices = rng.integers(-2, 7, shape).astype(np.int32)
    options = {"dimension_numbers": numbers, "slice_sizes": sizes}
    expected = lax.gather(array, indices, mode=mode, fill_value=0, **options)
    np.testing.assert_array_equal(gather(array, indices, mode=mode, **options), expected)


def test_only_what_is_wanted_is_evaluated_and_by_numpy_if_that_is_exact():
    def three(key, y):
        inside = (y >= 0) & (y <= 3)
        return inside.all(), jax.random.normal(key), jnp.where(inside, y, -1).sum()

    key, y = jax.eval_shape(lambda: jax.random.key(0)), np.array([1, 2, 5])
    closed = jax.make_jaxpr(three)(key, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumout.jaxpr.numpy_evaluation.jax.jit", None)  # would be called to compile
        inside, drawn, total = evaluate(closed, [key, y], [True, False, True])
    assert not inside
    assert drawn is None
    assert int(total) == 2
    ones = np.ones(2, np.float32)
    (found,) = evaluate(jax.make_jaxpr(lambda y: jnp.exp(y) * 2)(ones), [ones], [True])
    np.testing.assert_array_equal(found, 2 * jnp.exp(ones))


def test_arrays_handed_to_jax_are_copies():
    for offset in range(4):  # whichever of them lies where JAX could share it
        mine = np.zeros(64 + offset, np.float32)[offset:]
        other = as_jax({"a": mine})["a"]
        mine[:] = 1
        assert float(other.sum()) == 0
    theirs = jnp.ones(3)
    assert as_jax([theirs])[0] is theirs
