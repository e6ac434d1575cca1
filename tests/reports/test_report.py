"""The page about a run: what stands on it, that nothing a user writes becomes code, and what it refuses."""

import html
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict
from numpyro.distributions import constraints

import sumout
from sumout.errors import OptionError
from sumout.reports.discrete_section import of_site
from sumout.reports.figures import density_plot, rank_plot
from sumout.reports.graph_drawing import MOST_NODES, network, place
from sumout.reports.html import Html, join, tag
from sumout.reports.svg import house_style
from sumout.results.summary import examine
from sumout.results.summary_table import badness

from programs import loop_hmm, named_scalars, tree

HOSTILE = "<img src=x onerror=\"alert('1')\">&$x_{$"
VOID = {"meta"}


class Tree(HTMLParser):
    """Sees that every element is closed, and collects what is in the page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes += attributes
        self.ids += [value for key, value in attributes if key == "id"]
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        self.open.pop()

    def handle_endtag(self, name):
        assert self.open.pop() == name, name


def run(shift=0.0, shape=(2,), chains=4, draws=300, name="x", z=None, z_name="z", extra=()):
    """Made-up draws; the last chain is shifted."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(chains, draws, *shape))
    x[-1] += shift
    posterior = {name: x} | ({} if z is None else {z_name: z})
    groups = {
        "posterior": posterior,
        "unconstrained_posterior": {name: x},
        "unconstrained_gradient": {name: -x},
        "sample_stats": {"lp": rng.normal(size=(chains, draws)), "acceptance_rate": np.full((chains, draws), 0.9)},
        **dict(extra),
    }
    tree = from_dict(groups)
    tree["posterior"].attrs.update(discrete=[] if z is None else [z_name], kernel="NUTS()", seed=7, tune=123, steps=5)
    return tree


def write(tmp_path, idata, program=None):
    path = sumout.report(idata, tmp_path / "run.html", program)
    assert path == tmp_path / "run.html"
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 5_000_000
    return text, Tree(text)


def headings(text):
    return re.findall(r"<h2>(.*?)</h2>", text)


def check_self_contained(text, tree):
    assert not {"script", "link", "iframe", "img", "object"} & set(tree.tags)
    assert "http" not in text
    assert "@import" not in text
    for key, value in tree.attributes:
        assert not key.startswith("on"), key
        if key in ("src", "href"):
            assert value.startswith(("#", "data:image/png;base64,")), value
    assert len(tree.ids) == len(set(tree.ids))
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    assert used <= set(tree.ids)


def test_the_page_of_a_real_run(tmp_path):
    def chain(x, z, data):
        return 0.5 * (z["state"][1:] == z["state"][:-1]).sum() - 0.5 * x["h"] ** 2

    program = sumout.density(chain, x={"h": (constraints.real, ())}, z={"state": sumout.finite(2, shape=4)})
    idata = sumout.sample(program, draws=60, tune=60, chains=2, plan={"state": "joint"})
    text, tree = write(tmp_path, idata, program)
    assert headings(text) == ["Plan and structure", "Summary", "Draws", "Discrete variables"]
    check_self_contained(text, tree)
    assert "<h1>chain</h1>" in text
    # what was asked for, not what would have been done by default
    assert "drawn jointly from the exact conditional (as you asked)" in text
    assert html.escape(idata.posterior.attrs["kernel"]) in text
    assert "3 pairs of neighbours" in text
    assert "colour 2: 2 sites" in text
    assert "4 · exact" in text
    assert "tuned step size" in text
    assert "line: the most probable" in text
    assert text.count("<svg") == 1 + 3 + 1
    without, _ = write(tmp_path, idata)
    assert headings(without) == ["Summary", "Draws", "Discrete variables"]
    assert "4 · frequencies of the draws" in without
    # the same run, the same page
    assert sumout.report(idata, str(tmp_path / "again.html")).read_text(encoding="utf-8") == without
    with pytest.raises(OptionError, match=r"^report: the result has no '.*'"):
        sumout.report(idata, tmp_path / "run.html", named_scalars())


def test_warnings_stand_on_top(tmp_path):
    text, _ = write(tmp_path, run(shift=3.0))
    words = "Chains disagree about x[0], x[1]"
    assert text.index(words) < text.index("<dl>") < text.index("<h2>")
    assert 'class="off"' in text
    calm, _ = write(tmp_path, run(draws=500))
    assert "give no warning" in calm
    assert words not in calm
    assert 'class="off"' not in calm
    for words in ("NUTS()", "<dd>7</dd>", "<dd>123</dd>", "<dd>5</dd>", "<dd>500</dd>"):
        assert words in calm


@pytest.mark.filterwarnings("error")
def test_the_report_itself_does_not_warn_of_the_run(tmp_path):
    write(tmp_path, run(shift=3.0))
    with pytest.warns(sumout.errors.SamplingWarning):
        sumout.summary(run(shift=3.0))


def test_nothing_a_user_writes_becomes_code(tmp_path):
    z = np.random.default_rng(0).integers(0, 3, size=(4, 300, 5))
    y = np.random.default_rng(0).normal(size=30)
    predictive = np.random.default_rng(1).normal(size=(4, 300, 30))
    extra = {"observed_data": {HOSTILE + "y": y}, "posterior_predictive": {HOSTILE + "y": predictive}}
    idata = run(shift=3.0, name=HOSTILE, z=z, z_name=HOSTILE + "z", extra=extra)
    idata["posterior"].attrs.update(kernel=HOSTILE, log_likelihood=HOSTILE)
    text, tree = write(tmp_path, idata)
    check_self_contained(text, tree)
    assert HOSTILE not in text
    assert "<img" not in text
    # warning, table (twice), figure, plots; z and y as well
    assert text.count(html.escape(HOSTILE)) > 8
    assert headings(text) == ["Summary", "Draws", "Discrete variables", "Data", "Predictive check"]


def test_text_is_escaped_and_html_is_not():
    assert tag("p", "a < b", Html("<b>c</b>"), title='"') == '<p title="&quot;">a &lt; b<b>c</b></p>'
    assert isinstance(join(["<"]), Html)


def test_discrete_variables_of_every_shape(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {
        "bars": (3, ()),
        "path": (3, (7,)),
        "one field": (2, (3, 4)),
        "fields": (4, (3, 4)),
        "deep": (2, (2, 2, 2)),
    }
    extra = {}
    for name, (values, shape) in shapes.items():
        extra[name] = rng.integers(0, values, size=(2, 100, *shape))
    extra["count"] = rng.poisson(500, size=(2, 100))
    extra["counts"] = rng.poisson(500, size=(2, 100, 3))
    idata = run(chains=2, draws=100)
    for name, draws in extra.items():
        dims = ("chain", "draw", *(f"{name}_{i}" for i in range(draws.ndim - 2)))
        idata["posterior"][name] = xr.DataArray(draws, dims=dims)
    idata["posterior"].attrs["discrete"] = list(extra)
    text, tree = write(tmp_path, idata)
    check_self_contained(text, tree)
    assert text.count("<svg") == 2 * 3 + 4 + 1 + 4 + 2 - 1
    assert text.count(">probability of") == 1 + 4
    assert "Median and the middle 90%" in text


def test_much_is_cut_short_and_said(tmp_path):
    idata = run(shape=(300,), draws=50, chains=2)
    idata["posterior"]["x"].values[1, :, 299] += 5  # the worst comes last, and must be shown
    text, _ = write(tmp_path, idata)
    assert "101 rows are left out" in text
    assert "276 of 300 coordinates are left out" in text
    assert "<figcaption><b>x[299]</b>" in text
    assert text.count("<figcaption>") == 24


def test_predictive_check_only_with_names_of_the_data(tmp_path):
    counts = np.random.default_rng(0).poisson(3, size=20)
    replicated = np.random.default_rng(1).poisson(3, size=(4, 300, 20))
    text, _ = write(tmp_path, run(extra={"observed_data": {"y": counts}, "posterior_predictive": {"y": replicated}}))
    assert headings(text)[-1] == "Predictive check"
    assert "share up to here" in text
    text, _ = write(tmp_path, run(extra={"observed_data": {"y": counts}, "posterior_predictive": {"w": replicated}}))
    assert "Predictive check" not in headings(text)
    text, _ = write(tmp_path, run(extra={"observed_data": {"y": counts}}))
    assert "Predictive check" not in headings(text)


def marked(idata):
    """Cells that are marked, by row and column, what the summary warns of, and its table."""
    found = examine(idata)
    cells = {(str(found.table.index[i]), str(found.table.columns[j])) for i, j in np.argwhere(found.is_off)}
    return cells, " ".join(found.warnings), found.table


def test_cells_are_marked_where_the_summary_warns():
    cells, warnings, _ = marked(run(shift=3.0, shape=()))
    assert "disagree about x" in warnings
    assert {("x", "r_hat"), ("x", "ess_bulk")} <= cells
    cells, warnings, table = marked(run(draws=150, shape=(30,)))
    assert table["r_hat"].max() > 1.01  # by chance, as with so few draws it may be
    assert "disagree" not in warnings
    assert "r_hat" not in {column for _, column in cells}
    wide = run(draws=500)
    wide["unconstrained_gradient"]["x"] = 0.7 * wide["unconstrained_gradient"]["x"]
    cells, warnings, _ = marked(wide)
    assert "biased" in warnings
    assert {column for _, column in cells} == {"bias_meter"}
    cells, warnings, _ = marked(run(z=np.repeat(np.arange(4) % 2, 300).reshape(4, 300)))
    assert "disagree about z" in warnings
    assert ("z", "r_hat") in cells


def test_rows_with_the_worst_diagnostics_come_first():
    import pandas as pd

    table = pd.DataFrame({"ess_bulk": [400, 399, np.nan], "r_hat": [1.01, 1.02, np.nan]})
    assert badness(table).tolist() == [1, 0, 2]


def test_structures_are_laid_out_by_index_where_that_suits():
    path = sumout.read(loop_hmm(length=6))
    np.testing.assert_array_equal(place(path), [[i, 0] for i in range(6)])

    def network_of(pairs, num):
        def pairwise(x, z, data):
            return sum((z["s"][a] * z["s"][b]) for a, b in pairs) - x["h"] ** 2

        return sumout.read(
            sumout.density(pairwise, x={"h": (constraints.real, ())}, z={"s": sumout.finite(2, shape=num)})
        )

    clique = place(network_of([(a, b) for a in range(6) for b in range(a)], 6))
    np.testing.assert_allclose(np.hypot(*clique.T), 1.0, rtol=1e-6)
    star = network_of([(0, b) for b in range(1, 8)], 8)
    assert len(np.unique(place(star), axis=0)) == 8
    np.testing.assert_array_equal(place(star), place(star))
    with house_style():
        assert network(star).count("<svg") == 1
        assert network(sumout.read(tree())).count("<svg") == 1
        large = sumout.read(_isolated(MOST_NODES + 1))
        assert "401 discrete sites" in network(large)
        assert "<svg" not in network(large)


def _isolated(num):
    return sumout.density(
        lambda x, z, data: z["s"].sum() - x["h"] ** 2,
        x={"h": (constraints.real, ())},
        z={"s": sumout.finite(2, shape=num)},
    )


def test_values_and_modes_of_exact_marginals():
    table = (("i", "z_value"), [[0.2, 0.8], [0.4, 0.6]])
    found = xr.Dataset({"z": table, "z_mode": ("i", [3, -1])}, coords={"z_value": [-1, 3]})
    chances = of_site(found, "z")
    assert (chances.labels, chances.likely.tolist(), chances.is_joint) == (["-1", "3"], [1, 0], True)
    ragged = of_site(xr.Dataset({"z": table, "z_values": (("i", "z_value"), [[0, 1], [5, 6]])}), "z")
    assert (ragged.labels, ragged.likely.tolist(), ragged.is_joint) == (["1.", "2."], [1, 1], False)


def test_draws_that_do_not_move_or_are_not_finite():
    still = np.ones((2, 50))
    lost = np.random.default_rng(0).normal(size=(2, 50))
    lost[0, 3] = np.inf
    with house_style():
        for draws in (still, lost):
            assert density_plot(draws, "x").startswith("<svg")
            assert rank_plot(draws, "x").startswith("<svg")


def test_settings_of_matplotlib_are_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    text, _ = write(tmp_path, run())
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert write(tmp_path, run())[0] == text


def test_refusals(tmp_path, monkeypatch):
    with pytest.raises(OptionError, match=r"expected the result of sumout\.sample, got dict"):
        sumout.report({}, tmp_path / "run.html")
    foreign = run()
    del foreign["posterior"].attrs["discrete"]
    with pytest.raises(OptionError, match=r"expected the result of sumout\.sample, got DataTree"):
        sumout.report(foreign, tmp_path / "run.html")
    with pytest.raises(OptionError, match="there is no folder"):
        sumout.report(run(), tmp_path / "missing" / "run.html")
    with pytest.raises(OptionError, match="is a folder"):
        sumout.report(run(), tmp_path)
    with pytest.raises(OptionError, match="should be the name of a file"):
        sumout.report(run(), 3)
    with pytest.raises(OptionError, match="program is a function"):
        sumout.report(run(), tmp_path / "run.html", test_refusals)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match=r"pip install sumout\[plots\]"):
        sumout.report(run(), tmp_path / "run.html")
    assert not list(tmp_path.iterdir())
