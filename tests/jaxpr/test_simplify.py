"""Simplified programs: fewer equations, the same numbers and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.extend.core import ClosedJaxpr, DropVar, jaxpr_as_fun
from jax.scipy.special import xlogy

from sumout.jaxpr.equations import traced_once
from sumout.jaxpr.numpy_evaluation import compute
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import all_equations, names_in
from sumout.randomness import uniform

from programs import ENUMERABLE


def traced(fn, *args, **options):
    closed = jax.make_jaxpr(fn)(*args)
    return closed, simplify(closed, **options)


def names(closed):
    return [eqn.primitive.name for eqn in all_equations(closed.jaxpr)]


def assert_same(closed, simple, *args):
    both = jax.jit(lambda *args: (jaxpr_as_fun(closed)(*args), jaxpr_as_fun(simple)(*args)))(*args)
    for one, other in zip(*both, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ENUMERABLE)
@pytest.mark.parametrize("is_final", [False, True])
def test_programs_and_their_gradients_are_the_same(name, is_final):
    program = ENUMERABLE[name]()
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=program.num_x))
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    leaves = jax.tree.leaves((x, z, jax.tree.map(jnp.asarray, program.data)))
    fn = jax.value_and_grad(program.log_density) if is_final else program.log_density
    closed, simple = traced(fn, x, z, program.data, is_final=is_final)
    assert len(names(simple)) <= len(names(closed))
    assert_same(closed, simple, *leaves)


def test_what_follows_from_constants_is_computed():
    _, simple = traced(lambda x: dist.Gamma(2.0, 3.0).log_prob(x) + dist.Normal(0.0, 2.0).log_prob(x), jnp.ones(()))
    assert not {"lgamma", "jit"} & set(names(simple))


def test_what_nobody_looks_at_and_what_stands_twice_is_left_out():
    def fn(x):
        jnp.sin(x)
        return jnp.cos(x) + jnp.cos(x), 0 + 1 * x.reshape(3).astype(x.dtype) - 0.0, jnp.where(True, x, jnp.exp(x))

    closed, simple = traced(fn, jnp.ones(3))
    assert names(simple) == ["cos", "add"]
    assert_same(closed, simple, jnp.arange(3.0))


def test_of_an_equation_that_stands_twice_each_may_use_another_result():
    def fn(x):
        return jax.lax.split(x, (1, 2))[0], jax.lax.split(x, (1, 2))[1]

    closed = jax.make_jaxpr(fn)(jnp.ones(3))
    first, *others = closed.jaxpr.eqns
    dropped = first.replace(outvars=[first.outvars[0], DropVar(first.outvars[1].aval)])
    simple = simplify(ClosedJaxpr(closed.jaxpr.replace(eqns=[dropped, *others]), closed.consts))
    assert names(simple) == ["split"]
    assert_same(closed, simple, jnp.arange(3.0))


def test_arrays_that_repeat_a_number_are_not_laid_out():
    size = 100_000
    closed, simple = traced(
        lambda x: x * (jnp.full(size, 2.0) * jnp.ones(size) + 1) + jnp.ones(size).sum(), jnp.ones(size)
    )
    assert not simple.consts
    assert names(simple).count("mul") == 1
    assert_same(closed, simple, jnp.arange(float(size)))


def test_what_is_reshaped_to_be_reduced_is_reduced_as_it_stands():
    array = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4, 5)))
    for shape, axes in (
        ((6, 20), (1,)),
        ((2, 3, 20), (2,)),
        ((120,), (0,)),
        ((2, 12, 5), (0, 2)),
        ((2, 3, 1, 20), (3, 2)),
    ):
        closed, simple = traced(lambda a, shape=shape, axes=axes: jnp.sin(a).reshape(shape).sum(axes), array)
        assert_same(closed, simple, array)
        if shape in ((2, 3, 20), (120,)):
            assert "reshape" not in names(simple)
    closed, simple = traced(lambda a: a[..., None].reshape(120).sum(0), array)
    assert "reshape" not in names(simple)
    assert_same(closed, simple, array)
    closed, simple = traced(lambda a: a.reshape(6, 20).reshape(8, 15).max(0), array)
    assert_same(closed, simple, array)


def test_rules_for_derivatives_are_kept_until_the_last():
    closed, simple = traced(lambda x: xlogy(0.0, x), jnp.ones(()))
    _, final = traced(lambda x: xlogy(0.0, x), jnp.ones(()), is_final=True)
    assert "custom_jvp_call" in names_in(simple)
    assert "custom_jvp_call" not in names_in(final)
    slopes = [jax.grad(lambda x, form=form: jaxpr_as_fun(form)(x)[0])(2.0) for form in (closed, simple)]
    np.testing.assert_array_equal(*slopes)
    assert_same(closed, final, jnp.asarray(0.0))


def test_random_numbers_stay_a_call():
    _, simple = traced(lambda key: uniform(key, (3,)), np.zeros(2, np.uint32))
    assert [eqn.params["name"] for eqn in simple.jaxpr.eqns if eqn.primitive.name == "jit"] == ["random_words"]


def test_what_is_said_on_the_way_is_said(capfd):
    def fn(x):
        jax.debug.print("seen {}", x)
        jax.debug.print("seen {}", x)
        return x

    _, simple = traced(fn, jnp.ones(()))
    jax.block_until_ready(jax.jit(jaxpr_as_fun(simple))(jnp.ones(())))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("seen 1") == 2


def test_fractions_are_cut_where_the_program_runs():
    """NumPy and XLA turn what no integer can hold into different integers."""
    _, simple = traced(lambda: jax.lax.convert_element_type(jnp.exp(jnp.full((), 1000.0)), jnp.int32))
    assert "convert_element_type" in names(simple)


ONE = "abs erf exp expm1 floor lgamma log log1p logistic neg rsqrt sqrt square tanh".split()
TWO = "add div eq ge gt le lt max min mul ne sub".split()


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_numpy_computes_as_jax_does(name):
    operands = [np.array([0.3, 1.7, 2.0], np.float32), np.array([2.0, 0.5, 2.0], np.float32)][: 1 if name in ONE else 2]
    (eqn,) = jax.make_jaxpr(getattr(jax.lax, name))(*operands).jaxpr.eqns
    (by_numpy,) = compute(eqn, operands)
    np.testing.assert_allclose(by_numpy, getattr(jax.lax, name)(*operands), rtol=1e-5)


def test_a_function_is_simplified_when_it_is_traced():
    once = traced_once(lambda x: {"a": jnp.cos(x) + jax.lax.lgamma(1.0)})
    closed = jax.make_jaxpr(once)(jnp.ones(2))
    assert names(closed) == ["jit", "cos"]
