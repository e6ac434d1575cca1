"""Options by other libraries' names, and tracebacks that show the user's lines only."""

import inspect
import traceback

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import ModelError, OptionError

from models import mixture


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("num_samples", "Here it is draws="),
        ("num_warmup", "Here it is tune="),
        ("num_chains", "Here it is chains="),
        ("rng_key", "Here it is seed="),
        ("random_seed", "Here it is seed="),
        ("nuts_sampler", "Here it is kernel="),
        ("target_accept", "Here it is kernel=sumout.HMC(target_acceptance="),
        ("cores", "None is needed: chains run side by side"),
        ("drws", "Did you mean 'draws'?"),
        ("qqq", "The options are program, kernel, draws, tune"),
    ],
)
def test_foreign_and_misspelt_options(option, told):
    program = sumout.program(mixture, jnp.arange(3.0))
    with pytest.raises(OptionError) as caught:
        sumout.sample(program, **{option: 1})
    assert str(caught.value).startswith(f"sample: there is no option '{option}'.") and told in str(caught.value)


def test_other_functions_have_other_options():
    with pytest.raises(OptionError, match=r"predict: there is no option 'num_samples'\. Here it is draws="):
        sumout.predict(None, num_samples=3)
    with pytest.raises(OptionError, match=r"summary: there is no option 'varnames'\. Did you mean 'var_names'"):
        sumout.summary(None, varnames=["a"])


def broken(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(jnp.zeros(7) * z, 1).to_event(1), obs=y["nothing"])


def files_of(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_tracebacks_show_the_users_lines_only():
    with pytest.raises(ModelError) as caught:
        sumout.program(broken, {"y": jnp.zeros(7)})
    assert set(files_of(caught.value)) == {__file__}
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line.endswith('obs=y["nothing"])')
    assert set(files_of(caught.value.__cause__)) == {__file__}
    with pytest.raises(OptionError) as refused:
        sumout.sample(sumout.program(mixture, jnp.arange(3.0)), draws=-1)
    assert set(files_of(refused.value)) == {__file__}


def raised_by_jax(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu[3, 4], 1), obs=y)


def test_errors_that_jax_raises_are_not_shown_twice():
    with pytest.raises(ModelError) as caught:
        sumout.program(raised_by_jax, jnp.zeros(7))
    shown = "".join(traceback.format_exception(caught.value))
    assert "site-packages" not in shown and "IndexError: Too many indices" in shown


def test_a_decorated_function_is_documented_as_itself():
    assert sumout.sample.__module__ == "sumout.run.sample"
    assert "draws: int" in str(inspect.signature(sumout.sample))
