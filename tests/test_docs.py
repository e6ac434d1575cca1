"""The documents name files that are there, and say of the project what its other files say."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import sumout

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
PLACES = (ROOT, ROOT / "src", ROOT / "src/sumout", ROOT / "src/sumout_studies")
# Files that a reader makes, or that appear in a run.
READERS = {"model.py", "data.csv", "run.nc", "run.html", "again.html", "regression.html", "run.json", "run/"}
READERS |= {"out/studies.html", "out/studies.json", ".csv", ".npz", ".json", ".html", ".venv/"}
# Words of other systems, for those who come from there.
FOREIGN = {
    "coming_from.md": set(
        "log_sum_exp generated quantities log_lik y_rep generate_quantities dcat dbern dpois dnorm coda samples "
        "infer enumerate markov print_summary num_warmup num_samples num_chains rng_key infer_discrete optimize".split()
    )
}
FILE = re.compile(
    r"(?<![\w/.<-])(\.?[\w-]+(?:[./][\w-]+)*\.(?:py|md|toml|txt|ya?ml|png|json|csv|nc|html)|(?:[\w.-]+/)+)(?![\w/])"
)


def named_files(text):
    """Whatever looks like a file or a folder in code, inline or in a block that is not Python."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    spans = [body for language, body in blocks if language != "python"]
    spans += re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {name for span in spans if "://" not in span for name in FILE.findall(span)} - READERS


def is_there(name):
    return any((place / name).exists() for place in PLACES)


def anchors(path):
    titles = re.findall(r"(?m)^#+ (.*)$", path.read_text())
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(path):
    assert [name for name in sorted(named_files(path.read_text())) if not is_there(name)] == []


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" not in link:
            target, _, anchor = link.partition("#")
            file = path.parent / target if target else path
            assert file.exists(), link
            assert not anchor or anchor in anchors(file), link


def test_every_command_that_is_named_exists():
    targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text())
    for path in DOCUMENTS:
        text = path.read_text()
        for target in re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE):
            assert target in targets, f"{path.name}: make {target}"
        for module in re.findall(r"python -m (benchmarks[\w.]*)", text):
            assert is_there(f"{module.replace('.', '/')}.py") or is_there(module.replace(".", "/")), module


def test_every_name_that_a_document_uses_occurs_in_the_code():
    files = [path for folder in ("src", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]
    words = set(re.findall(r"\w+", "".join(path.read_text() for path in files if path != Path(__file__))))
    words |= set(re.findall(r"\w+", (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()))
    for path in DOCUMENTS:
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL))
        names = {name for span in spans for name in re.findall(r"(?<![\w./-])[A-Za-z_]{4,}(?![\w/-])", span)}
        ours = {name for name in names if not name.startswith("JAX_") and not name.endswith("_")}  # not num_*
        assert ours - words - FOREIGN.get(path.name, set()) == set(), path.name


@pytest.mark.parametrize("name", ["README.md", "docs/getting_started.md"])
def test_documents_show_what_explain_says(name):
    blocks = re.findall(r"```(\w+)\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    scope = {"__name__": "model"}
    exec(next(b for kind, b in blocks if kind == "python").split("result = ")[0], scope)
    shown = next(b for kind, b in blocks if kind == "text").strip()
    assert str(sumout.explain(scope["program"])).startswith(shown)


def test_the_readme_is_one_screen_of_links():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90
    assert "pip install sumout" in text
    assert "Tolpin" in text


def test_the_api_page_has_every_public_name():
    listed = re.findall(r"(?m)^::: sumout\.(\w+)$", (ROOT / "docs/api.md").read_text())
    assert sorted(listed) == sorted(sumout.__all__)


def test_the_row_that_is_explained_is_in_the_table():
    shown = re.search(r"```text\n(\*_elementwise.*)\n```", (ROOT / "CONTRIBUTING.md").read_text()).group(1)
    assert shown in (ROOT / "src/sumout/jaxpr/primitives.py").read_text()


def test_what_could_be_stale_is_seen():
    assert named_files(
        "`reading/x.py`, `sumout run model.py:mixture` and `python benchmarks/y.py`; `a / b`, `x.shape`"
    ) == {
        "reading/x.py",
        "benchmarks/y.py",
    }
    assert named_files("in `doctor/`\n```sh\nmake test && cat docs/z.md\n```\n```python\nopen('w.json')\n```") == {
        "doctor/",
        "docs/z.md",
    }
    assert not is_there("reading/x.py")
    assert is_there("compile/policy.py")


def test_the_walk_is_short():
    text = (ROOT / "docs/architecture.md").read_text()
    steps = re.findall(r"(?m)^(\d+)\. `([\w/]+\.py)`", text)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 15 <= len(steps) <= 25


def test_decisions_are_numbered_dated_and_listed():
    folder = ROOT / "docs/decisions"
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    listed = (folder / "README.md").read_text()
    for path in records:
        title, _, date = path.read_text().splitlines()[:3]
        assert title.startswith(f"# {int(path.name[:4])}. ")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), path.name
        assert f"- [{path.name[:4]}]({path.name}), {date}: {title.split('. ', 1)[1]}" in listed


def test_every_threshold_of_the_policy_is_used():
    source = ROOT / "src/sumout"
    assigned = [
        name.id
        for node in ast.parse((source / "compile/policy.py").read_text()).body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    ]
    others = "".join(path.read_text() for path in source.rglob("*.py") if path.name != "policy.py")
    assert [name for name in assigned if not re.search(rf"\b{name}\b", others)] == []


def test_hooks_and_workflow_fit_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ruff = re.search(r"(?m)^ruff==(.*)$", (ROOT / "constraints.txt").read_text()).group(1)
    assert f"ruff-pre-commit\n    rev: v{ruff}\n" in (ROOT / ".pre-commit-config.yaml").read_text()
    tested = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text()).group(1)
    for version in re.findall(r"[\d.]+", tested):
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert (ROOT / "src/sumout/py.typed").exists()


def test_the_jax_that_is_tested_is_within_the_bounds():
    from sumout.compile.one_piece import TESTED

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (least, most) = re.fullmatch(r"jax>=(.*),<(.*)", next(d for d in project["dependencies"] if "jax>" in d)).groups()
    pinned = re.search(r"(?m)^jaxlib==(\d+\.\d+)", (ROOT / "constraints.txt").read_text()).group(1)
    number = lambda version: tuple(map(int, version.split(".")))  # noqa: E731
    assert pinned in TESTED
    assert number(least) <= number(pinned) < number(most)


def test_the_changelog_is_dated_and_has_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())
    assert any(heading.startswith(project["version"]) for heading in headings)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, (unreleased|20\d\d-\d\d-\d\d)", heading) for heading in headings)
