"""Plates of a NumPyro model: all of their rows, or some of them, each counted once.

`numpyro.plate("n", N, subsample_size=B)` has a model draw B of N rows and weigh each of their terms by N/B. The weight
is inside: with z summed out it would be log Σ_z p(y, z)^(N/B), which is no estimate of anything. Here it is taken away,
and which rows there are is decided outside the model: all of them (`AllRows`), or those of a minibatch (`SomeRows`),
whose sum over z is then weighed as a whole.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from numpyro.primitives import Messenger

from sumout.errors import ModelError
from sumout.model.row_program import Plate


class AllRows(Messenger):
    """Every plate has all of its rows, whatever its `subsample_size`."""

    def process_message(self, msg: Any) -> None:
        """Answer a plate that asks for a random subsample."""
        if msg["type"] == "plate" and msg["value"] is None:
            size = msg["args"][0]
            # What was asked for stays where a trace can find it.
            msg["value"], msg["kwargs"] = jnp.arange(size), {**msg["kwargs"], "asked": msg["args"][1]}
            msg["args"] = (size, None)


class SomeRows(AllRows):
    """One plate has some of its rows only, without the weight that NumPyro gives them.

    Args:
        plate: its name; or how many rows it has, for all plates of so many.
        rows: numbers of its rows.
    """

    def __init__(self, plate: str | int, rows: Any):
        super().__init__()
        self.plate, self.rows = plate, rows
        self._sizes: dict[str, int] = {}

    def process_message(self, msg: Any) -> None:
        """Give the plate its rows; take the weight from what stands in it."""
        if msg["type"] == "plate" and self.plate in (msg["name"], msg["args"][0]):
            self._sizes[msg["name"]] = size = msg["args"][0]
            msg["kwargs"] = {**msg["kwargs"], "asked": msg["args"][1]}
            msg["value"], msg["args"] = self.rows, (size, len(self.rows))
            return
        super().process_message(msg)
        inside = {frame.name for frame in msg.get("cond_indep_stack", ())} & self._sizes.keys()
        shares = [len(self.rows) / self._sizes[name] for name in inside if self._sizes[name] != len(self.rows)]
        if msg["type"] == "sample" and shares:
            weight = msg["scale"] * math.prod(shares)
            is_one = isinstance(weight, float) and abs(weight - 1) < 1e-9
            msg["scale"] = None if is_one else weight


def find_plates(seen: Mapping[str, dict]) -> dict[str, Plate]:
    """The plates of a model by what one run of it shows; only those around a sample site."""
    asked = {name: site["kwargs"].get("asked") for name, site in seen.items() if site["type"] == "plate"}
    dims: dict[str, dict[str, int]] = {}
    sizes: dict[str, set[int]] = {}
    values: dict[str, set[str]] = {}
    for name, site in seen.items():
        for frame in site.get("cond_indep_stack", ()) if site["type"] in ("sample", "deterministic") else ():
            if site["type"] == "deterministic":
                values.setdefault(frame.name, set()).add(name)
                continue
            dims.setdefault(frame.name, {})[name] = frame.dim
            sizes.setdefault(frame.name, set()).add(frame.size)
    return {
        name: Plate(sizes[name].pop(), asked.get(name), found, tuple(sorted(values.get(name, ()))))
        for name, found in dims.items()
        if len(sizes[name]) == 1
    }


def refuse_latents_of_rows(plates: Mapping[str, Plate], continuous: Mapping[str, Any]) -> None:
    """A subsampled plate has no continuous latents of its own, of which there would be as many as rows."""
    for name, plate in plates.items():
        inside = [site for site in plate.dims if site in continuous]
        if plate.subsample_size is not None and inside:
            raise ModelError(
                f"plate '{name}' draws a random subsample ({plate.subsample_size} of {plate.size}), but the continuous "
                f"site '{inside[0]}' is inside: every row has one of its own, which only its own row can move. Remove "
                "subsample_size, or take the site out of the plate."
            )
