"""Every row of the table of primitives is held against what JAX computes; a new row is attacked as it stands."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.ad_util import add_jaxvals_p
from jax.extend.core import jaxpr_as_fun
from numpyro.distributions import constraints

import sumout
from sumout.jaxpr.equations import bind
from sumout.jaxpr.numpy_evaluation import compute, evaluate, is_exact_by_numpy, is_known_to_numpy
from sumout.jaxpr.primitives import CONTROL, ROWS, TABLE, Kind, Linear, Regular, is_elementwise, row_of
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import all_equations, names_in
from sumout.plan.plan import make_plan
from sumout.structure.interpret import CONTROL as STEPS
from sumout.structure.interpret import Reader
from sumout.structure.scope_rules import RULES, apply_rule
from sumout.structure.scopes import Scopes, constant, dependent

from enumeration import joint_states, log_marginal

# No function of JAX makes these any more, or none that is public.
ABSENT = {"copy_p", "expand_dims", "eq_to", "le_to", "lt_to", "random_gamma_grad"}
VECTOR, MATRIX, INTEGERS = np.zeros(4, np.float32), np.eye(3, dtype=np.float32), np.zeros(4, np.int32)
SQUARE, IMAGES = np.ones((2, 2), np.float32), np.ones((2, 1, 3, 1), np.float32)
NUMBERS = lax.GatherDimensionNumbers((), (0,), (0,))
WRITES = lax.ScatterDimensionNumbers((), (0,), (0,))
# How to make an equation, where it takes more than a function of `lax` of that name and arrays of one shape.
EXAMPLES = {
    "add_any": (add_jaxvals_p.bind, VECTOR, VECTOR),
    "and": (lax.bitwise_and, VECTOR > 0, VECTOR > 0),
    "argmax": (lambda a: lax.argmax(a, 0, np.int32), SQUARE),
    "argmin": (lambda a: lax.argmin(a, 1, np.int32), SQUARE),
    "broadcast_in_dim": (lambda a: lax.broadcast_in_dim(a, (2, 4, 3), (1,)), VECTOR),
    "cholesky": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), MATRIX),
    "concatenate": (lambda a, b: lax.concatenate([a, b], 0), VECTOR, VECTOR[:2]),
    "conv_general_dilated": (lambda a, b: lax.conv(a, b, (1, 1), "SAME"), IMAGES, IMAGES[:1, :, :2]),
    "convert_element_type": (lambda a: lax.convert_element_type(a, np.float32), INTEGERS),
    "copy": (jnp.copy, VECTOR),
    "dot_general": (
        lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((0,), (0,)))),
        np.ones((2, 3)),
        np.ones((2, 3, 2)),
    ),
    "dynamic_slice": (lambda a, i: lax.dynamic_slice(a, (i, i), (1, 2)), MATRIX, np.int32(0)),
    "dynamic_update_slice": (lambda a, b, i: lax.dynamic_update_slice(a, b, (i,)), VECTOR, VECTOR[:2], np.int32(0)),
    "eigh": (lambda a: lax.linalg.eigh(a, symmetrize_input=True), MATRIX),
    "fft": (lambda a: lax.fft(a, "FFT", (3,)), np.zeros((2, 3), np.complex64)),
    "gather": (lambda a, i: lax.gather(a, i, NUMBERS, (1,), mode="clip"), VECTOR, np.zeros((3, 1), np.int32)),
    "imag": (lax.imag, VECTOR.astype(np.complex64)),
    "integer_pow": (lambda a: lax.integer_pow(a, 3), VECTOR),
    "iota": (lambda: lax.broadcasted_iota(np.int32, (2, 3), 1),),
    "lu": (lax.linalg.lu, MATRIX),
    "not": (lax.bitwise_not, VECTOR > 0),
    "optimization_barrier": (lax.optimization_barrier, (VECTOR, VECTOR)),
    "or": (lax.bitwise_or, VECTOR > 0, VECTOR > 0),
    "pad": (lambda a, b: lax.pad(a, b, [(-1, 2, 1)]), VECTOR, np.float32(0)),
    "qr": (lambda a: lax.linalg.qr(a, full_matrices=False), MATRIX),
    "real": (lax.real, VECTOR.astype(np.complex64)),
    "reduce_and": (lambda a: lax.reduce_and(a, (0,)), SQUARE > 0),
    "reduce_or": (lambda a: lax.reduce_or(a, (0,)), SQUARE > 0),
    "reduce_precision": (lambda a: lax.reduce_precision(a, 8, 10), VECTOR),
    "reduce_window_max": (lambda a: lax.reduce_window(a, -np.inf, lax.max, (2,), (1,), "VALID"), VECTOR),
    "reduce_window_min": (lambda a: lax.reduce_window(a, np.inf, lax.min, (2,), (1,), "VALID"), VECTOR),
    "reduce_window_sum": (lambda a: lax.reduce_window(a, 0.0, lax.add, (2,), (1,), "VALID"), VECTOR),
    "reduce_xor": (lambda a: lax.reduce_xor(a, (0,)), SQUARE > 0),
    "regularized_incomplete_beta": (lax.betainc, VECTOR, VECTOR, VECTOR),
    "reshape": (lambda a: lax.reshape(a, (3, 2), (1, 0)), np.ones((2, 3))),
    "rev": (lambda a: lax.rev(a, (0,)), MATRIX),
    "select_n": (lax.select_n, INTEGERS, VECTOR, VECTOR, VECTOR),
    "slice": (lambda a: lax.slice(a, (0, 1), (3, 3), (2, 1)), MATRIX),
    "sort": (lambda a: lax.sort(a, dimension=1), MATRIX),
    "split": (lambda a: lax.split(a, (1, 2), 1), MATRIX),
    "squeeze": (lambda a: lax.squeeze(a, (1,)), np.ones((3, 1, 2))),
    "stack": (lambda a, b: jnp.stack([a, b], 1), VECTOR, VECTOR),
    "svd": (lambda a: lax.linalg.svd(a, full_matrices=False), MATRIX),
    "tile": (lambda a: lax.tile(a, (2, 1)), MATRIX),
    "top_k": (lambda a: lax.top_k(a, 2), MATRIX),
    "transpose": (lambda a: lax.transpose(a, (2, 0, 1)), np.ones((2, 3, 2))),
    "triangular_solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
        MATRIX,
        MATRIX[:, :2],
    ),
    "xor": (lax.bitwise_xor, VECTOR > 0, VECTOR > 0),
}
OF_KIND = {
    Kind.REDUCTION: lambda fn: (lambda a: fn(a, (0,)), SQUARE),
    Kind.CUMULATIVE: lambda fn: (lambda a: fn(a, axis=1, reverse=True), MATRIX),
    Kind.SCATTER: lambda fn: (lambda a, i, b: fn(a, i, b, WRITES, mode="drop"), VECTOR, INTEGERS[:3, None], VECTOR[:3]),
}
COMPUTED = [row.name for row in ROWS if not row.is_control and row.name not in ABSENT]


def example(name, dtype=None):
    """An equation of that primitive, on other numbers than random ones; None if there is none of that type."""
    row, fn = TABLE[name], getattr(lax, name.replace("-", "_"), None)
    made = EXAMPLES.get(name) or (OF_KIND[row.kind](fn) if row.kind in OF_KIND else None)
    tries = [made] if made else [(fn, *[VECTOR.astype(kind)] * n) for kind in (float, int) for n in (1, 2, 3)]
    for run, *operands in tries:
        if dtype is not None:
            operands = [a.astype(dtype) if getattr(a, "dtype", None) == np.float32 else a for a in operands]
        try:
            closed = jax.make_jaxpr(run)(*operands)
        except TypeError:
            continue
        return next(eqn for eqn in all_equations(closed.jaxpr) if eqn.primitive.name == name)
    assert dtype is not None, f"test_primitives.py needs an example of {name}"
    return None


def draw(rng, aval):
    """Numbers at which most functions have a value: fractions between 0 and 1, integers that may be indices."""
    if aval.dtype == bool:
        return rng.random(aval.shape) < 0.5
    if np.issubdtype(aval.dtype, np.integer):
        return rng.integers(0, 3, aval.shape).astype(aval.dtype)
    return np.asarray(rng.uniform(0.1, 0.9, aval.shape), aval.dtype)


def operands_of(eqn, seed=0):
    rng = np.random.default_rng(seed)
    operands = [draw(rng, v.aval) for v in eqn.invars]
    if row_of(eqn).kind in (Kind.MATRIX, Kind.TRIANGULAR_SOLVE):
        operands[0] = operands[0] / 9 + np.eye(operands[0].shape[-1], dtype=operands[0].dtype)
    return operands


def run_all(eqn, many):
    """The results of an equation for many lists of operands, compiled once."""
    stacked = [np.stack(each) for each in zip(*many, strict=True)]
    return [np.asarray(out) for out in jax.jit(jax.vmap(lambda *ops: bind(eqn, ops)))(*stacked)]


def test_every_kind_has_a_rule_or_is_entered():
    assert len(TABLE) == len(ROWS)
    assert set(STEPS) == CONTROL
    assert set(RULES) == {row.kind for row in ROWS if row.has_scope_rule}


def hostile(aval):
    """Zeros, negative numbers and infinities among others."""
    if aval.dtype == bool:
        return np.resize([True, False, False], aval.shape)
    numbers = [3, -2, 0, 7, -1, 1] if np.issubdtype(aval.dtype, np.integer) else [0.3, -1.5, 0, np.inf, 1.7, 2, -0.5]
    return np.resize(np.asarray(numbers, aval.dtype), aval.shape)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].numpy])
def test_numpy_computes_what_jax_does(name, dtype):
    eqn = example(name, dtype)
    if eqn is None or not is_known_to_numpy(eqn):
        return
    plain = operands_of(eqn)
    rough = [np.roll(hostile(v.aval), i, -1) if v.aval.shape else hostile(v.aval) for i, v in enumerate(eqn.invars)]
    for operands in (plain, rough):
        if row_of(eqn).kind is Kind.SELECT:
            operands[0] = plain[0]
        for ours, theirs in zip(compute(eqn, operands), bind(eqn, operands), strict=True):
            if is_exact_by_numpy(eqn):
                np.testing.assert_array_equal(ours, theirs)
                assert np.asarray(ours).dtype == theirs.dtype
            else:
                np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].has_scope_rule])
def test_scopes_cover_all_that_a_change_of_one_element_changes(name):
    """With every element a site, and with indices and conditions known."""
    eqn = example(name)
    operands, others = operands_of(eqn), operands_of(eqn, seed=1)
    places = [(i, place) for i, operand in enumerate(operands) for place in np.ndindex(operand.shape)]
    changed = []
    for i, place in places:
        copies = [np.array(operand) for operand in operands]
        is_number = copies[i].dtype.kind in "fc"
        copies[i][place] = (
            others[i][place] + 0.05 if is_number else (copies[i][place] + 1) % (2 + (copies[i].dtype != bool))
        )
        changed.append(copies)
    before_and_after = run_all(eqn, [operands, *changed])
    starts = np.cumsum([1, *(operand.size for operand in operands)])
    ids = [
        np.arange(operand.size).reshape(operand.shape) + first for operand, first in zip(operands, starts, strict=False)
    ]
    for is_known in (lambda operand: False, lambda operand: operand.dtype.kind in "bi"):
        if all(map(is_known, operands)):
            continue
        scopes = Scopes(len(places))
        abstract = [constant(o) if is_known(o) else dependent(o.shape, n) for o, n in zip(operands, ids, strict=True)]
        for result, values in zip(apply_rule(scopes, eqn, abstract), before_and_after, strict=True):
            found = scopes.matrix(result.scopes.ravel()).toarray().reshape(*result.shape, len(places))
            depends = np.moveaxis(~np.isclose(values[1:], values[:1], rtol=1e-12, atol=0, equal_nan=True), 0, -1)
            depends = depends & np.array([not is_known(operands[i]) for i, _ in places])
            assert (found | ~depends).all()
            if TABLE[name].is_elementwise and not any(map(is_known, operands)):
                in_place = np.array([[at == place for _, place in places] for at in np.ndindex(result.shape)])
                np.testing.assert_array_equal(found.reshape(-1, len(places)), in_place)


@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].linear])
def test_linear_rows_are_linear(name):
    """f(a + 2 b) = f(a) + 2 f(b) in those operands that may vary together."""
    eqn, linear = example(name), TABLE[name].linear
    count = len(eqn.invars)
    together = {
        Linear.ALL: [range(count)],
        Linear.EACH: [[i] for i in range(count)],
        Linear.FIRST: [[0]],
        Linear.CASES: [range(1, count)],
    }[linear]
    a, b = operands_of(eqn), operands_of(eqn, seed=1)
    for varying in together:
        assert TABLE[name].is_linear_in([i in varying for i in range(count)])
        other = [b[i] if i in varying else a[i] for i in range(count)]
        joint = [a[i] + 2 * b[i] if i in varying else a[i] for i in range(count)]
        for first, second, both in run_all(eqn, [a, other, joint]):
            np.testing.assert_allclose(both, first + 2 * second, rtol=1e-5)
    assert linear is Linear.ALL or not TABLE[name].is_linear_in([True] * count)


@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].is_elementwise])
def test_arithmetic_is_as_the_row_says(name):
    row, eqn = TABLE[name], example(name)
    a, *rest = operands_of(eqn)

    def run(*operands):
        return np.asarray(bind(eqn, operands)[0])

    if row.signs:
        np.testing.assert_allclose(run(a, *rest), sum(s * o for s, o in zip(row.signs, (a, *rest), strict=True)))
    if row.power is not None:
        np.testing.assert_allclose(run(a), a ** row.exponent(eqn.params), rtol=1e-6)
    if row.neutral is not None:
        np.testing.assert_array_equal(run(a, np.full_like(a, row.neutral)), a)
    if row.commutes:
        np.testing.assert_array_equal(run(a, *rest), run(*rest, a))
    if row.absorbing is not None:
        alone = np.full_like(a, row.absorbing)
        np.testing.assert_array_equal(run(a, alone), alone)
        np.testing.assert_array_equal(run(alone, a), alone)
    assert not row.commutes or row.neutral is not None


@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].of_equal])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_reductions_of_equal_numbers(name, dtype):
    eqn = example(name, dtype)
    if eqn is None:
        return
    (operand,) = eqn.invars
    for number in np.array([0, 1, 3], operand.aval.dtype):
        expected = bind(eqn, [np.full(operand.aval.shape, number)])[0]
        found = TABLE[name].of_equal(np.asarray(number), np.prod([2]))
        np.testing.assert_array_equal(np.full_like(expected, np.asarray(found).astype(expected.dtype)), expected)


GRID = np.array([-2.5, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0])


@pytest.mark.parametrize("name", [name for name in COMPUTED if TABLE[name].is_elementwise])
def test_functions_are_singular_nowhere_but_where_the_row_says(name):
    """In each operand that is not said to be singular: a finite value and slope wherever it stands."""
    row, eqn = TABLE[name], example(name)
    if not all(v.aval.dtype.kind == "f" for v in (*eqn.invars, *eqn.outvars)):
        return
    for i in set(range(len(eqn.invars))) - set(row.singular):

        def run(a, i=i):
            return bind(eqn, [a if j == i else np.full(GRID.shape, 0.6) for j in range(len(eqn.invars))])[0]

        try:
            values, slopes = jax.jvp(run, (GRID,), (np.ones_like(GRID),))
        except (NotImplementedError, ValueError):
            continue  # without a derivative
        assert np.isfinite(values).all() and np.isfinite(slopes).all()
        if row.regular is Regular.NEVER_ZERO:
            assert (values != 0).all()


@jax.custom_jvp
def doubled(a):
    return a + a


doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))


@jax.custom_jvp
def running(a):
    return lax.scan(lambda total, row: (total + row, total + row), jnp.zeros((), a.dtype), a)[1]


running.defjvp(lambda primals, tangents: (running(*primals), jnp.cumsum(tangents[0])))

CALLED = {"jit": jax.jit, "remat2": jax.checkpoint, "custom_jvp_call": lambda fn: doubled, "custom_vjp_call": None}


def with_vjp(fn):
    wrapped = jax.custom_vjp(fn)
    wrapped.defvjp(lambda a: (fn(a), None), lambda _, slope: (2 * slope,))
    return wrapped


@pytest.mark.parametrize("name", CALLED)
def test_every_call_is_entered(name):
    """By NumPy, when a program is simplified for good, and when its scopes are read."""
    call = (CALLED[name] or with_vjp)(lambda a: a + a)
    closed = jax.make_jaxpr(lambda a: call(a))(INTEGERS)
    (eqn,) = closed.jaxpr.eqns
    assert eqn.primitive.name == name and row_of(eqn).is_call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumout.jaxpr.numpy_evaluation.jax.jit", None)  # would be called to compile
        (found,) = evaluate(closed, [np.arange(4, dtype=np.int32)], [True])
    np.testing.assert_array_equal(found, [0, 2, 4, 6])
    assert names_in(simplify(closed, is_final=True)) == {"add"}
    (read,) = Reader(Scopes(4)).call(closed, [dependent((4,), np.arange(1, 5))])
    np.testing.assert_array_equal(read.scopes, [1, 2, 3, 4])


def test_a_function_that_loops_over_elements_is_not_element_wise():
    assert is_elementwise(jax.make_jaxpr(doubled)(VECTOR).jaxpr.eqns[0])
    assert not is_elementwise(jax.make_jaxpr(running)(VECTOR).jaxpr.eqns[0])


def test_repeated_numbers_stay_numbers_wherever_they_are_moved():
    def fn(a):
        ones = jnp.ones(1000)
        return a + lax.pad(jnp.concatenate([ones, ones]), 1.0, [(1, 1, 0)]).prod() + lax.rev(ones, (0,)).max()

    simple = simplify(jax.make_jaxpr(fn)(2.0))
    assert names_in(simple) == {"add"} and not simple.consts
    assert float(jaxpr_as_fun(simple)(2.0)[0]) == 4.0


def test_running_sums_are_taken_apart():
    """Σ w_t (z_1 + … + z_t) is a sum of terms of one site each; elements of no weight are not counted."""

    def model(x, z, data):
        return x["a"] * (data * jnp.cumsum(z["z"] * 1.0)).sum() - x["a"] ** 2

    data = np.array([0.5, -0.2, 0.3, 0.0])
    program = sumout.density(model, x={"a": (constraints.real, ())}, z={"z": sumout.finite(3, 4)}, data=data)
    structure = sumout.read(program)
    assert structure.num_edges == 0
    np.testing.assert_array_equal(np.concatenate([live.ravel() for live in structure.factorisation.live]), [1, 1, 1, 0])
    x, states = jnp.array([0.7]), joint_states(program)
    found = make_plan(structure).log_density(x, {"z": states["z"][0]}, data)
    np.testing.assert_allclose(found, log_marginal(program, states)(x), rtol=1e-9)


def test_impossible_values_add_nothing_in_checkpoints_within_loops():
    """Under whatever name JAX has for a checkpoint, derivatives at singular points are found inside."""

    def model(x, z, data):
        log = jax.checkpoint(jnp.log)

        def step(total, _):
            return jnp.sin(total) + log(z["z"][0] * jax.nn.sigmoid(x["a"])), None

        return jnp.where(z["z"][0] > 0, lax.scan(step, 0.0, None, 2)[0], -jnp.inf)

    program = sumout.density(model, x={"a": (constraints.real, ())}, z={"z": sumout.finite(2, 1)})
    plan, x, z = make_plan(sumout.read(program)), jnp.array([0.3]), {"z": np.ones(1, int)}
    slope = jax.grad(plan.log_density)(x, z, program.data)
    alone = jax.grad(lambda x: program.log_density(x, z, program.data))(x)
    np.testing.assert_allclose(slope, alone, rtol=1e-9)
