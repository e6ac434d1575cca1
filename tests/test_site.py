"""The documentation site: every page is in its menu, scripts of the gallery run, built pages have no dead link."""

import os
import re
import runpy
import subprocess
import sys
import warnings
from functools import partial
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

import sumout

from made_up_runs import run_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
LARGEST = 50_000  # bytes of a picture of the gallery or of a structure


def run(script, sample, monkeypatch, tmp_path):
    """The script with another `sample` and without a window; its names, and the picture it would show."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    picture = tmp_path / "shown.png"
    monkeypatch.setattr(plt, "show", lambda: plt.savefig(picture, dpi=50))
    monkeypatch.setattr(sumout, "sample", sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few draws should not be trusted
        scope = runpy.run_path(str(script))
    plt.close("all")
    assert picture.stat().st_size > 0
    return scope


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_of_the_gallery_run(script, monkeypatch, tmp_path, capsys):
    """All but the sampling itself: draws are made up."""
    scope = run(script, run_of, monkeypatch, tmp_path)
    assert script.with_suffix(".txt").read_text() in capsys.readouterr().out
    assert scope["program"].z


@pytest.mark.calibration
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_scripts_of_the_gallery_sample(script, monkeypatch, tmp_path):
    scope = run(script, partial(sumout.sample, draws=60, tune=200, chains=2), monkeypatch, tmp_path)
    assert set(scope["program"].z) <= set(scope["result"].posterior.data_vars)


def test_every_model_has_its_page():
    listed = (DOCS / "gallery/index.md").read_text()
    assert len(SCRIPTS) >= 15
    for script in SCRIPTS:
        page = script.with_suffix(".md").read_text()
        for suffix in (".py", ".txt"):
            assert f'--8<-- "docs/gallery/{script.stem}{suffix}"' in page
        assert f"({script.stem}.png)" in page
        assert f"({script.stem}.md)" in listed


def test_pictures_are_small():
    for picture in [*(DOCS / "gallery").glob("*.png"), *(DOCS / "structures").glob("*.svg")]:
        assert picture.stat().st_size <= LARGEST, picture.name


def test_the_menu_has_every_page():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = set(re.findall(r"([\w/]+\.md)$", menu, re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == {page for page in pages if not re.match(r"decisions/\d", page)}


def links(page):
    text = re.sub(r"<(script|style).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return [unquote(unescape(link)) for link in re.findall(r'(?:href|src)="([^"]+)"', text)]


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="the extra docs is not installed")
def test_the_site_is_built_without_warning_and_without_dead_links(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    made = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert made.returncode == 0, made.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    names = {page: set(re.findall(r'(?:id|name)="([^"]+)"', page.read_text())) for page in pages}
    dead = []
    for page in pages:
        if page.name == "404.html":
            continue
        for link in links(page):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in names and anchor not in names[file]):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []
    loaded = [
        link
        for page in pages
        for link in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(http[^"]+)"', page.read_text())
    ]
    assert loaded == []  # nothing from the network
