"""The log density along each coordinate: flat, improper in the tails, or of a scale far from the others'."""

from collections.abc import Iterator

import numpy as np

from sumout.checks.examination import Examination, Finding
from sumout.errors import ModelError

FAR = 1e10  # on the real line, beyond any informative prior
FAR_TRANSFORMED = 30.0  # there a probability is within 1e-13 of 0 or 1, a scale 1e-13 or 1e13
SLOWEST_FALL = -1.01  # t d/dt log p; a tail of 1/t, for which it is −1, has no finite integral
WIDEST = 1e6  # ratio of scales
PROBE = 1e-2  # step of the finite difference of gradients
FEW_ANCHORS = 4  # points at which scales are compared; the smallest ratio counts


def check_flat(exam: Examination) -> Iterator[Finding]:
    """A variable that nothing depends on, or only in steps."""
    flat = np.flatnonzero(exam.is_flat)
    if not len(flat) or not len(exam.anchors):
        return
    anchor = int(exam.anchors[0])
    constant, stepping = [], []
    for i in flat.tolist():
        moved = np.stack([exam.moved(anchor, i, to) for to in (-1000.0, -10.0, -1.0, 1.0, 10.0, 1000.0)])
        values, _ = exam.evaluate_at(anchor, moved)
        (constant if (values == exam.values[anchor]).all() else stepping).append(exam.name(i))
    if constant:
        yield Finding(
            f"the log density does not depend on {_list(constant)}: its posterior is flat and improper, and cannot be "
            "sampled. Give it a prior, use it, or leave it out.",
            ModelError,
        )
    if stepping:
        yield Finding(
            f"the gradient with respect to {_list(stepping)} is zero at all points tried, though the log density "
            "changes: it enters in steps only (a comparison, round, floor, a conversion to integers), and gradients "
            "say nothing about it. Make it discrete, or write a smooth function of it."
        )


def check_tails(exam: Examination) -> Iterator[Finding]:
    """Far out the density of a proper posterior falls, along every coordinate."""
    if not len(exam.anchors):
        return
    anchor = int(exam.anchors[0])
    chosen = exam.coordinates[~exam.is_flat[exam.coordinates]]
    sides = [(int(i), sign) for i in chosen for sign in (-1.0, 1.0)]
    real = [side for side in sides if exam.is_real[side[0]]]
    is_open, is_known = _fall(exam, anchor, real, FAR)
    suspects = {side for side, found in zip(real, is_open, strict=True) if found}
    unknown = [side for side, known in zip(real, is_known, strict=True) if not known]
    rest = [side for side in sides if not exam.is_real[side[0]]] + unknown
    is_open, _ = _fall(exam, anchor, rest, FAR_TRANSFORMED)
    suspects |= {side for side, found in zip(rest, is_open, strict=True) if found}
    if suspects:
        names = sorted({exam.name(i) for i, _ in suspects})
        i, sign = min(suspects)
        yield Finding(
            f"the posterior may be improper: far out along {_list(names)} the log density does not fall (towards "
            f"{'+' if sign > 0 else '−'}∞ for {exam.name(i)}, on the real line), so that its integral is not finite. "
            "Give it a proper prior."
        )


def _fall(exam: Examination, anchor: int, sides: list[tuple[int, float]], far: float) -> tuple[np.ndarray, np.ndarray]:
    """For each direction: whether the density falls too slowly at this distance, and whether that can be told."""
    if not sides:
        return np.zeros(0, bool), np.zeros(0, bool)
    moved = np.stack([exam.moved(anchor, i, sign * far) for i, sign in sides])
    values, gradients = exam.evaluate_at(anchor, moved)
    slope = np.array([sign * gradients[k, i] for k, (i, sign) in enumerate(sides)])
    is_known = np.isfinite(values) & np.isfinite(slope)
    is_single = exam.x.dtype == np.float32
    limit = SLOWEST_FALL if far == FAR else far * (-1e-6 if is_single else -1e-9)
    return is_known & (slope * far > limit), is_known


def check_scales(exam: Examination) -> Iterator[Finding]:
    """Coordinates a million times as wide as others: neither starts nor step sizes can suit both."""
    chosen = exam.coordinates[~exam.is_flat[exam.coordinates]]
    if len(chosen) < 2 or not len(exam.anchors):
        return
    ratios = []
    for anchor in exam.anchors[:FEW_ANCHORS].tolist():
        moved = np.stack([exam.moved(anchor, int(i), float(exam.x[anchor, i]) + PROBE) for i in chosen])
        _, gradients = exam.evaluate_at(anchor, moved)
        slope = np.abs(exam.gradients[anchor, chosen])
        change = np.abs(gradients[np.arange(len(chosen)), chosen] - exam.gradients[anchor, chosen])
        floor = np.finfo(exam.x.dtype).eps * (1 + slope)
        change = np.where(np.isfinite(change), np.maximum(change, floor), np.nan)
        scale = np.minimum(np.sqrt(PROBE / change), 1 / np.maximum(slope, floor))  # by curvature, or by slope
        if np.isnan(scale).all():
            return
        ratios.append((np.nanmax(scale) / np.nanmin(scale), chosen[np.nanargmax(scale)], chosen[np.nanargmin(scale)]))
    ratio, wide, narrow = min(ratios)
    if ratio > WIDEST:
        yield Finding(
            f"scales differ greatly: the posterior of {exam.name(int(wide))} seems some {ratio:.0e} times as wide as "
            f"that of {exam.name(int(narrow))}. Chains start within ±2 of zero and will hardly find the posterior: "
            "rescale the data or the variables so that both are of the order of one."
        )


def _list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
