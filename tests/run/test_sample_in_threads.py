"""Several runs in threads at once make the draws that each makes alone."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout

Y = np.array([4.9, 0.2, -0.4, 5.3])


def model(y, scale):
    mu = numpyro.sample("mu", dist.Normal(0, scale))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)


def draws(program, seed):
    result = sumout.sample(program, draws=10, tune=10, chains=2, seed=seed, progress=False)
    return {name: values.values for name, values in result.posterior.data_vars.items()}


def check_equal(some, others):
    for one, other in zip(some, others, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])


def test_models_do_not_mix():
    """Each model lets the others go ahead in its midst."""

    def hesitating(y, scale):
        mu = numpyro.sample("mu", dist.Normal(0, scale))
        sleep(0.003)
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            sleep(0.003)
            numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)

    def density(number):
        program = sumout.program(hesitating, Y, 10.0 + number)
        return float(program.log_density(np.ones(1, np.float32), {"z": np.array([1, 0, 0, 1], np.int32)}, program.data))

    was_validating = dist.Distribution._validate_args
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(density, range(8)))
    assert dist.Distribution._validate_args == was_validating
    assert together == [density(number) for number in range(8)]


@pytest.mark.calibration
def test_programs_of_their_own():
    def run(seed):
        return draws(sumout.program(model, Y, 10.0 + seed), seed)

    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(run, range(8)))
    check_equal(together, map(run, range(8)))


def test_one_program():
    program = sumout.program(model, Y, 10.0)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda seed: draws(program, seed), range(4)))
    check_equal(together, [draws(program, seed) for seed in range(4)])
