"""Replicated and new data from a NumPyro model: its own laws, with the observed sites left open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from sumout.errors import ModelError, SumoutError
from sumout.model.arguments import Arguments, as_jax
from sumout.model.containers import as_arrays
from sumout.model.numpyro_handlers import DefaultKey, Keyed, with_categories
from sumout.model.prediction import Axes, Prediction, Request, check_names, choose_redrawn
from sumout.model.validation import first_line, one_at_a_time
from sumout.randomness import as_jax_key


class Unobserved(Messenger):
    """A model with some observed sites as if nothing had been observed, inside loops and branches, too."""

    def __init__(self, fn: Callable[..., Any], names: Sequence[str]):
        super().__init__(fn)
        self.names = names

    def process_message(self, msg: Any) -> None:
        """Take the value away; a handler outside does not reach into a loop, so its body gets one of its own."""
        if msg["type"] == "sample" and msg["name"] in self.names and msg["is_observed"]:
            msg["value"], msg["is_observed"] = None, False
        if msg["type"] == "control_flow" and not msg.get("_control_flow_done", False):
            is_body = [callable(part) and not isinstance(part, jax.Array) for part in msg["args"]]
            parts = zip(msg["args"], is_body, strict=True)
            msg["args"] = tuple(Unobserved(part, self.names) if is_fn else part for part, is_fn in parts)


@dataclass(frozen=True, eq=False)
class NumPyroPredictor:
    """Predicts data of a model.

    Attributes:
        call: runs the model with its arguments, a dict.
        arguments: that the program was made of.
        parameters: names of the arguments.
        before: shape and dimensions of its sites.
        latents: names of the latent sites.
        discrete: names of the discrete ones.
        observed: names of the observed sites.
        all_dims: names of dimensions, from a trace.
    """

    call: Callable[[dict[str, Any]], Any]
    arguments: Arguments
    parameters: Sequence[str]
    before: Mapping[str, Axes]
    latents: Sequence[str]
    discrete: Sequence[str]
    observed: Sequence[str]
    all_dims: Callable[[dict[str, dict]], dict[str, tuple[str, ...]]]

    def __call__(self, request: Request) -> Prediction:
        """Draw what is asked for."""
        check_names(list(request.data), list(self.parameters), "argument")
        new = {name: as_arrays(value) for name, value in request.data.items()}
        try:
            return self._predict(request, new)
        except SumoutError:
            raise
        except NotImplementedError as error:
            raise ModelError(f"predict: a site has no law that can be drawn from: {first_line(error)}") from error
        except Exception as error:
            hint = (
                " Data that belong to the rows of others have to be given with them; of observed data only the shape "
                "counts."
            )
            raise ModelError(
                f"predict: the model could not be run: {first_line(error)}{hint if new else ''}"
            ) from error

    def _predict(self, request: Request, new: Mapping[str, Any]) -> Prediction:
        seen: dict[str, dict] = {}

        @one_at_a_time
        def run(key: Any, given: Mapping[str, Any], data: Any) -> dict[str, dict]:
            opened = Unobserved(with_categories(DefaultKey(self.call)), self.observed)
            drawn = Keyed(handlers.substitute(opened, data=dict(given)), as_jax_key(key))
            return dict(handlers.trace(drawn).get_trace({**self.arguments.rebuild(data), **new}))

        data = self.arguments.data
        jax.eval_shape(lambda key, data: seen.update(run(key, {}, data)), request.keys[0, 0], data)
        dims = self.all_dims(seen)
        sites = {name: site for name, site in seen.items() if site["type"] in ("sample", "deterministic")}
        now = {name: Axes.of(name, jnp.shape(site["value"]), dims) for name, site in sites.items()}
        observed = [name for name in self.observed if name in now]
        names = list(observed if request.names is None else request.names)
        check_names(names, list(now), "site")
        if request.is_prior:
            redrawn = tuple(name for name in self.latents if name in now)
        else:
            redrawn = choose_redrawn(self.before, now, self.latents, observed, self.discrete, request)
        given = {n: v for n, v in request.latents.items() if n in self.latents and n in now and n not in redrawn}
        kept = list(dict.fromkeys([*names, *redrawn]))

        def each(keys: Any, given: Any, data: Any) -> Any:
            def one(row: Any) -> dict[str, Any]:
                trace = run(row[0], row[1], data)
                return {name: trace[name]["value"] for name in kept}

            return jax.lax.map(one, (keys, given))

        shape = request.keys.shape[:2]
        flat = lambda a: np.asarray(a).reshape(-1, *a.shape[2:])  # noqa: E731
        rows = as_jax((flat(request.keys), {name: flat(value) for name, value in given.items()}))
        made = {n: np.asarray(v).reshape(*shape, *v.shape[1:]) for n, v in jax.jit(each)(*rows, data).items()}
        observations = {n: s["value"] for n, s in seen.items() if s["type"] == "sample" and s["is_observed"]}
        factors = [name for name, value in observations.items() if not jnp.size(value)]
        warnings = ()
        if factors and redrawn:
            warnings = (
                f"predict: the model has factors ({', '.join(factors)}), of which draws from laws "
                f"({', '.join(redrawn)}) know nothing.",
            )
        return Prediction(
            {name: made[name] for name in names}, {name: made[name] for name in redrawn}, dims, warnings=warnings
        )
