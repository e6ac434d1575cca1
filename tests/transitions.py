"""The transition matrices of moves on z, on spaces that can be listed."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from sumout.moves.gibbs import Gibbs
from sumout.moves.metropolis import STEP_PROBABILITIES, STEP_SIZES, AroundTheCircle, FromSampler
from sumout.moves.windows import WIDTH, CountWindows
from sumout.patterns.quadratic_gibbs import QuadraticGibbs

from enumeration import state_numbers

MOST_VALUES = 256


def member_tables(move, x, states, data, stride=None):
    """For every joint state: values `(S, C, n)` each member may go to, and the probability `(S, C, n)` that it does."""
    if isinstance(move, Gibbs):
        values = jnp.broadcast_to(move.values, (move.values.shape[0], move.block.size))
        probability = jax.vmap(lambda z: move.conditionals(x, z, data))(states)
        return jnp.broadcast_to(values, (len(probability), *values.shape)), probability
    if isinstance(move, CountWindows):
        return window_table(move, x, states, data, stride)
    current = jax.vmap(move.block.take)(states)
    proposals, weights = proposal_table(move, current)
    accept = jax.vmap(lambda z, p: jax.vmap(lambda q: move.log_acceptance(x, z, q, data))(p))(states, proposals)
    accepted = weights * jnp.exp(accept)
    values = jnp.concatenate([proposals, current[:, None]], axis=1)
    return values, jnp.concatenate([accepted, 1 - accepted.sum(axis=1, keepdims=True)], axis=1)


def window_table(move, x, states, data, stride):
    """Of one stride: the values of all windows that a state may be in."""

    def of_state(z):
        current = move.block.take(z)

        def of_window(offset):
            values = move.window(current, stride, jnp.full(current.shape, offset))
            return values, jax.nn.softmax(move.log_weights(x, z, values, data), axis=0) / WIDTH

        values, weights = jax.vmap(of_window)(jnp.arange(WIDTH))
        return values.reshape(WIDTH**2, -1), weights.reshape(WIDTH**2, -1)

    return jax.vmap(of_state)(states)


def proposal_table(move, current):
    """Proposed values `(S, C, n)` and their probabilities."""
    propose = move.propose
    steps = jnp.concatenate([STEP_SIZES, -STEP_SIZES])[None, :, None]
    weights = jnp.concatenate([STEP_PROBABILITIES, STEP_PROBABILITIES])[None, :, None] / 2
    if isinstance(propose, AroundTheCircle):
        shifts = jnp.arange(1, MOST_VALUES)[None, :, None]
        anywhere = (shifts < propose.num_values) / jnp.maximum(propose.num_values - 1, 1)
        near = weights + 0 * anywhere[:, :1]  # for as many members
        columns = propose.first + jnp.arange(MOST_VALUES)[:, None] if propose.values is None else propose.values
        columns = jnp.broadcast_to(columns, (len(columns), move.block.size))
        index = jnp.argmax(columns[None] == current[:, None], axis=1)
        place = (index[:, None] + jnp.concatenate([shifts, steps], axis=1)) % propose.num_values
        values = jnp.take_along_axis(jnp.broadcast_to(columns, (len(current), *columns.shape)), place, axis=1)
        return values, jnp.concatenate([anywhere, near], axis=1) / 2
    assert isinstance(propose, FromSampler)
    values = jnp.arange(2)[None, :, None] + jnp.zeros_like(current)[:, None]
    return values, jnp.where(values == 1, 0.3, 0.7)


def transition_matrix(move, x, states, data, stride=None):
    """P of one block: its members move independently, so that it is the product of what each of them does."""
    flat, _ = state_numbers(states)
    values, probability = (np.asarray(a) for a in jax.jit(member_tables)(move, x, states, data, stride))
    member = member_columns(move, states)
    matrix = np.ones((len(flat), len(flat)))
    for column, i in enumerate(member):
        if i < 0:
            matrix *= flat[:, column, None] == flat[:, column]
        else:
            matrix *= moved(flat[:, column], values[:, :, i], probability[:, :, i])
    return matrix


def moved(listed, values, probability):
    """The probability `(S, S)` that an element goes from its value in one state to that in another.

    `listed` are its values in the states, `values` those it may go to from each, with their probabilities.
    """
    kinds, kind = np.unique(listed, return_inverse=True)
    place = np.searchsorted(kinds, values).clip(max=len(kinds) - 1)
    is_listed = kinds[place] == values
    assert (probability[~is_listed] == 0).all(), "it may go where no state is listed"
    table = np.zeros((len(listed), len(kinds)))
    np.add.at(table, (np.arange(len(listed))[:, None], place), np.where(is_listed, probability, 0.0))
    return table[:, kind]


def transition_matrices(plan, x, states):
    """P of every part of a sweep."""
    for move in itertools.chain.from_iterable(move.split() for move in plan.moves):
        if isinstance(move, QuadraticGibbs):
            yield from site_matrices(move, x, states, plan.structure.program.data)
        else:
            yield transition_matrix(move, x, states, plan.structure.program.data)


def site_matrices(move, x, states, data):
    """P of every site of a move that takes one after the other."""
    flat, _ = state_numbers(states)
    tables = np.asarray(jax.jit(jax.vmap(lambda z: move.conditionals(x, z, data)))(states))
    member = member_columns(move, states)
    for j in range(move.block.size):
        others, (own,) = flat[:, member != j], flat[:, member == j].T
        stays = (others[:, None] == others).all(axis=2)
        values = np.broadcast_to(move.values[:, j % move.values.shape[1]], tables.shape[:2])
        yield stays * moved(own, values, tables[:, :, j])


def member_columns(move, states):
    """For every element of z the member it is, −1 if none."""
    parts = []
    for name, array in states.items():
        size = int(np.prod(array.shape[1:]))
        slot = np.full(size, -1)
        if name in move.block.names:
            given = move.block.slots[move.block.names.index(name)]
            slot = np.arange(size) if given is None else np.where(np.asarray(given) < move.block.size, given, -1)
        parts.append(slot)
    return np.concatenate(parts)
