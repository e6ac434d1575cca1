"""Every exact kernel, on every model of `geweke.py`: the joint distribution of x, z and y stays as it is.

A kernel is added by a row in the table. A model has some 30 to 50 statistics, each of which exceeds five standard
errors with probability 6e-7: with another seed a test fails by chance once in 30,000 times. Faults planted on purpose
show by more than ten standard errors.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import sumout
from sumout.kernels.leapfrog import Point
from sumout.plan.plan import make_plan
from sumout.plan.target import make_target

from geweke import JOINTS, Chain, compare, worst

LIMIT = 5.0
CAUGHT = 10.0


@pytest.fixture(autouse=True)
def _compiled_quickly(_made_to_run_fast):
    """These runs are shorter than their compilation."""
    jax.config.update("jax_disable_most_optimizations", True)


def run(kernel, target):
    """A kernel of the library as a chain; what is summed out of z is drawn only to be read."""
    kernel = kernel.bind(target)

    def advance(key, state, data, t):
        return kernel.step(key, state, data, t)[0]

    def read(key, state, data):
        return state.x, target.recover(key, state.x, state.z, data)

    def renew(state, data):
        return replace(state, point=Point.at(target, state.x, state.z, data)) if hasattr(state, "point") else state

    return Chain(starting(kernel), advance, read, renew)


def starting(kernel):
    return lambda key, x, z, data: kernel.init(key, Point.at(kernel.target, x, z, data), z)


# name: the kernel, and whether z is drawn or summed out.
KERNELS = {
    "ghmc": (sumout.GHMC(step_size=0.4), True),
    "ghmc on the sum": (sumout.GHMC(step_size=0.4, num_leapfrog=2), False),
    "hmc": (sumout.HMC(step_size=0.4, num_leapfrog=4), True),
    "hmc on the sum": (sumout.HMC(step_size=0.4, num_leapfrog=4), False),
    "nuts": (sumout.NUTS(step_size=0.4, max_depth=4), True),
}
ALL = [
    *(("ghmc", model) for model in JOINTS),
    ("ghmc on the sum", "mixture"),
    ("hmc on the sum", "mixture"),
    ("hmc", "chain"),
    ("hmc", "inclusions"),
    ("nuts", "selection"),
    ("nuts", "inclusions"),
]
QUICK = {("ghmc", "selection"), ("hmc", "chain"), ("hmc", "inclusions")}
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.calibration) for case in ALL]


def make(model, is_drawn=True):
    program = JOINTS[model].make()
    return program, make_target(make_plan(sumout.read(program), JOINTS[model].plan if is_drawn else None))


@pytest.mark.parametrize(("name", "model"), CASES)
def test_kernel_keeps_the_joint_distribution(name, model):
    kernel, is_drawn = KERNELS[name]
    program, target = make(model, is_drawn)
    scores = compare(JOINTS[model], program, run(kernel, target))
    assert worst(scores) < LIMIT, scores


HMC = KERNELS["hmc"][0]


def without_jacobian(target):
    """x moves as if the share were not on the logit scale."""

    def log_density(x, z, data):
        return target.log_density(x, z, data) - jax.nn.log_sigmoid(x[0]) - jax.nn.log_sigmoid(-x[0])

    return run(HMC, replace(target, log_density=log_density))


def at_old_x(target):
    """z is drawn given the x of one step ago."""
    moving = HMC.bind(replace(target, move=lambda key, x, z, data: z))

    def init(key, x, z, data):
        return starting(moving)(key, x, z, data), x

    def advance(key, state, data, t):
        key_z, key_x = jax.random.split(key)
        state, x_before = state
        z = target.move(key_z, x_before, state.z, data)
        return moving.step(key_x, replace(state, z=z), data, t)[0], state.x

    return Chain(init, advance, lambda key, state, data: (state[0].x, state[0].z))


def all_at_once(target):
    """Neighbours are drawn together, each given the old value of the other."""

    def move(key, x, z, data):
        s = z["s"]

        def log_odds(i):
            on, off = ({"s": s.ravel().at[i].set(value).reshape(s.shape)} for value in (1, 0))
            return target.log_density(x, on, data) - target.log_density(x, off, data)

        probability = jax.nn.sigmoid(jax.vmap(log_odds)(jnp.arange(s.size)))
        return {"s": jax.random.bernoulli(key, probability).astype(s.dtype).reshape(s.shape)}

    return run(HMC, replace(target, move=move))


def always_accepting(target):
    """Leapfrog with a large step and no rejections."""
    step = 0.6

    def advance(key, state, data, t):
        del t
        key_z, key_momentum = jax.random.split(key)
        x, z = state.x, target.move(key_z, state.x, state.z, data)
        gradient = jax.grad(target.log_density)
        momentum = jax.random.normal(key_momentum, x.shape) + 0.5 * step * gradient(x, z, data)
        x = x + step * momentum
        return replace(state, point=Point.at(target, x, z, data), z=z)

    return Chain(starting(HMC.bind(target)), advance)


def with_first_data(target, data):
    """The data were compiled in: z never hears of new ones."""
    return run(HMC, replace(target, move=lambda key, x, z, _: target.move(key, x, z, data)))


FAULTS = {
    "no Jacobian": ("mixture", without_jacobian),
    "z at the old x": ("chain", at_old_x),
    "neighbours at once": ("picture", all_at_once),
    "always accepted": ("selection", always_accepting),
}


@pytest.mark.parametrize(
    "fault", [*(pytest.param(name, marks=pytest.mark.calibration) for name in [*FAULTS][:-1]), "always accepted"]
)
def test_faults_are_caught(fault):
    model, plant = FAULTS[fault]
    program, target = make(model)
    assert worst(compare(JOINTS[model], program, plant(target))) > CAUGHT


@pytest.mark.calibration
def test_data_compiled_in_are_caught():
    program, target = make("selection")
    assert worst(compare(JOINTS["selection"], program, with_first_data(target, program.data))) > CAUGHT
