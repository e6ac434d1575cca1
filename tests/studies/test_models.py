"""The stored exact posteriors of the studies: whole, at one with themselves and with Stan's long runs."""

import json
from importlib.resources import files

import numpy as np
import pytest
from scipy.special import expit

from sumout_studies.models import STUDIES, SURVEY

STAN = json.loads(files("sumout_studies").joinpath("data", "stan.json").read_text())
MOST_ERRORS = 4  # standard errors between Stan and the truth; all numbers are stored, so chance plays no part


def moments(values, weights):
    weights = weights / weights.sum()
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def survey_weights(logit):
    """The posterior of θ with the coins summed out by hand, times dθ / d logit θ."""
    theta, y = expit(logit), SURVEY.data()
    likelihood = (0.25 + 0.5 * theta) ** y.sum() * (0.75 - 0.5 * theta) ** (1 - y).sum()
    return likelihood * theta * expit(-logit)


def test_survey_by_quadrature():
    logit = np.arange(-40, 60, 0.05)
    mean, sd = moments(logit, survey_weights(logit))
    np.testing.assert_allclose([*SURVEY.mean, *SURVEY.sd], [mean, sd], rtol=1e-9)
    (grid,), (density,) = SURVEY.exact.grid, SURVEY.exact.density
    np.testing.assert_allclose(density, survey_weights(grid) / survey_weights(logit).sum() / 0.05, rtol=1e-4)


@pytest.mark.parametrize("name", STUDIES)
def test_density_is_whole_and_has_the_stored_moments(name):
    exact = STUDIES[name].exact
    assert exact.grid.shape == exact.density.shape
    for values, density, *stored in zip(exact.grid, exact.density, exact.mean, exact.sd, strict=True):
        assert np.trapezoid(density, values) == pytest.approx(1, abs=0.01)
        mean, sd = moments(values, density)  # the values are equally spaced
        assert abs(mean - stored[0]) < 0.01 * stored[1]
        assert sd == pytest.approx(stored[1], rel=0.01)
        assert density[[0, -1]].max() < 1e-3 * density.max()


@pytest.mark.parametrize("name", STUDIES)
def test_each_coordinate_has_its_own_name(name):
    study = STUDIES[name]
    assert len(set(study.exact.coordinates)) == len(study.mean) == len(study.sd)
    assert len(study.mean) == sum(int(np.prod(shape)) for _, shape in study.x.values())


@pytest.mark.parametrize("name", STUDIES)
def test_moments_agree_with_stan(name):
    """The error of an sd is that of a normal's: 1/√2 of the mean's."""
    study, stan = STUDIES[name], STAN[name]
    error = np.array(study.sd) / np.sqrt(stan["ess"])
    assert np.all(np.abs(np.subtract(stan["mean"], study.mean)) < MOST_ERRORS * error)
    assert np.all(np.abs(np.subtract(stan["sd"], study.sd)) < MOST_ERRORS * error / np.sqrt(2))
