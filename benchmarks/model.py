"""A model of the benchmark: its data, and the forms in which each sampler takes it.

All forms have the same priors and the same likelihood, up to constants; `python -m benchmarks --check` compares them.
Forms are made by functions that import what they need themselves, so that a process that runs Stan never loads JAX.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

NAMES = "survey gmm hmm coal spike potts factorial gmm_large hmm_large lda".split()
PROGRAMS = Path(__file__).parent / "stan_programs"
BUGS_PROGRAMS = Path(__file__).parent / "bugs_programs"

Data = dict[str, np.ndarray]
Draws = dict[str, np.ndarray]  # by parameter, with axes (chain, draw) in front


@dataclass(frozen=True)
class Forms:
    """A model in NumPyro.

    Attributes:
        left_in: as one thinks of it, with z left in: what sumout gets.
        by_hand: with z summed out by hand, where that can be done.
        enumerated: for NumPyro's enumeration; None for `left_in` as it is.
        drawn: for NumPyro's samplers of z, which do not look into scans; None for `left_in` as it is.
    """

    left_in: Callable[..., None]
    by_hand: Callable[..., None] | None = None
    enumerated: Callable[..., None] | None = None
    drawn: Callable[..., None] | None = None


def as_it_is(draws: Draws) -> Draws:
    """The draws, as the user names them."""
    return draws


@dataclass(frozen=True)
class Model:
    """A model of the benchmark.

    Attributes:
        name: on the command line.
        title: in tables.
        data: makes the data, by the names of the NumPyro model's arguments.
        parameters: names of the continuous parameters.
        numpyro: makes the forms in NumPyro.
        pymc: makes the model in PyMC with z left in, from the data.
        pymc_by_hand: likewise with z summed out by hand; None where that cannot be done.
        stan: text of the Stan program with z summed out by hand; None where that cannot be done.
        stan_data: what the Stan program calls the data.
        bugs_data: the data of the BUGS program of that name, z left in; None where there is no such program.
        partly_summed: samplers of z that cannot take all of it, and whose form has the rest summed out by hand.
        scored: from draws to what is compared with the reference.
    """

    name: str
    title: str
    data: Callable[[], Data]
    parameters: tuple[str, ...]
    numpyro: Callable[[], Forms]
    pymc: Callable[[Data], Any]
    pymc_by_hand: Callable[[Data], Any] | None = None
    stan: Callable[[], str] | None = None
    stan_data: Callable[[Data], dict[str, Any]] = dict
    bugs_data: Callable[[Data], dict[str, Any]] | None = None
    partly_summed: tuple[str, ...] = ()
    scored: Callable[[Draws], Draws] = as_it_is


def find_model(name: str) -> Model:
    """The model of that name."""
    return import_module(f"benchmarks.models.{name}").MODEL


def stan_program(name: str) -> str:
    """The text of a Stan program of the benchmark."""
    return (PROGRAMS / f"{name}.stan").read_text()


def bugs_program(name: str) -> str:
    """The text of a BUGS program of the benchmark."""
    return (BUGS_PROGRAMS / f"{name}.bug").read_text()
