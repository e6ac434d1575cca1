"""What follows from the range of numbers: nothing is decided that any number, or none, would contradict."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.extend.core import jaxpr_as_fun

from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import all_equations

TINY = np.finfo(np.float64).tiny
ODD = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, TINY, -TINY, TINY / 4, 1e300, -1e300, 40.0, -40.0])


def names(closed):
    return [eqn.primitive.name for eqn in all_equations(closed.jaxpr)]


def simplified(fn, *args):
    """The same in fewer equations; it is the same to the last bit wherever it is evaluated."""
    closed = jax.make_jaxpr(fn)(*args)
    simple = simplify(closed)
    both = [jax.jit(jaxpr_as_fun(one))(*jax.tree.leaves(args)) for one in (closed, simple)]
    for one, other in zip(*both, strict=True):
        np.testing.assert_array_equal(one, other)
        if np.issubdtype(one.dtype, np.floating):
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
    return names(simple)


def clip(p):
    return jnp.minimum(jnp.maximum(TINY, p), 1 - 1e-16)


DECIDED = {
    "a probability that was clipped is neither 0 nor 1": lambda x: (clip(jax.nn.sigmoid(x)) == 0) | (clip(x) == 1),
    "what was clipped is not clipped again": lambda x: clip(clip(x)),
    "nor where only parts of it are looked at": lambda x: clip(jnp.stack([clip(x), clip(x)])[0, 2:]),
    "a case of two that are in range": lambda x: jnp.where(x > 1, clip(x), 0.25) < -1,
    "a sum, a difference and a sign": lambda x: (2 - clip(x) < 0.5) | (-clip(x) > 0.5) | (clip(x) + 3 < 3),
    "what is wider": lambda x: clip(x.astype(jnp.float32)).astype(float) != -1,
}
LEFT = {
    "what may be no number is not above anything": lambda x: clip(x) >= 0,
    "zero may be meant": lambda x: jnp.maximum(0.0, jnp.exp(x)) + jnp.maximum(jnp.abs(x), 0.0),
    "a bound that is reached": lambda x: jnp.maximum(0.5, jax.nn.sigmoid(x)),
    "a bound that may be no number": lambda x: jnp.maximum(jnp.minimum(x, -1.0), jnp.abs(x)),
    "a number that is at the end": lambda x: jax.nn.sigmoid(x) == 1,
    "infinities that cancel": lambda x: jnp.exp(x) - jnp.exp(x + 1) < -1,
}
COMPARED = {"eq", "ne", "lt", "gt", "ge", "le", "max", "min"}


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_certain_is_left_out(name):
    written = names(jax.make_jaxpr(DECIDED[name])(jnp.asarray(ODD)))
    left = simplified(DECIDED[name], jnp.asarray(ODD))
    assert sum(map(COMPARED.__contains__, left)) < sum(map(COMPARED.__contains__, written))


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_certain_is_kept(name):
    written = names(jax.make_jaxpr(LEFT[name])(jnp.asarray(ODD)))
    left = simplified(LEFT[name], jnp.asarray(ODD))
    assert sum(map(COMPARED.__contains__, left)) == sum(map(COMPARED.__contains__, written))


def test_a_beta_density_of_a_clipped_probability_has_no_case_of_its_own_for_zero_and_one():
    inside = simplified(lambda x: dist.Beta(2.0, 3.0).log_prob(clip(jax.nn.sigmoid(x))), jnp.asarray(ODD))
    outside = simplified(lambda x: dist.Beta(2.0, 3.0).log_prob(jax.nn.sigmoid(x)), jnp.asarray(ODD))
    assert "stop_gradient" in outside
    assert "stop_gradient" not in inside
