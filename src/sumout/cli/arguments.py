"""From names in files to the parameters of a function."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sumout.cli.data_files import Item
from sumout.errors import FileError, OptionError


def bind(
    function: Callable[..., Any], label: str, items: Mapping[str, Item], settings: Mapping[str, Any], *, quiet: bool
) -> inspect.BoundArguments:
    """Give every parameter what has its name.

    Args:
        function: whose parameters they are.
        label: what to call it.
        items: what the files hold.
        settings: single numbers, from the command line.
        quiet: do not tell what is left out.
    """
    signature = _signature(function, label)
    items = _rename_only_column(signature, items, settings)
    _check_names(signature, label, items, settings)
    used = {name: item for name, item in items.items() if _takes_any(signature) or name in _named(signature)}
    unused = [name for name in items if name not in used]
    if unused and not quiet:
        print(f"Left out, as {label}{signature} has no such parameter: {', '.join(unused)}.", file=sys.stderr)
    values = {name: _fitting(name, item) for name, item in used.items()} | dict(settings)
    unnamed = [name for name, p in signature.parameters.items() if p.kind is p.POSITIONAL_ONLY and name in values]
    positional = [values.pop(name) for name in unnamed]
    return signature.bind(*positional, **values)


def _signature(function: Callable[..., Any], label: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{label} has no signature to read its parameters from; write a function around it."
        ) from error


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters that can be filled by name, or by position alone."""
    return {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _takes_any(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


def _required(signature: inspect.Signature) -> list[str]:
    return [name for name, parameter in _named(signature).items() if parameter.default is parameter.empty]


def _rename_only_column(
    signature: inspect.Signature, items: Mapping[str, Item], settings: Mapping[str, Any]
) -> Mapping[str, Item]:
    """A table of one column belongs to the one parameter there is, whatever its name."""
    named = _named(signature)
    if len(items) != 1 or not next(iter(items.values())).is_only_column or next(iter(items)) in named:
        return items
    open_ones = [name for name in _required(signature) if name not in settings]
    if not open_ones:
        open_ones = [name for name in named if name not in settings]
    return dict(zip(open_ones, items.values(), strict=True)) if len(open_ones) == 1 else items


def _check_names(
    signature: inspect.Signature, label: str, items: Mapping[str, Item], settings: Mapping[str, Any]
) -> None:
    """Refuse what would leave a parameter empty, a file unused or a setting without effect."""
    named = _named(signature)
    for name in settings:
        if name in items:
            raise OptionError(f"'{name}' is given by --set and by {items[name].source}; give it once.")
        if name not in named and not _takes_any(signature):
            raise OptionError(f"--set {name}: {label}{signature} has no such parameter.")
    missing = [name for name in _required(signature) if name not in items and name not in settings]
    useless = [] if _takes_any(signature) else _unused_files(items, set(named))
    if not missing and not useless:
        return
    files = {str(item.source): [n for n, i in items.items() if i.source == item.source] for item in items.values()}
    holds = [f"  {source} has: {', '.join(names)}" for source, names in files.items()] or ["  no --data given"]
    trouble = f"wants: {', '.join(missing)}" if missing else f"would use nothing of {', '.join(useless)}"
    wants = f"  {label}{signature} {trouble}"
    if not items:
        hint = "Give a file with it by --data; single numbers can be given as in --set K=3."
    elif {"x", "z"} <= set(named):
        hint = "For a log density, name a function that takes the data and returns sumout.density(…)."
    else:
        hint = "Rename the columns or the parameters; single numbers can be given as in --set K=3."
    raise OptionError("\n".join(["the data do not fit the model.", wants, *holds, hint]))


def _unused_files(items: Mapping[str, Item], named: set[str]) -> list[str]:
    """Files of which nothing would be used."""
    useful = {item.source for name, item in items.items() if name in named}
    return sorted({str(item.source) for item in items.values()} - {str(source) for source in useful})


def _fitting(name: str, item: Item) -> Any:
    """The value, if JAX can hold it."""
    import jax

    value = item.read()
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        held = np.iinfo(jax.dtypes.canonicalize_dtype(value.dtype))
        if value.max() > held.max or value.min() < held.min:
            raise FileError(
                f"{item.source}: '{name}' has whole numbers beyond {held.max:,}, which JAX would cut off in single "
                "precision; set JAX_ENABLE_X64=1 in the environment, or make the numbers smaller."
            )
    return value
