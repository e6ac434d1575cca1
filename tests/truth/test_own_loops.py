"""NumPyro's loop and a loop of one's own draw from the posteriors that `sumout.sample` draws from.

The programs and their moments are those of `known_moments.py`. Every mean must come within 0.1 sd, every sd within 8 %
of the truth, and the means of z within 5 of their errors of those from `sumout.sample`. With some 3,000 effective draws
the errors are about 0.02 sd and 1.5 %: the bounds are five of these away. Where z is drawn, draws depend on each other,
and several steps make one. Tails of the mixture are long: it gets ten times the draws. `make test` runs one row of the
table, and the exact laws in `tests/run/`; `make calibrate` runs all.
"""

import arviz_stats
import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import sumout

from known_moments import KNOWN_MOMENTS

STEPS = {"abundance": 20, "picture": 5, "blocks": 5, "selection": 10}  # of the kernel for a draw; 1 where not named
CHAINS, WARMUP, DRAWS = 4, 1000, 2000
MORE_DRAWS = {"mixture": 20_000}
CASES = [
    (loop, name, drawn)
    for loop in ("numpyro_kernel", "steps")
    for name in KNOWN_MOMENTS
    for drawn in ((False, True) if KNOWN_MOMENTS[name].plan else (True,))
]


def by_numpyro(program, plan, num_steps, num_draws):
    """Draws by NumPyro's MCMC, on the real line and as z, `(chain, draw, …)`."""
    kernel = sumout.numpyro_kernel(program, plan=plan, num_steps=num_steps)
    options = {"num_warmup": WARMUP, "num_samples": num_draws, "num_chains": CHAINS, "chain_method": "vectorized"}
    mcmc = MCMC(kernel, progress_bar=False, **options)
    mcmc.run(jax.random.key(7), extra_fields=tuple(f"z.{name}" for name in program.x))
    fields = mcmc.get_extra_fields(group_by_chain=True)
    x = [fields[f"z.{name}"].reshape(CHAINS, num_draws, -1) for name in program.x]
    draws = mcmc.get_samples(group_by_chain=True)
    return np.concatenate(x, axis=-1), {name: np.asarray(draws[name]) for name in program.z}


def by_steps(program, plan, num_steps, num_draws):
    """Draws by steps in a scan of one's own."""
    steps = sumout.steps(program, plan=plan)

    def chain(key):
        key_tune, key_run = jax.random.split(key)
        state = sumout.tune(steps, key_tune, WARMUP * num_steps)

        def draw(state, key):
            keys = jax.random.split(key, num_steps)
            state, _ = jax.lax.scan(lambda state, key: (steps.step(key, state)[0], None), state, keys)
            values = steps.constrain(state)
            return state, (state.x, {name: values[name] for name in program.z})

        return jax.lax.scan(draw, state, jax.random.split(key_run, num_draws))[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(7), CHAINS)))


LOOPS = {"numpyro_kernel": by_numpyro, "steps": by_steps}


@pytest.mark.filterwarnings("ignore::sumout.errors.ModelWarning")
@pytest.mark.calibration
@pytest.mark.parametrize(("loop", "name", "drawn"), CASES)
def test_moments(loop, name, drawn):
    known = KNOWN_MOMENTS[name]
    program, plan = known.make(), known.plan if drawn else {}
    num_draws = MORE_DRAWS.get(name, DRAWS)
    x, z = LOOPS[loop](program, plan, STEPS.get(name, 3) if drawn else 1, num_draws)
    assert np.max(np.abs(x.mean(axis=(0, 1)) - known.mean) / known.sd) < 0.1
    assert np.max(np.abs(x.std(axis=(0, 1)) / known.sd - 1)) < 0.08
    reference = sumout.sample(program, draws=DRAWS, seed=3, log_likelihood=False, progress=False).posterior
    for site, draws in z.items():
        both = [a.reshape(*a.shape[:2], -1).mean(axis=-1) for a in (draws, reference[site].values)]
        errors = [a.std() / np.sqrt(arviz_stats.ess(a, chain_axis=0, draw_axis=1)) for a in both]
        assert abs(both[0].mean() - both[1].mean()) < 5 * np.hypot(*errors) + 1e-9, site
