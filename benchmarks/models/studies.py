"""What the three models of the paper share: their data and their Stan programs lie with the studies of the package."""

from pathlib import Path

import numpy as np

STUDIES = Path(__file__).parents[2] / "src" / "sumout_studies"


def study_data(name: str) -> np.ndarray:
    """The observations of a study, read without loading the package."""
    return np.loadtxt(STUDIES / "data" / f"{name}.csv", skiprows=1)


def study_program(name: str) -> str:
    """The Stan program of a study."""
    return (STUDIES / "stan" / f"{name}.stan").read_text()


def with_length(data: dict) -> dict:
    """The data as the Stan programs of the studies know them."""
    return {"N": len(data["y"]), "y": data["y"].tolist()}
