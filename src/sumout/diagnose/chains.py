"""What went wrong in which chain, and at which draw: divergences, numbers that are not finite, chains stuck or lost."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_SHOWN = 3  # draws of a chain, and chains
FEWEST_DRAWS = 20  # from which a chain can be judged
LEAST_MOVEMENT = 0.02  # of the draws; below, a chain is stuck
LARGEST_GAP = 5.0  # nats, and standard deviations of the log density


def complain_of_chains(idata: "xr.DataTree") -> list[str]:
    """In plain words which chains, and which of their draws, should not be trusted."""
    return [*_divergences(idata), *_not_finite(idata), *_stuck(idata), *_lost(idata)]


def _divergences(idata: "xr.DataTree") -> list[str]:
    stats = idata["sample_stats"].to_dataset()
    if "diverging" not in stats or not stats["diverging"].values.any():
        return []
    where = np.asarray(stats["diverging"].values, bool)
    return [
        f"{where.sum()} draws diverged (energy or gradient out of bounds): {locate(where)}. Try a smaller step size, "
        "and look at the values there."
    ]


def _not_finite(idata: "xr.DataTree") -> list[str]:
    """Draws at which a value, the gradient or the log density is NaN or infinite."""
    broken = ~np.isfinite(np.asarray(idata["sample_stats"]["lp"].values, float))
    for group in ("unconstrained_posterior", "unconstrained_gradient"):
        broken = broken | ~np.isfinite(_flat(idata, group)).all(axis=-1)
    if not broken.any():
        return []
    return [
        f"at {broken.sum()} draws the log density, its gradient or a value is not finite: {locate(broken)}. Run "
        "sumout.check on the program, or keep chains out of there by a narrower prior or support."
    ]


def _stuck(idata: "xr.DataTree") -> list[str]:
    """Chains whose continuous variables hardly ever change."""
    x = _flat(idata, "unconstrained_posterior")
    if x.shape[-1] == 0 or x.shape[1] < FEWEST_DRAWS:
        return []
    moved = (np.diff(x, axis=1) != 0).any(axis=-1).mean(axis=1)
    stuck = np.flatnonzero(moved < LEAST_MOVEMENT)
    if not len(stuck):
        return []
    return [
        f"{_chains(stuck)} stuck: of the draws there, at most {moved[stuck].max():.0%} differ from the one before. Try "
        "another seed, a longer warm-up (tune) or a smaller step_size."
    ]


def _lost(idata: "xr.DataTree") -> list[str]:
    """Chains whose log density stays far below that of the best chain."""
    lp = np.asarray(idata["sample_stats"]["lp"].values, float)
    if len(lp) < 2 or lp.shape[1] < FEWEST_DRAWS or not np.isfinite(lp).any(axis=1).all():
        return []
    lp = np.where(np.isfinite(lp), lp, np.nan)
    low, middle, high = np.nanquantile(lp, [0.05, 0.5, 0.95], axis=1)
    best = int(np.argmax(middle))
    gap = LARGEST_GAP * max(1.0, float(np.nanstd(lp[best])))
    lost = np.flatnonzero((high < low[best]) & (middle < middle[best] - gap))
    if not len(lost):
        return []
    return [
        f"{_chains(lost)} lost: the log density there is around {middle[lost].max():.1f}, in chain {best} around "
        f"{middle[best]:.1f}. It may sit in a minor mode or not have arrived: try another seed or a longer warm-up "
        "(tune), and do not mix its draws with the others."
    ]


def locate(where: np.ndarray) -> str:
    """Marked draws, axes (chain, draw), as in "chain 0 (draws 3, 17, 18 and 4 more), chain 2 (draw 5)"."""
    chains = np.flatnonzero(where.any(axis=1))
    told = []
    for chain in chains[:MOST_SHOWN].tolist():
        draws = np.flatnonzero(where[chain])
        more = f" and {len(draws) - MOST_SHOWN} more" if len(draws) > MOST_SHOWN else ""
        shown = ", ".join(map(str, draws[:MOST_SHOWN].tolist()))
        told.append(f"chain {chain} (draw{'s' if len(draws) > 1 else ''} {shown}{more})")
    return ", ".join(told) + (f" and {len(chains) - MOST_SHOWN} more chains" if len(chains) > MOST_SHOWN else "")


def _chains(numbers: np.ndarray) -> str:
    listed = ", ".join(map(str, numbers.tolist()))
    return f"chain {listed} is" if len(numbers) == 1 else f"chains {listed} are"


def _flat(idata: "xr.DataTree", group: str) -> np.ndarray:
    """All variables of a group side by side, `(chain, draw, coordinate)`."""
    sizes = idata["posterior"].sizes
    parts = [np.zeros((sizes["chain"], sizes["draw"], 0))]
    if group in idata.children:
        parts += [np.asarray(v.values).reshape(*v.shape[:2], -1) for v in idata[group].to_dataset().data_vars.values()]
    return np.concatenate(parts, axis=-1)
