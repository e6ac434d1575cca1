"""Imports follow the walk of the data and never point back; the house rules that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sumout

SOURCE = Path(sumout.__file__).parent
TESTS = Path(__file__).parent
ACROSS = {"laws", "truth", "hostile"}  # folders of tests that are about no one module
OF_NO_MODULE = {TESTS / f"test_{name}.py" for name in ("architecture", "benchmarks", "docs", "docs_code", "site")}
# Each room may import from the rooms before it.
WALK = (
    "errors",
    "calls",
    "threads",
    "randomness",
    "jaxpr",
    "model",
    "structure",
    "compile",
    "tables",
    "moves",
    "patterns",
    "eliminate",
    "plan",
    "adaptation",
    "kernels",
    "checks",
    "results",
    "store",
    "run",
    "optimize",
    "reports",
    "cli",
    "__main__",
)
# What could run code that stands in data.
BANNED = {"pickle", "cPickle", "_pickle", "pickletools", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code"}
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "read_pickle", "to_pickle", "unsafe_load"}
LOADERS = {"load", "loads", "open_memmap"}  # of these, NumPy's may unpickle, and YAML's build any object


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        if path != SOURCE / "__init__.py":
            yield path.relative_to(SOURCE).parts[0].removesuffix(".py"), path, ast.parse(path.read_text())


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_imports_never_point_back():
    for room, path, tree in modules():
        assert room in WALK, f"{path} is in no known room"
        for name in imported(tree):
            parts = name.split(".")
            if parts[0] == "sumout" and len(parts) > 1 and parts[1] != room:
                assert WALK.index(parts[1]) < WALK.index(room), f"{path} imports {name}"


def dangers(tree):
    """What in a module could run code that it loads."""
    yield from sorted(BANNED & {name.split(".")[0] for name in imported(tree)})
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        if called in BANNED_CALLS and node.args and owner not in ("re", "jax"):  # without arguments: XLA's compile()
            yield called
        if called in LOADERS and owner in ("yaml", "torch"):
            yield f"{owner}.{called}"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield "allow_pickle"


def test_nothing_that_loads_can_run_code():
    for _, path, tree in modules():
        assert list(dangers(tree)) == [], path


@pytest.mark.parametrize(
    "code",
    [
        *("import pickle", "from pickle import loads", "import marshal as m", "import shelve", "from dill import load"),
        *("eval('1')", "builtins.exec(code)", "__import__('os')", "compile(s, 'f', 'exec')", "pd.read_pickle(f)"),
        *("np.load(f, allow_pickle=True)", "np.load(f, allow_pickle=flag)", "yaml.load(f)", "torch.load(f)"),
    ],
)
def test_what_could_run_code_is_seen(code):
    assert list(dangers(ast.parse(code)))


@pytest.mark.parametrize("code", ["np.load(f, allow_pickle=False)", "json.loads(s)", "re.compile(p)", "low.compile()"])
def test_what_could_not_is_let_through(code):
    assert list(dangers(ast.parse(code))) == []


def test_no_rooms_for_odds_and_ends():
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "misc", "helpers", "common"}


def test_public_names_are_things_not_the_modules_they_live_in():
    """A module of the same name would take its place as soon as it is imported."""
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert set(sumout.__all__) & modules <= {"program"}  # which is imported at once
    assert not any(isinstance(getattr(sumout, name), ModuleType) for name in sumout.__all__)
    assert set(sumout.__all__) <= set(dir(sumout))
    with pytest.raises(AttributeError, match="no attribute 'sampel'"):
        sumout.sampel  # noqa: B018


def test_every_public_name_is_documented_with_an_example():
    for name in sumout.__all__:
        thing = getattr(sumout, name)
        assert thing.__doc__, name
        if name not in ("Structure", "Maximum"):  # returned, not called
            assert ">>>" in thing.__doc__, name


def test_import_is_light_and_changes_no_setting():
    code = (
        "import jax, os; before = dict(jax.config.values), dict(os.environ); import sys, sumout; "
        "assert (dict(jax.config.values), dict(os.environ)) == before; "
        "slow = 'arviz_base arviz_stats xarray_einstats matplotlib blackjax optax scipy.stats sumout_studies'; "
        "assert not set(slow.split()) & set(sys.modules); "
        "sumout.sample; assert not {'xarray', 'pandas', 'matplotlib', 'sumout_studies'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tests_stand_where_their_module_stands():
    """The tests of `X/y.py` are `X/test_y.py`, or `X/test_y_more.py` about a part; `X/test_X.py` are of all of X."""
    for path in sorted(TESTS.rglob("test_*.py")):
        *folder, name = path.relative_to(TESTS).with_suffix("").parts
        if (folder and folder[0] in ACROSS) or path in OF_NO_MODULE:
            continue
        source = SOURCE.joinpath(*folder) if folder != ["studies"] else SOURCE.with_name("sumout_studies")
        modules = {source.name, *(module.stem for module in source.glob("*.py"))} - {"__init__"}
        about = name.removeprefix("test_")
        assert any(about == module or about.startswith(f"{module}_") for module in modules), path
