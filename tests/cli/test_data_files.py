"""Files of data for the command line: what they may look like, what is refused, and how names find their parameters."""

import re

import jax
import numpy as np
import pytest

from sumout.cli.arguments import bind
from sumout.cli.data_files import read_files
from sumout.errors import FileError, OptionError


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def read(path, name):
    return read_files([str(path)])[name].read()


def test_csv_with_all_its_dialects(tmp_path):
    path = tmp_path / "d.csv"
    for text in (
        "y,n\n1.5,2\n-2,3\n",
        '"y";"n"\r\n1.5;2\r\n-2;3\r\n\r\n',
        "y\tn\n1.5\t2\n-2\t+3",
        "y, n\n1.5 , 2\n-2, 3\n",
    ):
        for start in ("", "\ufeff"):
            path.write_text(start + text, encoding="utf-8", newline="")
            assert read(path, "y").tolist() == [1.5, -2.0]
            assert read(path, "n").tolist() == [2, 3]
            assert read(path, "n").dtype == np.int64
    write(tmp_path, "d.csv", 'y,"who, and when"\n1e3,"Ann ""A""\nMay"\ninf,"Bo"\n')
    assert read(path, "y").tolist() == [1000.0, np.inf]
    assert list(read_files([str(path)])) == ["y", "who, and when"]
    write(tmp_path, "d.csv", "y\n99999999999999999999\n")
    assert read(path, "y").dtype == float


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("y,n\n1.5,2\n,3\n", "column 'y', row 2 (line 3): the cell is empty"),
        ("y\n1.5\n\n3\n", "column 'y', row 2 (line 3): the cell is empty"),
        ("y,n\n1.5,2\nNaN,3\n", "column 'y', row 2 (line 3): 'NaN' stands for no value"),
        ("y,n\nabc,2\n", "column 'y', row 1 (line 2): 'abc' is not a number."),
        ("y;n\n1,5;2\n", "'1,5' is not a number (write decimals with a point)"),
        ("y\n1_000\n", "'1_000' is not a number"),
        ("y\n1,5\n", "line 2: there are 2 cells where the header has 1"),
        ("y,n\n1,2\n\n3,4\n", "line 3: there are 0 cells where the header has 2"),
        ("1,2\n3,4\n", "looks like data"),
        (",y\n0,1\n", "column 1 has no name"),
        ("y,y\n0,1\n", "two columns have the name 'y'"),
        ("y\n", "a header and at least one row"),
        ("", "a header and at least one row"),
        ('y\n"1\n', "line 2"),
    ],
)
def test_csv_that_is_refused(tmp_path, text, told):
    path = write(tmp_path, "d.csv", text)
    with pytest.raises(FileError, match=re.escape(told)) as caught:
        read(path, "y")
    assert str(caught.value).startswith(path)


def test_json_and_npz(tmp_path):
    path = write(tmp_path, "d.json", '{"y": [[1, 2], [3, 4.5]], "K": 3, "is_on": true, "label": "text"}')
    assert read(path, "y").tolist() == [[1, 2], [3, 4.5]]
    assert (read(path, "K"), read(path, "is_on")) == (3, True)
    np.savez(tmp_path / "d.npz", y=np.arange(3, dtype=np.int32), K=3, flags=np.array([True]))
    assert read(tmp_path / "d.npz", "y").dtype == np.int32
    assert type(read(tmp_path / "d.npz", "K")) is int
    assert read(tmp_path / "d.npz", "flags").dtype == bool
    with pytest.raises(FileError, match="'y' is both in"):
        read_files([path, str(tmp_path / "d.npz")])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"y": [1, null]}', "'y' is not made of numbers only"),
        ('{"y": ["a"]}', "'y' is not made of numbers only"),
        ('{"y": {"a": 1}}', "'y' is not made of numbers only"),
        ('{"y": [[1], [2, 3]]}', "not all of the same length"),
        ('{"y": [1], "y": [2]}', "'y' is there twice"),
        ('{\n"y": [1,', "line 2: this is not JSON"),
        ("[1]", "expected an object with names"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_is_refused(tmp_path, text, told):
    path = write(tmp_path, "d.json", text)
    with pytest.raises(FileError, match=re.escape(told)) as caught:
        read(path, "y")
    assert str(caught.value).startswith(path)


def test_npz_that_is_refused(tmp_path):
    np.savez(tmp_path / "text.npz", y=np.array(["a"]))
    with pytest.raises(FileError, match="not made of numbers only"):
        read(tmp_path / "text.npz", "y")
    whole = (tmp_path / "text.npz").read_bytes()
    for content in (b"", b"y\n1\n", whole[:-40], np.arange(3).tobytes()):
        (tmp_path / "d.npz").write_bytes(content)
        with pytest.raises(FileError, match=r"d\.npz is not an npz file"):
            read(tmp_path / "d.npz", "y")
    start = whole.index(b"NUMPY")
    (tmp_path / "d.npz").write_bytes(whole[:start] + b"-----" + whole[start + 5 :])
    with pytest.raises(FileError, match="damaged"):
        read(tmp_path / "d.npz", "y")


def bound(function, tmp_path, csv=None, quiet=True, **settings):
    items = {} if csv is None else read_files([write(tmp_path, "d.csv", csv)])
    arguments = bind(function, "f", items, settings, quiet=quiet).arguments
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def test_names_are_matched(tmp_path, capsys):
    def two(y, k, sd=1.0):
        del y, k, sd

    assert bound(two, tmp_path, "k,y\n1,2\n") == {"y": [2], "k": [1]}
    assert bound(two, tmp_path, "score\n7\n", k=3) == {"y": [7], "k": 3}  # one column, whatever its name
    assert bound(two, tmp_path, y=1, k=2, sd=0.5) == {"y": 1, "k": 2, "sd": 0.5}
    assert bound(lambda y=None: y, tmp_path, "score\n7\n") == {"y": [7]}
    assert bound(lambda y, /, n: n, tmp_path, "y,n\n1,2\n") == {"y": [1], "n": [2]}
    assert bound(lambda **named: named, tmp_path, "a,b\n1,2\n") == {"named": {"a": [1], "b": [2]}}
    assert bound(lambda y: y, tmp_path, "y,name\n1,Ann\n", quiet=False) == {"y": [1]}
    assert "Left out, as f(y) has no such parameter: name." in capsys.readouterr().err


def test_names_that_do_not_fit(tmp_path):
    def two(y, k, sd=1.0):
        del y, k, sd

    with pytest.raises(OptionError, match=r"(?s)f\(y, k, sd=1\.0\) wants: y, k\n.*d\.csv has: a, b\n"):
        bound(two, tmp_path, "a,b\n1,2\n")
    with pytest.raises(OptionError, match=r"wants: y\n.*d\.csv has: a, k"):
        bound(two, tmp_path, "a,k\n1,2\n")
    with pytest.raises(OptionError, match="no --data given"):
        bound(two, tmp_path)
    with pytest.raises(OptionError, match=r"--set J: f\(y, k, sd=1\.0\) has no such parameter"):
        bound(two, tmp_path, "y\n1\n", k=1, J=2)
    with pytest.raises(OptionError, match="'k' is given by --set and by"):
        bound(two, tmp_path, "y,k\n1,2\n", k=1)
    with pytest.raises(OptionError, match="would use nothing of"):  # else a prior would be sampled from
        bound(lambda y=None, n=None: y, tmp_path, "Y,N\n1,2\n")
    with pytest.raises(OptionError, match="no signature"):
        bound(min, tmp_path)


def test_whole_numbers_too_large_for_jax(tmp_path):
    with jax.enable_x64(False), pytest.raises(FileError, match="beyond 2,147,483,647"):
        bound(lambda y: y, tmp_path, "y\n3000000000\n")
    assert bound(lambda y: y, tmp_path, "y\n3000000000\n") == {"y": [3000000000]}
