"""`sumout studies`, small: the tables have their shape, exact schemes are right, and a browser shows the page.

Of 8,000 draws at least 1,000 are effective for every exact scheme on the survey, so that 0.1 sd is three standard
errors or more away; seeds are fixed. All three models are run by `make calibrate`.
"""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from sumout.cli.main import main
from sumout_studies import evaluate
from sumout_studies.claims import CLAIMS
from sumout_studies.models import STUDIES
from sumout_studies.paper import PRINTED, REBUILT
from sumout_studies.schemes import SCHEMES

SMALL = replace(evaluate.QUICK, draws=1000, tune=300, gradients=4000)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Appended to the page: what is drawn, how large, and what went wrong.
LOOK = """
<script>
window.addEventListener("load", () => {
  const sizes = [...document.querySelectorAll("svg")].map(s => [s.getAttribute("aria-label"),
    s.getBoundingClientRect().width, s.getBoundingClientRect().height]);
  const wide = document.documentElement.scrollWidth > window.innerWidth;
  document.body.innerHTML = "<pre id=found></pre>";
  document.getElementById("found").textContent = JSON.stringify({sizes, wide});
});
</script>
"""


SOME = [name for name in SCHEMES if name not in ("split", "nuts")]  # these for `make calibrate`


def run(folder, models, schemes=SCHEMES):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "QUICK", SMALL)
        wanted = [word for name in models for word in ("--model", name)]
        wanted += [word for name in schemes for word in ("--scheme", name)]
        assert main(["studies", *wanted, "--out", str(folder), "--quiet", "--debug"]) == 0
    return json.loads((folder / "studies.json").read_text())


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    return folder, run(folder, ["survey"], SOME)["studies"]["survey"]


def check(study, name, schemes=SCHEMES):
    assert list(study["schemes"]) == list(schemes)
    assert len(study["claims"]) == len(CLAIMS)
    for scheme, found in study["schemes"].items():
        assert len(found["ess"]) == len(found["seconds"]) == SMALL.runs
        assert min(found["seconds"]) > 0
        assert (found["printed"] is not None) == ((name, scheme) in PRINTED) == ((name, scheme) in REBUILT)
        if SCHEMES[scheme].is_exact:
            # Of sitewise Metropolis on the Markov model hardly any draw is effective: not more than that can be asked.
            assert all(abs(value) < max(0.1, 4 * error) for value, error in found["mean_errors"]), scheme
    assert study["schemes"]["sghmc-1"]["is_biased"]
    assert study["schemes"]["sghmc-1"]["unbiased_ess_per_second"] is None
    assert not any(found["is_biased"] for scheme, found in study["schemes"].items() if SCHEMES[scheme].is_ours)
    assert set(study["ahead_of_the_papers"]) == {"split", "ghmc", "sum", "nuts"} & set(schemes)


def test_tables_have_their_shape_and_exact_schemes_are_right(survey):
    check(survey[1], "survey", SOME)


def test_the_page_says_what_holds(survey):
    page = (survey[0] / "studies.html").read_text()
    for words in ("Table 1: effective draws", "Table 2: seconds", "Table 3: effective draws a second", "Two normals"):
        assert words in page
    for claim in CLAIMS:
        assert claim.words.replace("'", "&#x27;") in page
    assert "4,600 ± 180" in page  # the paper's number
    assert not re.search(r"(src|href)=\"http", page)


def test_a_browser_shows_all_figures(survey, tmp_path):
    if BROWSER is None:
        pytest.skip("no chromium here: apt install chromium")
    page = (survey[0] / "studies.html").read_text()
    (tmp_path / "page.html").write_text(page.replace("</body>", LOOK + "</body>"))
    quiet = "--disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    command = [BROWSER, "--headless", "--no-sandbox", *quiet.split(), f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--enable-logging=stderr", "--window-size=1200,900", "--dump-dom", (tmp_path / "page.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', shown.stdout)[1])
    labels = [label for label, _, _ in found["sizes"]]
    assert sum(label.startswith("Trace of") for label in labels) == len(SOME)
    assert any(label.startswith("Posterior density of logit theta") for label in labels)
    assert any(label.startswith("Effective draws a second") for label in labels)
    assert any("two normals" in label for label in labels)
    assert all(width > 100 and height > 20 for _, width, height in found["sizes"])
    assert not found["wide"]


@pytest.mark.calibration
def test_all_three_models(tmp_path):
    found = run(tmp_path, STUDIES)["studies"]
    for name, study in found.items():
        check(study, name)
