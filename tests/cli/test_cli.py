"""The command line: every command, the examples in its help, and every way to go wrong, in words and an exit code."""

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sumout
import sumout.run.sample
from sumout.cli.main import COMMANDS, main
from sumout.cli.model_files import program_from
from sumout.cli.options import split_reference
from sumout.cli.show import one_line
from sumout.errors import FileError
from sumout.kernels.registry import KERNELS
from sumout.plan.plan import OVERRIDES, make_plan
from sumout.results.summary_table import as_text
from sumout.store.netcdf import open_result

SHORT = ["--draws", "50", "--tune", "50", "--chains", "2"]
MODELS = """\
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import Normal, constraints

import sumout
from neighbour import fail, LEVELS


def mixture(y, K=2):
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([K]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(np.ones(K) / K))
        numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)


def _log_density(x, z, y):
    return Normal(z["shift"], 1.0).log_prob(x["mean"]) + Normal(x["mean"], 1.0).log_prob(y).sum()


def make(y):
    import later  # beside this file, imported only now

    return sumout.density(_log_density, x={"mean": constraints.real}, z={"shift": later.support()}, data=y)


def wrap(y):
    return sumout.program(mixture, y)


def alone():
    numpyro.sample("x", dist.Normal(numpyro.sample("z", dist.Bernoulli(0.5)), 1))


def sums(y):
    return y.sum()


def density(x, z, y):
    return _log_density(x, z, y)


def asks(y):
    if numpyro.sample("z", dist.Bernoulli(0.5)):
        numpyro.sample("y", dist.Normal(0, 1), obs=y)


def broken(y):
    return fail(numpyro.sample("z", dist.Bernoulli(0.5)))


def without(y):
    numpyro.sample("x", dist.Normal(0, 1), obs=1.0)


made = wrap(np.zeros(3))
number = LEVELS
"""


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A file of models with modules beside it, and data for them."""
    folder = tmp_path_factory.mktemp("models")
    write(folder, "neighbour.py", "LEVELS = 3\n\n\ndef fail(z):\n    return z + None\n")
    write(folder, "later.py", "import sumout\n\n\ndef support():\n    return sumout.finite(2)\n")
    write(folder, "data.csv", "y\n0.5\n1.5\n-1\n")
    write(folder, "models.py", MODELS)
    return folder


def parts_of(text):
    """The files and the commands of the example in a help text."""
    block = text[text.index("example:") :]
    files = dict(re.findall(r"  (\S+) holds\n((?:    .*\n|\n)+)", block))
    typed = re.search(r"  Type\n((?:    .*\n)+)", block).group(1)
    return {name: textwrap.dedent(body) for name, body in files.items()}, [shlex.split(c) for c in typed.splitlines()]


def help_of(command, capsys):
    assert main([command, "--help"]) == 0
    return capsys.readouterr().out


class Recorder:
    """Keeps what `sample` was given and returned."""

    def __init__(self):
        self.sample, self.calls = sumout.run.sample.sample, []

    def __call__(self, program, *args, **kwargs):
        result = self.sample(program, *args, **kwargs)
        self.calls.append((program, result))
        return result


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example in the help of `run`, typed as it stands but for its length: folder, program and result."""
    folder, recorder = tmp_path_factory.mktemp("example"), Recorder()
    shown = subprocess.run(
        [sys.executable, "-m", "sumout", "run", "--help"], capture_output=True, text=True, check=True
    )
    files, commands = parts_of(shown.stdout)
    assert set(files) == {"model.py", "data.csv"}
    for name, body in files.items():
        write(folder, name, body)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sumout.run.sample, "sample", recorder)
        for program, *typed in commands:
            assert program == "sumout"
            assert main([*typed, *SHORT]) == 0
    return folder, *recorder.calls[0]


def refuses(capsys, code, *typed):
    """What a command says on its way out."""
    assert main([str(part) for part in typed]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_help_without_arguments(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert command.__name__.rpartition(".")[2] in shown


@pytest.mark.parametrize("command", ["run", "explain", "report"])
def test_every_help_has_an_example_and_says_what_a_model_is(command, capsys):
    shown = help_of(command, capsys)
    files, commands = parts_of(shown)
    assert set(files) == {"model.py", "data.csv"}
    assert any(typed[:2] == ["sumout", command] for typed in commands)
    for words in ("a NumPyro model", "a Program", "a function that returns a Program", "--set K=3", "--debug"):
        assert words in shown


def test_help_names_all_kernels_and_methods(capsys):
    shown = help_of("run", capsys)
    for name in [*(kernel.name for kernel in KERNELS), *OVERRIDES]:
        assert re.search(rf"\b{name}\b", shown), name


def test_the_version_is_that_of_the_installed_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sumout {version('sumout')}\n"
    assert sumout.__version__ == version("sumout")
    assert "__version__" in dir(sumout)


def test_wrong_usage_is_told_by_argparse(capsys):
    assert "invalid choice" in refuses(capsys, 2, "walk")
    assert "required: MODEL" in refuses(capsys, 2, "run")
    assert "from 0 to" in refuses(capsys, 2, "run", "m.py:f", "--seed", "-1")
    assert "at least 1" in refuses(capsys, 2, "run", "m.py:f", "--draws", "0")
    assert "not a whole number" in refuses(capsys, 2, "run", "m.py:f", "--chains", "two")
    assert "neither a number" in refuses(capsys, 2, "run", "m.py:f", "--set", "K=three")
    assert "such as K=3" in refuses(capsys, 2, "run", "m.py:f", "--set", "K")
    assert "such as z=draw" in refuses(capsys, 2, "run", "m.py:f", "--plan", "z")
    assert "unrecognized" in refuses(capsys, 2, "run", "m.py:f", "--draw", "5")  # no abbreviations


def test_run_writes_draws_and_page_and_prints_the_summary(example, capsys, monkeypatch):
    folder, _, result = example
    assert open_result(folder / "run.nc").identical(result)
    assert "<h1>mixture</h1>" in (folder / "run.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == sorted(
        ["model.py", "data.csv", "run.nc", "run.html"]
    )  # nothing half written is left
    assert result.posterior.sizes["draw"] == 50
    assert result.posterior.sizes["chain"] == 2

    # the same again, with what it prints, but without the work
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sumout.run.sample, "sample", lambda *args, **kwargs: result)
    assert main(["run", "model.py:mixture", "--data", "data.csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("mixture: z summed out; kernel HMC.\n")
    assert "bias_meter" in printed.out
    assert re.search(r"^mu\[0\] +-?\d", printed.out, re.MULTILINE)
    assert printed.out.endswith("Draws: mixture.nc\n")
    assert "Warning: the draws of" in printed.err  # so few draws cannot be trusted
    assert main(["run", "model.py:mixture", "--data", "data.csv", "--quiet", "--force"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Warning: the draws of" in printed.err
    (folder / "mixture.nc").unlink()


def test_the_example_of_explain(example, capsys, monkeypatch):
    folder, program, _ = example
    _, commands = parts_of(help_of("explain", capsys))
    monkeypatch.chdir(folder)
    assert [main(typed[1:]) for typed in commands] == [0]
    shown = capsys.readouterr().out
    assert shown == sumout.explain(program) + "\n"
    assert "5 sites on their own" in shown


def test_the_example_of_report(example, capsys, monkeypatch):
    folder, program, result = example
    files, commands = parts_of(help_of("report", capsys))
    for name, body in files.items():
        assert (folder / name).read_text(encoding="utf-8") == body
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sumout.run.sample, "sample", lambda *args, **kwargs: result)
    for typed in commands:
        assert main([*typed[1:], "--force"]) == 0
    assert capsys.readouterr().out.endswith("Page: run.html\n")
    page = (folder / "run.html").read_text(encoding="utf-8")
    assert page == sumout.report(result, folder / "direct.html", program).read_text(encoding="utf-8")
    assert "Plan and structure" in page

    assert main(["report", "run.nc", "--out", "alone.html"]) == 0
    page = (folder / "alone.html").read_text(encoding="utf-8")
    assert page == sumout.report(result, folder / "direct.html").read_text(encoding="utf-8")
    assert "Plan and structure" not in page


def test_plan_and_kernel_reach_the_explanation(models, capsys):
    typed = ["explain", f"{models}/models.py:mixture", "--data", f"{models}/data.csv"]
    assert main([*typed, "--set", "K=3", "--plan", "z=gibbs", "--kernel", "sgld"]) == 0
    shown = capsys.readouterr().out
    assert "values {0, 1, 2}" in shown
    assert "drawn from exact conditionals" in shown
    assert "Kernel: SGLD(" in shown


def test_python_m_sumout_and_the_installed_command():
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    assert 'sumout = "sumout.cli.main:main"' in pyproject.read_text(encoding="utf-8")
    ended = subprocess.run([sys.executable, "-m", "sumout", "explain", "no.py:f"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "sumout: no.py is not there; it should be a Python file.\n")


def options(models, name, *data, **settings):
    return Namespace(model=f"{models}/models.py:{name}", data=[str(models / d) for d in data], set=[*settings.items()])


@pytest.mark.parametrize(
    ("name", "data", "z"),
    [("mixture", ["data.csv"], "z"), ("make", ["data.csv"], "shift"), ("wrap", ["data.csv"], "z"), ("made", [], "z"),
     ("alone", [], "z")],
)  # fmt: skip
def test_a_model_a_program_and_what_returns_one(models, name, data, z):
    before = list(sys.path)
    with program_from(options(models, name, *data)) as program:
        assert list(program.z) == [z]
    assert sys.path == before


def test_a_reference_is_a_file_and_a_name():
    assert split_reference("a/b.py:f") == (Path("a/b.py"), "f")
    assert split_reference("c:/b.py:f") == (Path("c:/b.py"), "f")
    assert split_reference("c:/b.py") == (Path("c:/b.py"), "")
    assert split_reference("b.py") == (Path("b.py"), "")


def test_names_that_are_not_there(models, capsys):
    said = refuses(capsys, 2, "explain", f"{models}/models.py:mixtur")
    assert "Did you mean" in said
    assert "There are: mixture, make, wrap, alone, sums, density, asks, broken, without, made." in said
    assert "name the model as well. There are: mixture" in refuses(capsys, 2, "explain", f"{models}/models.py")
    assert "number is int" in refuses(capsys, 2, "explain", f"{models}/models.py:number")
    assert "no.py is not there" in refuses(capsys, 2, "run", f"{models}/no.py:f", "--out", models / "x.nc")
    assert "as in model.py:mixture" in refuses(capsys, 2, "explain", f"{models}/data.csv:f")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\n\ndef f(:\n", ["bad.py, line 3: def f(:", "SyntaxError: "]),
        ("import os\nimport nowhere\n", ["bad.py, line 2: import nowhere", "ModuleNotFoundError: "]),
        ("x = 1\nx / 0\n", ["bad.py, line 2: x / 0", "ZeroDivisionError: "]),
        ("import worse\n", ["bad.py, line 1: import worse", "worse.py, line 2: 1 / 0", "ZeroDivisionError: "]),
        ("import sys\nsys.exit(0)\n", ["ends the program", "bad.py, line 2: sys.exit(0)"]),
        ("import sumout\nsumout.density(1, x={}, z={})\n", ["bad.py, line 2: sumout.density", "OptionError: density:"]),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path, capsys, text, told):
    write(tmp_path, "worse.py", "\n1 / 0\n")
    said = refuses(capsys, 2, "explain", write(tmp_path, "bad.py", text) + ":f")
    sys.modules.pop("worse", None)
    for words in told:
        assert said.count(words) == 1
    assert "frozen" not in said


def test_models_that_fail_name_their_lines(models, capsys):
    data = ["--data", f"{models}/data.csv"]
    said = refuses(capsys, 1, "explain", f"{models}/models.py:broken", *data)
    assert "the model stops in `return z + None` with TypeError" in said
    assert re.search(r"models\.py, line \d+: return fail\(.*\n  neighbour\.py, line 5: return z \+ None\n", said)
    said = refuses(capsys, 1, "explain", f"{models}/models.py:asks", *data)
    assert "use jnp.where" in said
    assert re.search(r"models\.py, line \d+: if numpyro\.sample", said)
    said = refuses(capsys, 1, "explain", f"{models}/models.py:without", *data)
    assert "no latent site" in said
    assert "line" not in said
    assert "returns float64. It should be" in refuses(capsys, 2, "explain", f"{models}/models.py:sums", *data)
    said = refuses(capsys, 2, "explain", f"{models}/models.py:density", *data)
    assert "returns sumout.density(…)" in said
    assert "has its data already" in refuses(capsys, 2, "explain", f"{models}/models.py:made", *data)
    assert "would use nothing of" in refuses(capsys, 2, "explain", f"{models}/models.py:alone", *data)
    assert "there is no discrete site 'q'" in refuses(
        capsys, 2, "explain", f"{models}/models.py:mixture", *data, "--plan", "q=draw"
    )
    assert "expected one of 'ghmc'" in refuses(
        capsys, 2, "explain", f"{models}/models.py:mixture", *data, "--kernel", "fast"
    )


def test_debug_shows_the_traceback(models, capsys):
    assert main(["explain", f"{models}/models.py:broken", "--data", f"{models}/data.csv", "--debug"]) == 1
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "neighbour.py, line 5: return z + None" in said


def test_faults_of_our_own_are_told_apart(models, capsys, monkeypatch):
    monkeypatch.setattr("sumout.cli.model_files.read_files", lambda paths: 1 / 0)
    said = refuses(capsys, 1, "explain", f"{models}/models.py:made")
    assert said.startswith("sumout: ZeroDivisionError: division by zero\nThis should not happen")


class Bomb:
    """Would leave a trace if it were ever unpickled."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_npz_with_objects_is_refused(tmp_path, models, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", y=np.array([Bomb()], dtype=object), allow_pickle=True)
    said = refuses(capsys, 2, "explain", f"{models}/models.py:mixture", "--data", "d.npz")
    assert "'y' holds Python objects" in said
    assert not Path("exploded").exists()


def test_files_that_are_no_data(tmp_path, models, capsys):
    model = f"{models}/models.py:mixture"
    assert "no.csv is not there" in refuses(capsys, 2, "explain", model, "--data", models / "no.csv")
    assert "end in .csv, .tsv, .npz, .json" in refuses(capsys, 2, "explain", model, "--data", models / "models.py")
    (tmp_path / "d.csv").write_bytes("y\n1\n".encode("utf-16"))
    assert "not text in UTF-8" in refuses(capsys, 2, "explain", model, "--data", tmp_path / "d.csv")


def test_settings_given_twice(models, capsys):
    typed = ["explain", f"{models}/models.py:mixture", "--data", f"{models}/data.csv"]
    assert "--set K=4 is the second" in refuses(capsys, 2, *typed, "--set", "K=3", "--set", "K=4")
    assert "--plan z=sum is the second" in refuses(capsys, 2, *typed, "--plan", "z=draw", "--plan", "z=sum")


def test_a_result_comes_back_from_its_file(example, tmp_path):
    folder, program, result = example
    found = open_result(folder / "run.nc")
    assert found.identical(result)
    assert list(found.children) == list(result.children)
    for name, group in result.children.items():
        assert list(found[name].data_vars) == list(group.data_vars)
        assert found[name].attrs == group.attrs
        for variable in group.data_vars:
            assert found[name][variable].dtype == group[variable].dtype
    assert type(found.posterior.attrs["seed"]) is int
    with pytest.warns(sumout.errors.SamplingWarning):
        tables = [sumout.summary(of) for of in (found, result)]
    assert tables[0].equals(tables[1])
    assert sumout.marginals(program, found).identical(sumout.marginals(program, result))
    assert sumout.report(found, tmp_path / "a.html", program).read_text(encoding="utf-8") == sumout.report(
        result, tmp_path / "b.html", program
    ).read_text(encoding="utf-8")


def test_report_needs_a_result(tmp_path, capsys):
    assert "holds no run" in refuses(capsys, 2, "report", tmp_path)
    assert "is not there" in refuses(capsys, 2, "report", tmp_path / "no.nc")
    path = write(tmp_path, "r.nc", "no result")
    assert "r.nc cannot be read as netCDF" in refuses(capsys, 2, "report", path)
    assert "name it with --model" in refuses(capsys, 2, "report", path, "--data", "d.csv")
    write(tmp_path, "r.html", "there")
    assert "r.html is there already" in refuses(capsys, 2, "report", path)


def test_outputs_are_checked_before_the_work(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sumout.run.sample, "sample", None)
    typed = ["run", f"{models}/models.py:mixture", "--data", f"{models}/data.csv"]
    there = write(tmp_path, "there.nc", "")
    assert "is there already; give --force" in refuses(capsys, 2, *typed, "--out", there)
    assert "is there already" in refuses(capsys, 2, *typed, "--out", tmp_path / "r.nc", "--report", there)
    assert "there is no folder" in refuses(capsys, 2, *typed, "--out", tmp_path / "no" / "r.nc")
    assert "is a folder" in refuses(capsys, 2, *typed, "--out", tmp_path)
    assert "they are two files" in refuses(capsys, 2, *typed, "--out", tmp_path / "r", "--report", tmp_path / "r")
    assert "is read from" in refuses(capsys, 2, *typed, "--out", models / "data.csv", "--force")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert "Permission denied" in refuses(capsys, 2, *typed, "--out", tmp_path / "r.nc")


def test_the_summary_is_left_when_the_file_cannot_be_written(example, tmp_path, capsys, monkeypatch):
    def refuse(result, path):
        raise FileError(f"{path} cannot be written: No space left on device.")

    folder, _, result = example
    monkeypatch.setattr(sumout.run.sample, "sample", lambda *args, **kwargs: result)
    monkeypatch.setattr("sumout.store.netcdf.save_result", refuse)
    typed = ["run", f"{folder}/model.py:mixture", "--data", f"{folder}/data.csv", "--out", f"{tmp_path}/r.nc"]
    assert main(typed) == 2
    printed = capsys.readouterr()
    assert "mu[0]" in printed.out
    assert "No space left" in printed.err


def test_ctrl_c_ends_without_a_traceback(example, tmp_path, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)

    folder, _, _ = example
    monkeypatch.setattr(sumout.run.sample, "sample", interrupt)
    typed = ["run", f"{folder}/model.py:mixture", "--data", f"{folder}/data.csv", "--out", f"{tmp_path}/r.nc"]
    assert refuses(capsys, 130, *typed) == "sumout: interrupted.\n"
    assert not list(tmp_path.iterdir())


def test_a_reader_that_stops_reading_is_no_error(example):
    folder, _, _ = example
    typed = [sys.executable, "-m", "sumout", "explain", f"{folder}/model.py:mixture", "--data", f"{folder}/data.csv"]
    running = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait() == 1


def test_a_long_summary_is_cut_short():
    import pandas as pd

    rows = [f"x[{i}]" for i in range(100)]
    table = pd.DataFrame({"mean": 0.0, "ess_bulk": 5000.0, "ess_tail": 1.0, "r_hat": 1.0}, index=rows)
    table.loc["x[77]", "r_hat"] = 1.5
    lines = as_text(table).splitlines()
    assert len(lines) == 42
    assert lines[0].split() == ["mean", "ess_bulk", "r_hat"]
    assert any(line.startswith("x[77]") and "1.500" in line for line in lines)
    assert lines[-1] == "60 more rows; shown are those with the worst diagnostics."


def test_the_plan_in_one_line():
    from numpyro.distributions import constraints

    def many(x, z, data):
        return sum(z.values()) * 0.1 - 0.5 * x["h"] ** 2

    names = [f"z{i}" for i in range(6)]
    program = sumout.density(many, x={"h": constraints.real}, z={name: sumout.finite(2) for name in names})
    plan = make_plan(sumout.read(program), {"z0": "gibbs"})
    words = one_line(plan, sumout.GHMC())
    assert words == "many: z0 drawn by Gibbs; z1, z2, z3, z4 and 1 more summed out; kernel GHMC."


def test_a_stored_run(example, tmp_path, monkeypatch, capsys):
    folder, _, result = example
    monkeypatch.chdir(folder)
    typed = ["run", "model.py:mixture", "--data", "data.csv", "--store", str(tmp_path / "kept"), *SHORT]
    assert main([*typed, "--out", str(tmp_path / "run.nc")]) == 0
    np.testing.assert_array_equal(sumout.load(tmp_path / "kept").posterior["mu"], result.posterior["mu"])
    assert main(["report", str(tmp_path / "kept"), "--out", str(tmp_path / "run.html")]) == 0
    assert "<h1>" in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Page:" in capsys.readouterr().out


def test_the_same_command_resumes_and_replaces_what_it_wrote(example, tmp_path, monkeypatch, capsys):
    folder, _, _ = example
    monkeypatch.chdir(folder)
    out = tmp_path / "run.nc"
    typed = ["run", "model.py:mixture", "--data", "data.csv", "--store", str(tmp_path / "kept"), *SHORT]
    typed += ["--out", str(out), "--quiet"]
    assert main(typed) == 0
    before = out.read_bytes()
    assert main(typed) == 0 and sumout.load(out).posterior.equals(sumout.load(tmp_path / "kept").posterior.load())
    out.write_text("of somebody else")
    capsys.readouterr()
    assert main(typed) == 2 and "is there already" in capsys.readouterr().err
    out.write_bytes(before)
    assert main([word for word in typed if word not in ("--store", str(tmp_path / "kept"))]) == 2


def test_predict(example, tmp_path, monkeypatch, capsys):
    folder, _, result = example
    monkeypatch.chdir(folder)
    run = tmp_path / "run.nc"
    result.to_netcdf(run)
    typed = ["predict", "model.py:mixture", str(run), "--data", "data.csv"]
    assert main(typed) == 0
    made = sumout.load(tmp_path / "run.predicted.nc")
    assert made.posterior_predictive.y.shape == (2, 50, 5) and "Predicted: " in capsys.readouterr().out
    (tmp_path / "new.csv").write_text("y\n0\n0\n0\n")
    assert main([*typed, "--new", str(tmp_path / "new.csv"), "--out", str(tmp_path / "new.nc")]) == 0
    with xr.open_datatree(tmp_path / "new.nc") as new:
        assert new["posterior_predictive/z"].shape == (2, 50, 3)
    assert main([*typed[:2], "--data", "data.csv", "--draws", "7", "--out", str(tmp_path / "prior.nc")]) == 0
    with xr.open_datatree(tmp_path / "prior.nc") as prior:
        assert prior["prior_predictive/y"].shape == (1, 7, 5)
    assert main(typed) == 2
