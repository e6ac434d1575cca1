"""The page about a run as a browser shows it: nothing is cut at the right edge, and it is legible by day and night."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to look at the page with")
LIGHT, DARK = 1, 0  # as Chromium numbers them
# What is wider than it may be: the page itself, or a box that scrolls.
LOOK = """<script>addEventListener("load", () => {
  const boxes = [...document.querySelectorAll(".scroll, pre, dl, figure, p, h1")];
  const wide = boxes.filter(box => box.scrollWidth > box.clientWidth + 1);
  const out = [...document.querySelectorAll("svg, td, th, pre")].filter(
    box => box.getBoundingClientRect().right > innerWidth || box.getBoundingClientRect().left < 0);
  const texts = [...document.querySelectorAll("svg")].flatMap(svg => [...svg.querySelectorAll("text")].filter(text => {
    const inner = text.getBoundingClientRect(), outer = svg.getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1; }));
  document.title = JSON.stringify({page: document.documentElement.scrollWidth - innerWidth, width: innerWidth,
    wide: wide.map(box => box.tagName + " " + box.className), out: out.map(box => box.tagName),
    texts: texts.map(text => text.textContent)});
});</script>"""


def model(x, y):
    slope = numpyro.sample("slope_of_the_regression", dist.Normal(0, 2))
    base = numpyro.sample("base", dist.Normal(0, 2))
    state = numpyro.sample("state", dist.Bernoulli(0.4).expand(y.shape).to_event(1))
    numpyro.factor("joined", 1.2 * (state[1:] == state[:-1]).sum())
    expected = numpyro.deterministic("expected", base + slope * x)
    numpyro.sample("y", dist.Normal(expected + 4 * state, 0.5), obs=y)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 30)
    y = 1 + 2 * x + rng.normal(0, 0.5, 30) + 4 * (np.arange(30) > 15)
    program = sumout.program(model, jnp.asarray(x), jnp.asarray(y))
    result = sumout.sample(program, draws=150, tune=200, chains=4)
    return sumout.report(result, tmp_path_factory.mktemp("report") / "run.html", program)


def browse(*options):
    """A browser is slow to start on a busy machine, and is tried twice."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *options]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            return done.stdout
    return pytest.fail(done.stderr)


@pytest.mark.parametrize("width", [800, 1100, 1400])
def test_nothing_is_cut_at_the_right_edge(page, width, tmp_path):
    watched = tmp_path / "watched.html"
    watched.write_text(page.read_text().replace("</head>", f"{LOOK}</head>"))
    dom = browse(f"--window-size={width},900", "--dump-dom", watched.as_uri())
    seen = json.loads(re.search(r"<title>(.*?)</title>", dom).group(1).replace("&quot;", '"'))
    assert seen["width"] == width
    assert (seen["page"], seen["wide"], seen["out"], seen["texts"]) == (0, [], [], [])


@pytest.mark.parametrize("scheme, is_bright", [(LIGHT, True), (DARK, False)])
def test_by_day_and_by_night(page, scheme, is_bright, tmp_path):
    from PIL import Image  # matplotlib has it

    picture = tmp_path / "seen.png"
    settings = f"--blink-settings=preferredColorScheme={scheme}"
    browse(settings, "--window-size=1000,3000", f"--screenshot={picture}", page.as_uri())
    with Image.open(picture) as image:
        grey = np.asarray(image.convert("L"), float)
    assert grey.shape == (3000, 1000)
    assert (np.median(grey) > 128) == is_bright
    contrast = np.abs(grey - np.median(grey)) > 100  # of ink and paper
    rows = contrast.any(axis=1)
    assert rows.mean() > 0.3  # text and figures all the way down
    assert not contrast[:, -5:].any()


def test_the_page_shows_data_structure_and_check(page):
    text = Path(page).read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "Plan and structure", "Summary", "Draws", "Discrete variables", "Data", "Predictive check",
    ]  # fmt: skip
    assert "over x" in text and "state = 1" in text
    assert "expected (30 elements)" in text and "not drawn: expected" in text
