"""Modes of the studies against maximising the densities marginalised by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to
from scipy.optimize import minimize

import sumout
from sumout_studies.models import STUDIES, SURVEY

CONSTANT = {
    "survey": 0.0,
    "gmm": 0.0,
    "hmm": -np.log(3),
}  # of the first state, which the hand-written density leaves out


def by_hand(study):
    """The top of the marginal density of the constrained parameters, and its height; climbed on the real line."""
    y, bijections = jnp.asarray(study.data()), {name: biject_to(spec[0]) for name, spec in study.x.items()}
    sizes = np.cumsum([int(np.prod(spec[1])) for spec in study.x.values()])[:-1]

    @jax.jit
    @jax.value_and_grad
    def descend(x):
        parts = zip(study.x.items(), jnp.split(x, sizes), strict=True)
        return -study.marginal({n: bijections[n](part.reshape(spec[1])) for (n, spec), part in parts}, y)

    found = minimize(descend, np.array(study.mean), jac=True, tol=1e-9)
    return found.x, -found.fun


def flat(study, found):
    """All of x on the real line; of the mixture with the lower mean first, as in the stored truth."""
    x = np.concatenate([np.ravel(found.unconstrained[name]) for name in study.x])
    return x[[1, 0, 3, 2]] if study.name == "gmm" and x[0] > x[1] else x


def test_the_survey_in_closed_form():
    """P(yes) = 1/4 + θ/2, so the density of a uniform θ is highest where that is the share of yes."""
    assert by_hand(SURVEY)[0] == pytest.approx(
        float(biject_to(SURVEY.x["theta"][0]).inv(2 * SURVEY.data().mean() - 0.5)), abs=1e-5
    )


@pytest.mark.parametrize(
    "name", ["survey", *(pytest.param(name, marks=pytest.mark.calibration) for name in ("gmm", "hmm"))]
)
def test_modes_with_z_summed_out(name):
    study = STUDIES[name]
    found = sumout.maximize(study.program(), starts=4)
    x, height = by_hand(study)
    assert found.converged
    np.testing.assert_allclose(flat(study, found), x, atol=1e-4)
    assert found.log_density == pytest.approx(height + CONSTANT[name], abs=1e-6)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.calibration) for name in STUDIES])
def test_modes_with_z_drawn(name):
    """Within 0.15 posterior sd; averages over 1,000 steps vary by 0.05 at most."""
    study = STUDIES[name]
    program = study.program()
    found = sumout.maximize(program, plan=dict.fromkeys(program.z, "draw"), starts=2)
    assert found.converged
    assert (np.abs(flat(study, found) - by_hand(study)[0]) / study.sd).max() < 0.15
