"""The forward pass of a hidden Markov model, log p(y), as written by hand for JAX and for PyMC.

Probabilities are scaled to sum to one at every step, so that a step has products only; all exponentials are taken
before the loop.
"""

from typing import Any


def forward_in_jax(first: Any, transition: Any, log_emission: Any) -> Any:
    """Log p(y).

    Args:
        first: probabilities of the first state, `(state,)`.
        transition: probabilities `(from, to)`.
        log_emission: log densities of each datum `(step, state)`.
    """
    import jax
    import jax.numpy as jnp

    largest = log_emission.max(axis=1, keepdims=True)
    emission = jnp.exp(log_emission - jax.lax.stop_gradient(largest))

    def step(alpha, emission):
        joint = (alpha @ transition) * emission
        total = joint.sum()
        return joint / total, jnp.log(total)

    start = first * emission[0]
    _, logs = jax.lax.scan(step, start / start.sum(), emission[1:])
    return jnp.log(start.sum()) + logs.sum() + jax.lax.stop_gradient(largest).sum()


def forward_in_pymc(first: Any, transition: Any, log_emission: Any) -> Any:
    """The same in PyTensor."""
    import pytensor
    import pytensor.tensor as pt

    largest = log_emission.max(axis=1, keepdims=True)
    emission = pt.exp(log_emission - largest)

    def step(emission, alpha, transition):
        joint = (alpha @ transition) * emission
        total = joint.sum()
        return joint / total, pt.log(total)

    start = first * emission[0]
    alphas_and_logs = pytensor.scan(
        step, sequences=[emission[1:]], outputs_info=[start / start.sum(), None], non_sequences=[transition],
        strict=True, return_updates=False,
    )  # fmt: skip
    return pt.log(start.sum()) + alphas_and_logs[1].sum() + largest.sum()
