"""Which variables of the posterior a result has, and what of z draws must have for that.

A million discrete sites are four megabytes a draw as NumPyro has them. What nobody asks for is not recorded, and
large sites are recorded in the smallest type that holds their values.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np

from sumout.compile.policy import LARGE_SITE
from sumout.errors import OptionError
from sumout.jaxpr.equations import used_inputs
from sumout.model.packing import Packs
from sumout.model.program import DiscreteSite, Program
from sumout.model.supports import Finite


def choose_kept(program: Program, keep: Any) -> frozenset[str] | None:
    """Names of the variables that the posterior of a result has, all of them if None.

    Args:
        program: as the user wrote it.
        keep: names; or by name whether to keep a variable, where those that are not named are kept.
    """
    if keep is None:
        return None
    if isinstance(keep, str) or not isinstance(keep, Collection):
        raise OptionError(
            f'sample: keep={keep!r}: expected names, ("mu",), or what not to keep by name, {{"z": False}}.'
        )
    known = [*jax.eval_shape(program.constrain, *program.abstract_arguments()), *program.z]
    unknown = [name for name in keep if name not in known]
    if unknown:
        raise OptionError(f"sample: keep: there is no variable '{unknown[0]}'; there are {', '.join(known)}.")
    if isinstance(keep, Mapping):
        wrong = [name for name, is_kept in keep.items() if not isinstance(is_kept, bool)]
        if wrong:
            raise OptionError(f"sample: keep: '{wrong[0]}': {keep[wrong[0]]!r} is not True or False.")
        kept = frozenset(name for name in known if keep.get(name, True))
    else:
        kept = frozenset(keep)
    if not kept:
        raise OptionError("sample: keep leaves no variable in the posterior: name at least one.")
    return kept


def keeps(kept: frozenset[str] | None, packs: Packs, name: str) -> bool:
    """Whether a variable, or one of those that are one array under this name, is kept."""
    return kept is None or any(user in kept for user in packs.names(name))


def recorded_types(program: Program, process: Callable[..., Any], kept: frozenset[str] | None) -> dict[str, Any]:
    """By name the types in which discrete sites are recorded; those that nobody needs are left out.

    Args:
        program: whose draws they are.
        process: `(key, x, z, data) -> what is computed from a draw`.
        kept: variables of the posterior.
    """
    types = {name: small_type(site) for name, site in program.z.items()}
    if kept is None:
        return types
    x, z, data = program.abstract_arguments()
    closed = jax.make_jaxpr(process)(jax.ShapeDtypeStruct((2,), np.uint32), x, z, data)
    used = np.any(np.reshape(used_inputs(closed), (-1, len(closed.jaxpr.invars))), axis=0)[2:]
    needed = {name for name, is_used in zip(sorted(z), used[: len(z)], strict=True) if is_used}
    own = {name for name in z if name not in program.forward and keeps(kept, program.packs, name)}
    return {name: kind for name, kind in types.items() if name in needed | own}


def small_type(site: DiscreteSite) -> Any:
    """The type in which values of a site are recorded: the smallest where there are many elements, else its own.

    Small types overflow where one calculates with them, so that small sites keep theirs.
    """
    support = site.support
    if site.num_elements < LARGE_SITE or not isinstance(support, Finite) or np.dtype(site.dtype).kind not in "iu":
        return site.dtype
    low, high = int(support.values.min()), int(support.values.max())
    # With a sign, which costs nothing up to 127: differences are what they should be.
    smallest = np.result_type(*(np.min_scalar_type(end) for end in (min(low, -1), -1 - max(high, 0))))
    return smallest if smallest.itemsize < np.dtype(site.dtype).itemsize else site.dtype
