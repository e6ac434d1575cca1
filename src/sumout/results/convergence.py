"""Warnings of chains that disagree and of too few effective draws: by variable, with advice.

Every continuous variable and deterministic is judged by its effective draws in the bulk and in the tails and by r_hat
(`effective_draws.py`), a discrete one by those of its sites that look worst. What label switching explains
(`label_switching.py`) is reported as that. More draws are advised only where they help.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.results.effective_draws import (
    LEAST_RHAT,
    SiteMixing,
    Verdict,
    effective_draws,
    judge_agreement,
    judge_sites,
    slowest,
)
from sumout.results.label_switching import find_switching

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

FEWEST_EFFECTIVE = 100  # for each chain, in the bulk and in the tails
FEWEST_OF_DENSITY = 25  # likewise, of lp, which is of no interest in itself
MOST_TIMES_LONGER = 20  # a run that would have to be longer than that needs something else
TIMES_BETTER = 2  # effective draws once components are in order, lest small gains by sorting count as labels
MOST_SHOWN = 5  # names
MOST_ELEMENTS = 3  # of a variable that are named; of more it is told how many


@dataclass(frozen=True)
class Mixing:
    """How the variables of a run mix.

    Attributes:
        effective: the fewest effective draws, of bulk and tails, of every row of the table.
        verdicts: of the rows whose r_hat is not small.
        names: the variable of every row.
        sites: of discrete variables.
        counts: other variables all of whose values are whole numbers, as functions of z alone have.
        drawn: discrete variables of which elements are drawn between trajectories, not summed out.
        num_chains: of the run.
        num_draws: of each chain.
    """

    effective: dict[str, float]
    verdicts: dict[str, Verdict]
    names: dict[str, str]
    sites: dict[str, SiteMixing]
    counts: set[str]
    drawn: set[str]
    num_chains: int
    num_draws: int

    @staticmethod
    def read(idata: "xr.DataTree", table: Any, shown: list[str], discrete: list[str]) -> "Mixing":
        """Judge what is shown, and all of z.

        Args:
            idata: the run.
            table: ArviZ's, of the variables shown.
            shown: names of variables, in the order of the table's rows.
            discrete: names of discrete variables.
        """
        posterior = idata["posterior"]
        chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
        columns = [
            (name, np.asarray(posterior[name].values).reshape(chains, draws, -1)[..., i])
            for name in shown
            for i in range(int(np.prod(posterior[name].shape[2:])))
        ]
        rows = list(map(str, table.index))
        effective = table[["ess_bulk", "ess_tail"]].min(axis=1).to_numpy(float)
        suspects = np.flatnonzero(table["r_hat"].to_numpy(float) > LEAST_RHAT) if chains > 1 else []
        return Mixing(
            dict(zip(rows, effective.tolist(), strict=True)),
            {rows[i]: judge_agreement(columns[i][1], len(rows)) for i in suspects},
            {row: name for row, (name, _) in zip(rows, columns, strict=True)},
            {name: judge_sites(np.asarray(posterior[name].values), FEWEST_EFFECTIVE * chains) for name in discrete},
            {name for name in shown if _are_whole(np.asarray(posterior[name].values))},
            set(np.atleast_1d(posterior.attrs.get("drawn", discrete)).tolist()),
            chains,
            draws,
        )

    @property
    def enough(self) -> int:
        """Effective draws that are enough."""
        return FEWEST_EFFECTIVE * self.num_chains

    @property
    def apart(self) -> dict[str, Verdict]:
        """Rows about which chains disagree."""
        return {row: verdict for row, verdict in self.verdicts.items() if verdict.disagrees}

    @property
    def slow(self) -> dict[str, float]:
        """Other rows with too few effective draws, and how many they have."""
        apart = self.apart
        return {row: ess for row, ess in self.effective.items() if ess < self.enough and row not in apart}


def mixing_warnings(idata: "xr.DataTree", mixing: Mixing) -> list[str]:
    """In plain words which variables mix too slowly, or differ between chains, and what helps."""
    switched, explained = _switched_labels(idata, mixing)
    found = [switched] if switched else []
    found += _apart(mixing, explained)
    found += _frozen(mixing, explained)
    found += _slow(mixing, explained)
    return found or _slow_density(idata, mixing)


def _switched_labels(idata: "xr.DataTree", mixing: Mixing) -> tuple[str, set[str]]:
    """A warning of label switching, and the variables that it explains."""
    posterior = idata["posterior"]
    bad = {mixing.names[row] for row in (*mixing.apart, *mixing.slow)}
    x = {name: np.asarray(posterior[name].values) for name in sorted(bad) if posterior[name].ndim > 2}
    z = {name: np.asarray(posterior[name].values) for name, sites in mixing.sites.items() if _is_bad(sites)}

    if mixing.num_draws < 4 or not x:
        return "", set()
    others = {name: np.asarray(posterior[name].values) for name in set(mixing.names.values()) - set(x)}
    least = min(mixing.effective[row] for row in mixing.names if mixing.names[row] in x)
    enough = max(mixing.enough, TIMES_BETTER * least)
    apart = {mixing.names[row] for row in mixing.apart}
    found = find_switching(x, z, others, apart, lambda value: _agrees(value, mixing, enough))
    names = {name for switching in found for name in switching.names}
    if not found:
        return "", names
    places = "between chains and within them" if any(one.is_within for one in found) else "between chains"
    return (
        f"the labels of the components of {_join(sorted(names))} switch {places}: the chains agree once the "
        "components are put in the same order. More draws do not help. Order the components in the model, for "
        f"example by OrderedTransform on {found[0].by}, or the draws by "
        f"sumout.relabel(result, by='{found[0].by}'), or look only at what does not depend on labels."
    ), names


def _are_whole(value: np.ndarray) -> bool:
    return value.dtype.kind in "biu" or bool((value == np.round(value)).all())


def _is_bad(sites: SiteMixing) -> bool:
    return bool(sites.num_apart or sites.num_slow)


def _agrees(value: np.ndarray, mixing: Mixing, enough: float) -> bool:
    """Whether chains agree about every element of a variable, and have so many effective draws of it."""
    if value.dtype.kind in "biu":
        return not _is_bad(judge_sites(value, mixing.enough))
    flat = value.reshape(*value.shape[:2], -1)
    columns = [flat[..., i] for i in range(flat.shape[-1])]
    if any(judge_agreement(column, len(mixing.effective)).disagrees for column in columns if np.ptp(column) > 0):
        return False
    return bool(np.nanmin([effective_draws(column) for column in columns]) >= enough)


def _apart(mixing: Mixing, explained: set[str]) -> list[str]:
    rows = {row: verdict for row, verdict in mixing.apart.items() if mixing.names[row] not in explained}
    pairs = [(verdict.r_hat, verdict.bound) for verdict in rows.values()]
    names = _shorten(rows, mixing)
    for name, sites in mixing.sites.items():
        if sites.num_apart > sites.num_frozen and name not in explained:
            names.append(_of_sites(name, sites.num_apart, sites.num_sites))
            pairs.append((sites.r_hat, sites.bound))
    if not names:
        return []
    r_hat, bound = max(pairs)
    seen = (
        f"chains disagree about {_join(names)} (r_hat up to {_digits(r_hat, bound)}, where chance explains "
        f"{_digits(bound, r_hat)})"
    )
    if rows and all(verdict.is_drifting for verdict in rows.values()):
        return [f"{seen}: they are still moving apart or together. Use a longer warm-up (tune) and more draws."]
    return [
        f"{seen}: each stays in a mode of its own, and more draws do not help. Try {_other_plan(mixing)}other seeds "
        "or starts, or look at what tells the modes apart and rule out those that are not meant by a prior or an order."
    ]


def _frozen(mixing: Mixing, explained: set[str]) -> list[str]:
    stuck = {name: s for name, s in mixing.sites.items() if s.num_apart and s.num_apart == s.num_frozen}
    names = [_of_sites(name, s.num_frozen, s.num_sites) for name, s in stuck.items() if name not in explained]
    if not names:
        return []
    return [
        f"chains disagree about {_join(names)}, which never changes within a chain: more draws do not help. Try "
        f"{_other_plan(mixing)}or moves that change several sites at once."
    ]


def _slow(mixing: Mixing, explained: set[str]) -> list[str]:
    rows = {row: ess for row, ess in mixing.slow.items() if mixing.names[row] not in explained}
    sites = {name: s for name, s in mixing.sites.items() if s.num_slow and not s.num_apart and name not in explained}
    names = _shorten(rows, mixing) + [_of_sites(name, s.num_slow, s.num_sites) for name, s in sites.items()]
    if not names:
        return []
    least = min([*rows.values(), *(s.effective for s in sites.values())])
    seen = f"the draws of {_join(names)} are worth only {least:.0f} independent ones or so, of {mixing.enough} wanted"
    times = mixing.enough / max(least, 1e-9)
    other = _other_plan(mixing) + "another kernel such as NUTS or HMC(dense=True)"
    if times > MOST_TIMES_LONGER:
        return [f"{seen}: too few for more draws to help. Try {other}, or reparametrise the model."]
    needed = _round_up(times * mixing.num_draws)
    return [f"{seen} ({FEWEST_EFFECTIVE} for each chain): draws={needed} would be enough. Or try {other}."]


def _slow_density(idata: "xr.DataTree", mixing: Mixing) -> list[str]:
    """Of a run in which all else is fine."""
    effective = slowest(np.asarray(idata["sample_stats"]["lp"].values, float)[..., None])[0]
    if not effective < FEWEST_OF_DENSITY * mixing.num_chains:
        return []
    return [
        f"the draws of lp, the log density, are worth only {effective:.0f} independent ones or so: the chains move "
        "slowly between regions of high and low density. Make more draws, or reparametrise the model."
    ]


def _other_plan(mixing: Mixing) -> str:
    """Advice where z may be at fault: it mixes badly itself, or a deterministic with whole numbers does."""
    drawn = [name for name in mixing.sites if name in mixing.drawn]
    bad = [name for name in drawn if _is_bad(mixing.sites[name])]
    counts = mixing.counts & {mixing.names[row] for row in (*mixing.apart, *mixing.slow)}
    if not drawn or not (bad or counts):
        return ""
    return f'another plan (plan={{"{(bad or drawn)[0]}": "sum"}} or "joint": see sumout.explain), '


def _shorten(rows: Any, mixing: Mixing) -> list[str]:
    """Names of rows; of many elements of a variable, how many they are."""
    counts, sizes = Counter(mixing.names[row] for row in rows), Counter(mixing.names.values())
    found = []
    for name, num in counts.items():
        elements = [row for row in rows if mixing.names[row] == name]
        some = [name if num == sizes[name] else f"{name} ({num} of {sizes[name]})"]
        found += elements if num <= MOST_ELEMENTS else some
    return found


def _of_sites(name: str, num: int, total: int) -> str:
    return name if num == total else f"{name} (at least {num} of {total} sites)"


def _join(names: list[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (" and others" if len(names) > MOST_SHOWN else "")


def _digits(value: float, other: float) -> str:
    """With as many digits as it takes to tell it from the other."""
    return next((f"{value:.{n}f}" for n in (2, 3, 4) if abs(value - other) > 2 * 10.0**-n), f"{value:.4f}")


def _round_up(number: float) -> str:
    """To two digits."""
    unit = 10 ** max(int(np.floor(np.log10(number))) - 1, 0)
    return f"{int(np.ceil(number / unit)) * unit}"
