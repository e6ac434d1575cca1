"""The targets, for one model: what is asked for, what was found, and why where it is missed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.samplers.names import BY_HAND, LEFT_IN, SAMPLERS
from benchmarks.score import Score

REASONS = Path(__file__).parent / "reasons.toml"
LEFT_IN_RATIO, BY_HAND_RATIO, COLD_RATIO = 10.0, 1.0, 0.5
LARGER_RATIO = {"hmm": 3.0, "gmm_large": 3.0}
NATIVE = {"survey": 100_000.0, "gmm": 113_000.0, "hmm": 13_000.0}  # effective draws a second of native code, one core
NATIVE_RATIO = 1 / 3


@dataclass(frozen=True)
class Target:
    """A target on one model.

    Attributes:
        key: its letter.
        words: what is compared.
        needed: the ratio asked for, in words.
        ratio: the one found; None where there is nothing to compare with.
        is_reached: whether it is; None where nothing was asked for, or sumout was not run.
        note: what it was compared with.
        reason: why it is missed, where that is known.
    """

    key: str
    words: str
    needed: str
    ratio: float | None
    is_reached: bool | None
    note: str
    reason: str = ""


def read_reasons() -> dict[str, dict[str, str]]:
    """Why targets are missed, by model and letter."""
    return tomllib.loads(REASONS.read_text())


def judge(model: str, scores: Mapping[str, Score], reasons: Mapping[str, str]) -> list[Target]:
    """All targets on a model, from the scores of its samplers by name."""
    ours = scores.get("sumout")
    peers = [score for name, score in scores.items() if name != "sumout"]
    found = [
        _speed("a", "warm ESS/s over the best peer with z left in", LEFT_IN_RATIO, LEFT_IN, ours, peers),
        _speed(
            "b", "warm ESS/s over the best peer with z summed out beforehand",
            LARGER_RATIO.get(model, BY_HAND_RATIO), BY_HAND, ours, peers,
        ),
        _cold(ours, peers),
    ]  # fmt: skip
    if model in NATIVE:
        ratio = ours.rate / NATIVE[model] if ours and ours.counts and ours.rate else None
        words = f"warm ESS/s over native code on one core, {NATIVE[model]:,.0f}"
        found.append(Target("d", words, "≥ 1/3", ratio, _is_reached(ours, ratio, NATIVE_RATIO), "a fixed figure"))
    return [
        Target(**{**vars(target), "reason": "" if target.is_reached else reasons.get(target.key, "")})
        for target in found
    ]


def _is_reached(ours: Score | None, ratio: float | None, least: float) -> bool | None:
    if ours is None or not ours.records:
        return None
    return ours.counts and (ratio is None or ratio >= least)


def _speed(key: str, words: str, least: float, kind: str, ours: Score | None, peers: list[Score]) -> Target:
    of_kind = [peer for peer in peers if peer.kind == kind]
    right = [peer for peer in of_kind if peer.counts]
    needed = f"≥ {least:g}"
    if not right:
        asked = kind == LEFT_IN and bool(of_kind)
        note = "no peer of this kind gives a right answer in time" if of_kind else "no peer of this kind was run"
        return Target(key, words, needed, None, _is_reached(ours, None, least) if asked else None, note)
    best = max(right, key=lambda peer: peer.rate or 0.0)
    ratio = ours.rate / best.rate if ours and ours.counts and ours.rate and best.rate else None
    return Target(key, words, needed, ratio, _is_reached(ours, ratio, least), SAMPLERS[best.sampler].title)


def _cold(ours: Score | None, peers: list[Score]) -> Target:
    words, needed = "cold seconds to 1,000 effective draws over the fastest peer's", f"≤ {COLD_RATIO:g}"
    right = [peer for peer in peers if peer.counts and peer.seconds_to_enough]
    if not right:
        note = "no peer gives a right answer in time" if peers else "no peer was run"
        return Target("c", words, needed, None, _is_reached(ours, None, 0.0) if peers else None, note)
    fastest = min(right, key=lambda peer: peer.seconds_to_enough or 0.0)
    if ours is None or not ours.counts or not ours.seconds_to_enough or not fastest.seconds_to_enough:
        return Target("c", words, needed, None, None if ours is None else False, SAMPLERS[fastest.sampler].title)
    ratio = ours.seconds_to_enough / fastest.seconds_to_enough
    return Target("c", words, needed, ratio, ratio <= COLD_RATIO, SAMPLERS[fastest.sampler].title)
