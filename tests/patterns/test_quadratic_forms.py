"""Sites that meet in a quadratic form: what is recognised, and that the conditionals are those of the program."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import sumout
from sumout.checks.guard import Guard, MoveGuard
from sumout.errors import ReadingError
from sumout.model.initial_values import draw_z
from sumout.model.program import Program
from sumout.model.supports import Finite
from sumout.patterns.quadratic_gibbs import QuadraticGibbs
from sumout.plan.plan import make_plan, plan_for
from sumout.randomness import new_key, normal, split, uniform
from sumout.results.marginals import probabilities
from sumout.tables.blocks import pick
from sumout.tables.logsumexp import invert

NUM, ROWS = 6, 9
DATA = {
    "design": np.random.default_rng(0).normal(size=(ROWS, NUM)),
    "y": np.random.default_rng(1).normal(size=ROWS),
}
COEFFICIENTS = {"beta": (constraints.real, (NUM,)), "log_sigma": (constraints.real, ())}


def regression(predictor, prior=lambda x, z: norm.logpdf(x["beta"]).sum(), law=norm.logpdf, support=None):
    """A program in which all sites meet."""

    def density(x, z, data):
        centre = data["design"] @ predictor(x, z["s"])
        included = jnp.where(z["s"] > 0, jnp.log(0.3), jnp.log(0.7)).sum()
        likelihood = law(data["y"], centre, jnp.exp(x["log_sigma"])).sum()
        return included + likelihood + prior(x, z["s"]) - 0.5 * x["log_sigma"] ** 2

    x = COEFFICIENTS | ({"alpha": (constraints.real, (NUM,))} if prior is scale_for_each else {})
    return sumout.density(density, x=x, z={"s": support or sumout.finite(2, NUM)}, data=DATA)


UNEVEN = Finite(
    np.array([[0, 1, 2], [0, 1, 3], [1, 2, 3]] * 2), (NUM,), np.array([[True, True, False], [True] * 3, [True] * 3] * 2)
)


def times(x, s):
    return x["beta"] * s


def spins():
    def density(x, z, data):
        s = 2.0 * z["s"] - 1
        return 0.3 * x["a"] * s @ (data["design"].T @ data["design"]) @ s + (s * x["h"]).sum() - 0.5 * x["a"] ** 2

    x = {"a": (constraints.real, ()), "h": (constraints.real, (NUM,))}
    return sumout.density(density, x=x, z={"s": sumout.finite(2, NUM)}, data=DATA)


def scaled_slab(x, z):
    return norm.logpdf(x["beta"], 0.0, jnp.exp(x["log_sigma"])).sum()


def slab_by_inclusion(x, z):
    return norm.logpdf(x["beta"], 0.3 * z, jnp.where(z > 0, 1.0, 0.1)).sum()


def scale_for_each(x, z):
    return norm.logpdf(x["beta"]).sum() + norm.logpdf(x["alpha"]).sum()


def shifts():
    """Neither sites nor partners meet."""

    def density(x, z, data):
        likelihood = norm.logpdf(data["y"][:NUM], x["log_sigma"] + z["s"] * x["beta"], 0.5).sum()
        return norm.logpdf(x["beta"], 0.0, 3.0).sum() + likelihood - 0.5 * x["log_sigma"] ** 2 - 1.5 * z["s"].sum()

    return sumout.density(density, x=COEFFICIENTS, z={"s": sumout.finite(2, NUM)}, data=DATA)


def laplace(x, z):
    return -jnp.abs(x["beta"]).sum()


def chained(x, z):
    return norm.logpdf(x["beta"]).sum() - 0.1 * (x["beta"][1:] * x["beta"][:-1]).sum()


def by_its_neighbour(x, z):
    return norm.logpdf(x["beta"], 0.0, jnp.where(jnp.roll(z, 1) > 0, 1.0, 0.5)).sum()


def weighed_by_another(x, z):
    return norm.logpdf(x["beta"]).sum() + (jnp.roll(x["beta"], 1) * jnp.log(1.0 + z)).sum()


def logistic(y, centre, scale):
    return -jax.nn.softplus(centre * y / scale)


def student(y, centre, scale):
    return -2.0 * jnp.log1p(((y - centre) / scale) ** 2)


PAIRED = {
    "spike and slab": lambda: regression(times),
    "three values": lambda: regression(times, support=sumout.finite(3, NUM)),
    "uneven supports": lambda: regression(times, support=UNEVEN),
    "a common scale": lambda: regression(times, scaled_slab),
    "a slab by inclusion": lambda: regression(times, slab_by_inclusion),
    "shifted": lambda: regression(lambda x, s: (x["beta"] + 0.5) * (s - 0.5) + s**2),
    "written out": lambda: regression(lambda x, s: jnp.stack([x["beta"][i] * s[i] for i in range(NUM)])),
    "coefficients that meet in the prior": lambda: regression(times, chained),
    "inclusion in the prior only": lambda: regression(lambda x, s: x["beta"], slab_by_inclusion),
    "a scale for each": lambda: regression(lambda x, s: s * jnp.exp(x["alpha"]) * x["beta"], scale_for_each),
    "each datum with its own": shifts,
}
UNPAIRED = {
    "spins": spins,
    "a prior with a kink": lambda: regression(times, laplace),
    "a prior by the neighbour's inclusion": lambda: regression(times, by_its_neighbour),
    "weighed by another coefficient": lambda: regression(times, weighed_by_another),
    "coefficients in two numbers": lambda: regression(lambda x, s: (x["beta"] + jnp.roll(x["beta"], 1)) * s),
    "not linear in the coefficient": lambda: regression(lambda x, s: jnp.exp(x["beta"]) * s),
}
OTHERWISE = {
    "a logistic likelihood": lambda: regression(times, law=logistic),
    "heavy tails": lambda: regression(times, law=student),
    "numbers of two sites": lambda: regression(lambda x, s: x["beta"] * s * s[0]),
}


def move_of(program: Program):
    (move,) = make_plan(sumout.read(program), {"s": "gibbs"}).moves
    return move


def point(program, seed):
    key_x, key_z = split(new_key(seed))
    return normal(key_x, (program.num_x,), jnp.result_type(float)), draw_z(key_z, program, program.data)


@pytest.mark.parametrize("name", PAIRED)
def test_partners_are_found(name):
    move = move_of(PAIRED[name]())
    assert isinstance(move, QuadraticGibbs)
    names = list(move.form.structure.program.x)
    start = 0 if names[0] == "beta" else NUM
    assert move.form.partners.tolist() == list(range(start, start + NUM))


@pytest.mark.parametrize("name", UNPAIRED)
def test_a_form_without_partners_is_found(name):
    move = move_of(UNPAIRED[name]())
    assert isinstance(move, QuadraticGibbs)
    assert not move.moves_x


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_not_quadratic_is_moved_by_its_factors(name):
    assert not isinstance(move_of(OTHERWISE[name]()), QuadraticGibbs)


@pytest.mark.parametrize("name", PAIRED | UNPAIRED)
def test_the_log_density_changes_as_the_conditionals_say(name):
    program = (PAIRED | UNPAIRED)[name]()
    move = move_of(program)
    (x, z), (other_x, other_z) = point(program, 0), point(program, 1)
    changes = jax.jit(move.log_changes)(x, z, other_x, other_z, program.data)
    density = jax.jit(program.log_density)
    for j in range(NUM):
        at = move.form.partners[j] if move.moves_x else None
        x_j = x if at is None else x.at[at].set(other_x[at])
        z_j = {"s": z["s"].at[j].set(other_z["s"][j])}
        change = density(x_j, z_j, program.data) - density(x, z, program.data)
        np.testing.assert_allclose(changes[j], change, atol=1e-9)


@pytest.mark.parametrize("name", ["three values", "uneven supports", "a slab by inclusion", "spins"])
@pytest.mark.parametrize("with_partners", [False, True])
def test_a_sweep_takes_one_site_after_the_other(name, with_partners):
    """By the rows of the matrix, as by the conditionals computed anew after every site, with the same dice."""
    program = (PAIRED | UNPAIRED)[name]()
    move = move_of(program)
    if with_partners and not move.moves_x:
        return
    x, z = point(program, 2)
    key = jnp.asarray(new_key(3))
    key_z, key_x = split(key)
    levels, noise = uniform(key_z, (NUM,), x.dtype), normal(key_x, (NUM,), x.dtype)
    tabulate = move._with_partners if with_partners else move._at_this_x

    @jax.jit
    def one(j, x, z):
        linear, matrix = move._form(x, z, program.data)
        rest = linear - matrix @ move.form.numbers(x, z, program.data).at[j].set(0.0)
        found = tabulate(jnp.diag(matrix), x, z, program.data)
        log_weights, means = (table[:, j] for table in found.at(rest))
        k = invert(log_weights[:, None], levels[j, None])[0]
        u = means[k] + noise[j] * jnp.sqrt(found.variance[k, j])
        values = pick(move.values, jnp.full(NUM, k))
        return x.at[j].set(u) if with_partners else x, {"s": z["s"].at[j].set(values[j])}

    expected = x, z
    for j in range(NUM):
        expected = one(j, *expected)
    made = move.jointly(key, x, z, program.data) if with_partners else (x, move(key, x, z, program.data))
    np.testing.assert_array_equal(made[1]["s"], expected[1]["s"])
    np.testing.assert_allclose(made[0], expected[0], atol=1e-9)


def test_a_wrong_form_is_noticed():
    program = regression(times)
    plan = plan_for(program, {"s": "gibbs"})
    x, z = point(program, 0)
    Guard(plan).compare(new_key(1), x, z)
    (move,) = plan.moves
    wrong = replace(move, form=replace(move.form, partners=np.roll(move.form.partners, 1)))
    with pytest.raises(ReadingError, match="quadratic form"):
        MoveGuard(program, wrong).compare(x, z, x + 1.0, {"s": 1 - z["s"]})


def test_a_site_without_a_law_stays_as_it_is():
    """Where the prior is improper, an indicator that is off leaves its coefficient without a conditional."""
    program = regression(times, lambda x, z: 0.0)
    move = move_of(program)
    x, z = point(program, 0)
    assert move.moves_x
    new_x, new_z = move.jointly(jnp.asarray(new_key(1)), x, z, program.data)
    np.testing.assert_array_equal(new_x, x)
    np.testing.assert_array_equal(new_z["s"], z["s"])


def test_explain_tells_of_the_form():
    told = sumout.explain(regression(times), plan={"s": "gibbs"})
    assert "quadratic form" in told
    assert "together with its own coordinate of beta" in told
    assert "together" not in sumout.explain(spins(), plan={"s": "gibbs"}).split("How they depend on each other")[0]


@pytest.mark.parametrize("name", ["uneven supports", "spins"])
def test_probabilities_given_all_else_are_those_of_the_program(name):
    program = (PAIRED | UNPAIRED)[name]()
    x, z = point(program, 0)
    found = np.asarray(probabilities(plan_for(program, {"s": "gibbs"}), x, z, program.data))
    values, allowed = program.z["s"].support.rows()
    density = jax.jit(program.log_density)
    for j, (row, may) in enumerate(zip(values, allowed, strict=True)):
        each = jnp.array([density(x, {"s": z["s"].at[j].set(value)}, program.data) for value in row])
        np.testing.assert_allclose(found[j], jax.nn.softmax(jnp.where(may, each, -jnp.inf)), atol=1e-9)


def spike_of(num, rows=12, seed=0):
    rng = np.random.default_rng(seed)
    data = {"design": rng.normal(size=(rows, num)), "y": rng.normal(size=rows)}

    def density(x, z, data):
        centre = data["design"] @ (x["beta"] * z["s"])
        return norm.logpdf(data["y"], centre).sum() + norm.logpdf(x["beta"]).sum() - z["s"].sum()

    x = {"beta": (constraints.real, (num,))}
    return sumout.density(density, x=x, z={"s": sumout.finite(2, num)}, data=data)


@pytest.mark.parametrize("num", [2, 3, 5, 8])
def test_sites_with_partners_are_drawn_with_them_by_default(num):
    program = spike_of(num)
    (move,) = plan_for(program).moves
    assert isinstance(move, QuadraticGibbs)
    assert move.moves_x
    assert "each with a coordinate of x" in sumout.explain(program)
    assert plan_for(program, {"s": "sum"}).sums_all


@pytest.mark.parametrize(
    "use", [lambda p: sumout.explain(p, kernel="ghmc"), lambda p: sumout.explain(p, kernel="sghmc")]
)
def test_kernels_that_move_z_alone_have_it_summed_out(use):
    assert "summed out exactly" in use(spike_of(3))


def test_modes_are_found_with_z_summed_out():
    assert sumout.maximize(spike_of(2), starts=2, progress=False).log_density is not None


@pytest.mark.parametrize(
    "name", ["inclusion in the prior only", "coefficients that meet in the prior", "each datum with its own"]
)
def test_a_sweep_with_partners_leaves_the_joint_law_invariant(name):
    """From exact draws, by a grid over all z and Gaussians given z; 20,000 of them, five standard errors."""
    program = PAIRED[name]()
    move, data = move_of(program), program.data
    rest = jnp.zeros(program.num_x)
    partners = np.asarray(move.form.partners)
    all_z = np.array(np.meshgrid(*[[0, 1]] * NUM, indexing="ij")).reshape(NUM, -1).T

    def log_density(u, s):
        return program.log_density(rest.at[partners].set(u), {"s": s}, data)

    def weigh(s):
        gradient, hessian = jax.grad(log_density)(jnp.zeros(NUM), s), jax.hessian(log_density)(jnp.zeros(NUM), s)
        covariance = jnp.linalg.inv(-hessian)
        mean = covariance @ gradient
        log_weight = log_density(jnp.zeros(NUM), s) + 0.5 * gradient @ mean + 0.5 * jnp.linalg.slogdet(covariance)[1]
        return log_weight, mean, jnp.linalg.cholesky(covariance)

    log_weights, means, factors = jax.jit(jax.vmap(weigh))(jnp.asarray(all_z))
    rng, num = np.random.default_rng(0), 20_000
    weights = np.asarray(jax.nn.softmax(log_weights))
    which = rng.choice(len(all_z), size=num, p=weights / weights.sum())
    u = np.asarray(means)[which] + np.einsum("nij,nj->ni", np.asarray(factors)[which], rng.normal(size=(num, NUM)))
    x = jnp.tile(rest, (num, 1)).at[:, partners].set(u)
    keys = jnp.asarray(rng.integers(0, 2**32, size=(num, 2), dtype=np.uint32))
    step = jax.jit(jax.vmap(lambda key, x, s: move.jointly(key, x, {"s": s}, data)))
    new_x, new_z = step(keys, x, jnp.asarray(all_z[which]))
    before = np.concatenate([all_z[which], u, u**2, u * all_z[which], u * np.roll(u, 1, axis=1)], axis=1)
    s, u = np.asarray(new_z["s"]), np.asarray(new_x)[:, partners]
    after = np.concatenate([s, u, u**2, u * s, u * np.roll(u, 1, axis=1)], axis=1)
    error = np.sqrt((before.var(axis=0) + after.var(axis=0)) / num)
    assert (np.abs(after.mean(axis=0) - before.mean(axis=0)) < 5 * error + 1e-12).all()
