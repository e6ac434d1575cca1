"""The summary as it is shown: rounded and whole, discrete values in words, long deterministics in a line."""

import numpy as np
import pandas as pd

from sumout.results.data_tree import build_tree
from sumout.results.summary import examine
from sumout.results.summary_table import describe_values


def run():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 300))
    posterior = {
        "x": x,
        "long": x[..., None] + np.arange(30.0),
        "is_in": (rng.random((2, 300)) < 0.25).astype(int),
        "count": rng.poisson(4, size=(2, 300)),
        "kind": rng.choice(4, p=[0.1, 0.6, 0.25, 0.05], size=(2, 300)),
        "z": (rng.random((2, 300, 20)) < np.linspace(0.1, 0.9, 20)).astype(int),
    }
    groups = {"posterior": posterior, "sample_stats": {"lp": x}, "unconstrained_posterior": {"x": x}}
    attrs = {"discrete": ["is_in", "count", "kind", "z"], "categories": ["kind"], "drawn": []}
    return build_tree(groups, {}, {}, constant={}, coords={}, dims={}, coordinates=["x"], attrs=attrs), posterior


def test_all_at_a_glance():
    tree, posterior = run()
    table = examine(tree).table
    assert isinstance(table, pd.DataFrame) and type(table[["mean"]]) is pd.DataFrame
    assert table.loc["count", "mean"] == posterior["count"].mean()  # not rounded
    assert table.loc["is_in", "mean"] == posterior["is_in"].mean() and np.isnan(table.loc["kind", "mean"])
    low, high = (table.loc["count", name] for name in table.columns if name.endswith(("_lb", "_ub")))
    assert low < 4 < high
    for shown in (str(table), table._repr_html_()):
        assert "long (30 elements)" in shown and "long[7]" not in shown
        assert f"P(1) = {posterior['is_in'].mean():.2f}" in shown
        assert "1: 0." in shown and "…" in shown and "over 20 sites" in shown
    lines = str(table).splitlines()
    assert max(map(len, lines)) > 80 and not any(line.endswith("...") for line in lines)
    assert len(lines) == 1 + len(["x", "long", "lp", "is_in", "count", "kind", "z"])


def test_words():
    category = np.array([[[0, 2], [0, 2], [1, 2], [0, 1]]])
    assert describe_values(category, True) == "0: 0.75; 2: 0.75"
    assert describe_values(category[..., :1] * 5, False) == ""
    assert describe_values(category * 5, False) == "means 1.25, 8.75"
    assert describe_values(category == 0, False) == "P(1) = 0.75, 0.00"
