"""Replicated and new data from a PyMC model, by PyMC's own forward sampling.

PyMC decides by what has changed since the posterior was drawn which latents to draw anew. Here that is decided
beforehand (`prediction.py`), for all front ends alike: PyMC is given the draws that are to be kept, and told that
nothing has changed.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
import pymc as pm
import xarray as xr
from arviz import InferenceData
from pytensor.tensor.type import TensorType

from sumout.errors import ModelError, SumoutError
from sumout.model.containers import as_arrays
from sumout.model.prediction import Axes, Prediction, Request, check_names, choose_redrawn
from sumout.model.pymc_data import all_variables, labels_of, observed_variables, shared_variables
from sumout.model.pymc_supports import is_dirac, is_discrete
from sumout.model.validation import first_line
from sumout.randomness import generator


@dataclass(frozen=True, eq=False)
class PyMCPredictor:
    """Predicts data of a model.

    Attributes:
        model_ref: of the model, which is not kept alive by its program.
        dims: names of dimensions, by variable.
    """

    model_ref: "ref[pm.Model]"
    dims: Mapping[str, Sequence[str]]

    @property
    def model(self) -> pm.Model:
        """Whose data they are."""
        model = self.model_ref()
        if model is None:
            raise ModelError("predict: the PyMC model is gone; keep it as long as its program is to predict data.")
        return model

    def __call__(self, request: Request) -> Prediction:
        """Draw what is asked for; the model's data are as before afterwards."""
        check_names(list(request.data), [v.name for v in self.model.data_vars], "pm.Data")
        latents = [rv.name for rv in self.model.free_RVs if not is_dirac(rv)]
        observed = [rv.name for rv in observed_variables(self.model)]
        before = self._axes([*latents, *observed])
        try:
            with _with_data(self.model, {name: as_arrays(value) for name, value in request.data.items()}):
                return self._predict(request, latents, observed, before)
        except SumoutError:
            raise
        except Exception as error:
            raise ModelError(f"predict: PyMC could not draw from the model: {first_line(error)}") from error

    def _axes(self, names: Sequence[str]) -> dict[str, Axes]:
        """Shapes and dimensions at present."""
        shapes = self.model.eval_rv_shapes()
        for rv in observed_variables(self.model):
            shapes[rv.name] = tuple(int(n) for n in np.atleast_1d(rv.shape.eval()))
        return {name: Axes.of(name, shapes[name], self.dims) for name in names}

    def _predict(self, request: Request, latents: list[str], observed: list[str], before: Mapping[str, Axes]):
        model = self.model
        names = list(observed if request.names is None else request.names)
        check_names(names, [v.name for v in [*all_variables(model), *model.deterministics]], "variable")
        now = self._axes([*latents, *observed])
        discrete = [rv.name for rv in model.free_RVs if is_discrete(rv)]
        if request.is_prior:
            redrawn = tuple(latents)
        else:
            redrawn = choose_redrawn(before, now, latents, observed, discrete, request)
        kept = {name: value for name, value in request.latents.items() if name in latents and name not in redrawn}
        wanted = list(dict.fromkeys([*names, *redrawn]))
        made = self._draw(request, kept, wanted)
        told = ()
        if model.potentials and redrawn:
            anew = ", ".join(redrawn)
            told = (f"predict: the model has potentials, of which draws from laws ({anew}) know nothing.",)
        return Prediction({n: made[n] for n in names}, {n: made[n] for n in redrawn}, self.dims, labels_of(model), told)

    def _draw(self, request: Request, kept: Mapping[str, np.ndarray], wanted: list[str]) -> dict[str, np.ndarray]:
        shape = request.keys.shape[:2]
        seed = int(generator(request.keys[0, 0]).integers(2**30))
        options: dict[str, Any] = {"model": self.model, "var_names": wanted, "random_seed": seed}
        with warnings.catch_warnings(), _quiet():
            warnings.filterwarnings("ignore", message="The effect of Potentials")
            if request.is_prior:
                drawn = pm.sample_prior_predictive(shape[1], return_inferencedata=False, **options)
                return {name: np.asarray(drawn[name])[None] for name in wanted}  # pyright: ignore[reportArgumentType]
            trace = self._as_trace(kept, shape)
            drawn = pm.sample_posterior_predictive(trace, return_inferencedata=False, progressbar=False, **options)
            return {name: np.asarray(drawn[name]) for name in wanted}  # pyright: ignore[reportArgumentType]

    def _as_trace(self, kept: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> InferenceData:
        """The draws, and data and coordinates as they are now, so that none seems to have changed."""
        arrays = {name: (["chain", "draw", *(f"{name}_{i}" for i in range(v.ndim - 2))], v) for name, v in kept.items()}
        numbers = {axis: np.arange(size) for axis, size in zip(("chain", "draw"), shape, strict=True)}
        shared = [v for v in shared_variables(all_variables(self.model)) if isinstance(v.type, TensorType) and v.name]
        values = {v.name: np.asarray(v.get_value()) for v in shared}
        data = {name: ([f"{name}_{i}" for i in range(v.ndim)], v) for name, v in values.items()}
        labels = labels_of(self.model)
        lengths = {dim: int(length.eval()) for dim, length in self.model.dim_lengths.items()}
        coords = {dim: labels.get(dim, np.arange(n)) for dim, n in lengths.items()}
        data = {name: value for name, value in data.items() if name not in coords}  # lengths of dimensions
        return InferenceData(posterior=xr.Dataset(arrays, numbers), constant_data=xr.Dataset(data, coords))


@contextmanager
def _with_data(model: pm.Model, data: Mapping[str, Any]) -> Iterator[None]:
    """The model with other data, and its own again afterwards."""
    before = {name: np.array(model[name].get_value()) for name in data}
    coords = dict(model.coords)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coordinates that are set anew
            pm.set_data(dict(data), model, coords=_labels(model, data))
        yield
    finally:
        pm.set_data(before, model, coords={dim: coords[dim] for dim in _labels(model, before) if dim in coords})


def _labels(model: pm.Model, data: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as labels of the dimensions whose length changes."""
    found = {}
    for name, value in data.items():
        for dim, size in zip(model.named_vars_to_dims.get(name, ()), np.shape(value), strict=False):
            labels = model.coords.get(dim)
            if labels is not None and len(labels) != size:
                found[dim] = np.arange(size)
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyMC's lines about what it samples."""
    log = logging.getLogger("pymc.sampling.forward")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
