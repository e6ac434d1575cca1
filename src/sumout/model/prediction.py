"""What is asked of a front end to predict data, what it returns, and which latents belong to new rows.

Given draws of all latents, replicated data come from the laws of the observed sites. For new data the latents that
belong to rows of data are drawn anew, from their laws given all else; the others are those of the posterior. Rows are
the plates (or named dimensions) of the observed sites, or where there are none their first axis. Where sizes do not
tell whether a latent belongs to new rows, the user has to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from sumout.errors import OptionError

UNNAMED = "_dim_"  # in the names of dimensions that the user has not named


@dataclass(frozen=True)
class Request:
    """What to predict.

    Attributes:
        keys: one for each draw, `(chain, draw, 2)`.
        latents: draws of the latents by name, with axes (chain, draw) in front; empty for draws from the prior.
        data: new data, by the names of the model's arguments; none for the data that the program was made of.
        redraw: latents to draw anew; None for those that belong to new rows.
        names: what to return; None for all observed sites.
    """

    keys: np.ndarray
    latents: Mapping[str, np.ndarray]
    data: Mapping[str, Any]
    redraw: Sequence[str] | None
    names: Sequence[str] | None

    @property
    def is_prior(self) -> bool:
        """Whether all latents are drawn from the prior."""
        return not self.latents


@dataclass(frozen=True)
class Prediction:
    """What was predicted.

    Attributes:
        values: draws by name, with axes (chain, draw) in front.
        latents: draws of the latents that were drawn anew, likewise.
        dims: names of dimensions, by variable.
        coords: labels along dimensions.
        warnings: why the draws may not be what is wanted.
    """

    values: dict[str, np.ndarray]
    latents: dict[str, np.ndarray]
    dims: Mapping[str, Sequence[str]]
    coords: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


Predictor = Callable[[Request], Prediction]


@dataclass(frozen=True)
class Axes:
    """Shape of a site, and names of its dimensions."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]

    @staticmethod
    def of(name: str, shape: Sequence[int], dims: Mapping[str, Sequence[str]]) -> "Axes":
        """With the names that are known."""
        known = tuple(dims.get(name, ()))
        return Axes(tuple(shape), tuple(known[i] if i < len(known) else f"{UNNAMED}{i}" for i in range(len(shape))))

    @property
    def named(self) -> dict[str, int]:
        """Lengths of the dimensions that the user has named."""
        return {dim: size for dim, size in zip(self.dims, self.shape, strict=True) if UNNAMED not in dim}


def check_names(given: Sequence[str], known: Sequence[str], what: str) -> None:
    """Refuse names that are not there."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" There are: {', '.join(known) or 'none'}."
            raise OptionError(f"predict: there is no {what} '{name}'.{hint}")


def choose_redrawn(
    before: Mapping[str, Axes],
    now: Mapping[str, Axes],
    latents: Sequence[str],
    observed: Sequence[str],
    discrete: Sequence[str],
    request: Request,
) -> tuple[str, ...]:
    """Which latents to draw anew.

    Args:
        before: the sites as the posterior has them.
        now: the sites with the new data.
        latents: names of those of which there are draws.
        observed: names of the observed sites.
        discrete: of the latents.
        request: what to predict.
    """
    shown = [name for name in latents if name in now]
    if request.redraw is not None:
        check_names(request.redraw, shown, "latent site")
        for name in shown:
            if name not in request.redraw and now[name].shape != before[name].shape:
                raise _changed(name, before, now)
        return tuple(request.redraw)
    if not request.data:
        return ()
    found = [name for name in shown if _is_new(name, before, now, observed, name in discrete)]
    return tuple(found)


def _is_new(
    name: str, before: Mapping[str, Axes], now: Mapping[str, Axes], observed: Sequence[str], is_discrete: bool
) -> bool:
    """Whether a latent belongs to rows of data; an error where nobody can know."""
    old, new = before[name], now[name]
    seen = [(before[y], now[y]) for y in observed if y in now]
    if old.shape != new.shape:
        pairs = {(a, b) for y in seen for a, b in zip(y[0].shape, y[1].shape, strict=False)}
        changes = {(a, b) for a, b in zip(old.shape, new.shape, strict=False) if a != b}
        if len(old.shape) != len(new.shape) or not changes <= pairs:
            raise _changed(name, before, now)
        return True
    for was, y in seen:
        if set(y.named) & set(new.named):
            if len(y.named) == 1:
                return True
            raise _unclear(name)
        # Without names the first axis may be that of the rows; a vector of parameters may happen to be as long.
        if not y.named and y.shape and not new.named and new.shape[:1] == y.shape[:1] == was.shape[:1]:
            if is_discrete:
                return True
            raise _unclear(name)
    return False


def _changed(name: str, before: Mapping[str, Axes], now: Mapping[str, Axes]) -> OptionError:
    return OptionError(
        f"predict: '{name}' has shape {before[name].shape} in the result and {now[name].shape} with the new data, and "
        f"not because there are other rows. Give data of the shape that the model was run with, or redraw=['{name}'] "
        "to draw it anew."
    )


def _unclear(name: str) -> OptionError:
    return OptionError(
        f"predict: with data of this size nobody can tell whether '{name}' belongs to new rows. List in redraw what is "
        f"to be drawn anew, as in redraw=['{name}']; redraw=[] takes all latents from the posterior."
    )
