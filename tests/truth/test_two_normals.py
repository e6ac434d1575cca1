"""The paper's Figure 2: with a fresh z for every gradient a chain changes sides more often than HMC alternating with z.

Counts are some hundreds, so that the ratios below are known to a tenth or so; measured are 5.5 and 3.3.
"""

import numpy as np
import pytest

from sumout_studies.two_normals import SCHEMES, draw, make_program, run


@pytest.mark.calibration
def test_fresh_z_changes_sides_more_often(tmp_path):
    program = make_program()
    runs = {name: run(program, SCHEMES[name]) for name in ("GHMC, fresh z", "sgHMC, fresh z", "HMC alternating with z")}
    in_turns = runs.pop("HMC alternating with z")
    for made in runs.values():
        assert made.per_gradient > 3 * in_turns.per_gradient
    for made in (in_turns, *runs.values()):
        # Both sides alike, each with its spread: the sd is √(1 + ¼).
        assert abs(made.x.mean()) < 0.2
        np.testing.assert_allclose(made.x.std(), np.sqrt(1.25), rtol=0.05)
    draw(runs).savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
