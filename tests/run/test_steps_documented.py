"""The examples of `docs/own_loops.md`, run from top to bottom, against the exact posterior."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sumout.errors import ModelWarning

DOCUMENT = Path(__file__).parents[2] / "docs/own_loops.md"


def exact_moments(num_yes, num_no):
    """Mean and sd of theta, and the mode of its logit's density, by quadrature."""
    theta = (np.arange(100_000) + 0.5) / 100_000
    yes = 0.25 + 0.5 * theta
    log_density = np.log(theta * (1 - theta)) + num_yes * np.log(yes) + num_no * np.log(1 - yes)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = (weights * theta).sum()
    mode = theta[np.argmax(log_density + np.log(theta * (1 - theta)))]
    return mean, np.sqrt((weights * (theta - mean) ** 2).sum()), mode


@pytest.mark.filterwarnings("ignore", category=ModelWarning)
@pytest.mark.calibration
def test_the_examples_give_the_posterior():
    """Every bound is at least five errors of the number it judges; gradients with a finite step have a bias besides."""
    scope = {"__name__": "examples"}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(block, scope)
    mean, sd, mode = exact_moments(33, 27)
    for name in ("samples", "draws"):
        assert float(scope[name]["theta"].mean()) == pytest.approx(mean, abs=0.2 * sd)
        assert float(scope[name]["theta"].std()) == pytest.approx(sd, rel=0.15)
    assert scope["draws"]["coin"].shape == (2, 1000, 60)
    assert scope["answers"]["y"].shape == (2000, 60)
    assert float(scope["thetas"].mean()) == pytest.approx(mean, abs=0.25 * sd)
    assert float(scope["theta_by_sghmc"].mean()) == pytest.approx(mean, abs=0.25 * sd)
    assert float(jnp.std(scope["theta_by_sghmc"])) == pytest.approx(sd, rel=0.2)
    assert scope["modes"][0] == pytest.approx(mode, abs=0.03)
    assert scope["modes"][1] == pytest.approx(exact_moments(27, 33)[2], abs=0.03)
