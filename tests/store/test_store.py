"""A run in a folder: gone on with bit by bit, refused when it is another, and read whatever has become of the files."""

import errno
import json
import os
import signal
import warnings

import numpy as np
import pytest

import sumout
from sumout.errors import OptionError, SamplingWarning, StoreError
from sumout.run.progress import Report
from sumout.store import folder as store
from sumout.store import format as parts
from sumout.store.format import differences

from programs import ENUMERABLE

PROGRAM = ENUMERABLE["survey"]()
OPTIONS = {"kernel": "ghmc", "plan": {"coin": "draw"}, "chains": 2, "tune": 30, "draws": 40, "chunk": 7}


def run(folder=None, **options):
    return sumout.sample(PROGRAM, store=folder, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def undisturbed():
    return run()


@pytest.fixture
def often(monkeypatch):
    """A part for every chunk."""
    monkeypatch.setattr(store, "OFTEN", 0.0)
    monkeypatch.setattr(store, "GROWTH", 0.0)


def assert_same(left, right):
    assert set(left.children) == set(right.children)
    for group in left.children:
        assert list(left[group].data_vars) == list(right[group].data_vars)
        for name, values in left[group].data_vars.items():
            assert values.dims == right[group][name].dims
            np.testing.assert_array_equal(values, right[group][name])
    told = [
        {n: v for n, v in tree.posterior.attrs.items() if n not in ("sampling_time", "created_at")}
        for tree in (left, right)
    ]
    assert told[0] == told[1]


def stop_at(monkeypatch, when):
    """Ctrl-C after a chunk that reaches so many draws, warm-up included."""

    def stop(report, progress):
        if progress.done >= when:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Report, "__call__", stop)


def test_a_stored_run_is_the_run(tmp_path, undisturbed):
    result = run(tmp_path)
    assert_same(result, undisturbed)
    assert_same(sumout.load(tmp_path), undisturbed)
    assert_same(run(tmp_path), undisturbed)  # nothing left to do


@pytest.mark.parametrize("stops", [(7,), (30,), (31,), (13, 33, 50)])
def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch, undisturbed, stops):
    for when in stops:
        stop_at(monkeypatch, when)
        if when <= OPTIONS["tune"]:
            with pytest.raises(KeyboardInterrupt, match="the same call will resume"):
                run(tmp_path)
            with pytest.raises(StoreError, match="no draws yet"):
                sumout.load(tmp_path)
        else:
            part = run(tmp_path)
            assert part.posterior.attrs["complete"] == 0
            drawn = part.posterior.sizes["draw"]
            np.testing.assert_array_equal(part.posterior["theta"], undisturbed.posterior["theta"][:, :drawn])
    monkeypatch.undo()
    assert_same(run(tmp_path, chunk=100), undisturbed)


@pytest.mark.usefixtures("often")
def test_more_draws_can_be_added_and_fewer_asked_for(tmp_path, undisturbed):
    run(tmp_path, draws=15)
    assert_same(run(tmp_path), undisturbed)
    fewer = run(tmp_path, draws=10)
    np.testing.assert_array_equal(fewer.posterior["coin"], undisturbed.posterior["coin"][:, :10])


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    "index", [5, -1, slice(3, 33), slice(None, None, 4), slice(35, 2, -3), [30, 2, 2], slice(0, 0)]
)
def test_what_is_read_is_what_was_asked_for(tmp_path, undisturbed, index):
    run(tmp_path)
    assert len(parts.list_parts(tmp_path)) > 8
    read, whole = (tree.posterior["coin"].isel(draw=index) for tree in (sumout.load(tmp_path), undisturbed))
    np.testing.assert_array_equal(read, whole)
    np.testing.assert_array_equal(read.isel(chain=1, coin_dim_0=[3, 0]), whole.isel(chain=1, coin_dim_0=[3, 0]))


class Died(BaseException):
    """The process is gone."""


@pytest.mark.usefixtures("often")
def test_a_death_at_any_touch_of_the_disk_loses_nothing(tmp_path, monkeypatch, undisturbed):
    """One run, killed at its first touch of the disk, then at its second, and so on until it ends."""
    for fatal in range(1000):
        touches = 0

        def touch(act, fatal=fatal):
            def instead(*args, **kwargs):
                nonlocal touches
                touches += 1
                if touches == 1 + fatal % 3:
                    raise Died
                return act(*args, **kwargs)

            return instead

        with monkeypatch.context() as patch:
            for owner, name in ((os, "fsync"), (parts.Path, "replace"), (os, "open")):
                patch.setattr(owner, name, touch(getattr(owner, name)))
            try:
                result = run(tmp_path)
                break
            except Died:
                continue
    assert fatal > 5
    assert_same(result, undisturbed)


def test_a_full_disk(tmp_path, monkeypatch, undisturbed):
    stop_at(monkeypatch, 50)
    run(tmp_path)
    monkeypatch.undo()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"No space left.*same call"):
            run(tmp_path)
    assert not list(tmp_path.glob(f"*{parts.UNFINISHED}"))
    assert sumout.load(tmp_path).posterior.sizes["draw"] >= 19
    assert_same(run(tmp_path), undisturbed)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "OFTEN", 0.0)
        patch.setattr(store, "GROWTH", 0.0)
        run(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def spoil(tmp_path, stored, name, content):
    for each, whole in stored.items():
        (tmp_path / each).write_bytes(whole)
    (tmp_path / name).write_bytes(content)


def last_part(stored):
    return max(name for name in stored if name.startswith("part"))


@pytest.mark.parametrize("kept", [0, 1, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short(tmp_path, stored, undisturbed, kept):
    name = last_part(stored)
    whole = stored[name]
    spoil(tmp_path, stored, name, whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    check_damage(tmp_path, name, undisturbed)


@pytest.mark.parametrize("where", np.linspace(0, 0.9999, 12))
def test_a_flipped_byte(tmp_path, stored, undisturbed, where):
    name = last_part(stored)
    content = bytearray(stored[name])
    content[int(where * len(content))] ^= 0x10
    spoil(tmp_path, stored, name, bytes(content))
    check_damage(tmp_path, name, undisturbed)


def check_damage(folder, name, undisturbed):
    with pytest.raises(StoreError, match=name):
        sumout.load(folder)
    with pytest.raises(StoreError, match=name):
        run(folder)
    with pytest.warns(SamplingWarning, match="1 of"):
        rest = sumout.load(folder, skip_damaged=True)
    drawn = rest.posterior.sizes["draw"]
    assert 0 < drawn < OPTIONS["draws"]
    np.testing.assert_array_equal(rest.posterior["theta"], undisturbed.posterior["theta"][:, :drawn])
    (folder / name).unlink()
    assert_same(run(folder), undisturbed)


def test_a_part_that_is_missing(tmp_path, stored):
    spoil(tmp_path, stored, "nothing", b"")
    names = sorted(name for name in stored if name.startswith("part"))
    (tmp_path / names[-3]).unlink()
    with pytest.raises(StoreError, match=r"part .* is missing"):
        sumout.load(tmp_path)
    with pytest.warns(SamplingWarning, match="1 of"):
        assert 0 < sumout.load(tmp_path, skip_damaged=True).posterior.sizes["draw"] < OPTIONS["draws"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 99, "identity": {}}', b"\xff\xfe"]
)
def test_notes_that_are_damaged(tmp_path, stored, content):
    spoil(tmp_path, stored, "run.json", content)
    for act in (sumout.load, run):
        with pytest.raises(StoreError, match=r"run\.json"):
            act(tmp_path)


def test_code_in_a_file_is_not_run(tmp_path, stored):
    import pickle
    import zlib

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "evil"),))

    content = pickle.dumps(Evil())
    name = last_part(stored)
    spoil(tmp_path, {n: c for n, c in stored.items() if n != name}, "nothing", b"")
    (tmp_path / f"{name[:11]}-{zlib.crc32(content):08x}.npz").write_bytes(content)
    with pytest.raises(StoreError):
        sumout.load(tmp_path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, r"seed \(1, was 0\)"),
        ({"kernel": sumout.GHMC(friction=0.6)}, r"kernel \(.*friction=0\.6.*, was .*friction=0\.5"),
        ({"kernel": "ghmc", "chains": 3}, r"chains \(3, was 2\)"),
        ({"tune": 31}, r"tune \(31, was 30\)"),
        ({"steps": 3}, r"steps \(3, was None\)"),
        ({"plan": {"coin": "gibbs"}}, "plan"),
    ],
)
def test_another_run_is_refused(tmp_path, stored, change, words):
    spoil(tmp_path, stored, "nothing", b"")
    with pytest.raises(StoreError, match=f"another run.*{words}"):
        run(tmp_path, **change)


def test_another_model_and_other_data_are_refused(tmp_path, stored):
    spoil(tmp_path, stored, "nothing", b"")
    from dataclasses import replace

    names = list(PROGRAM.data)
    changed = replace(PROGRAM, data={**PROGRAM.data, names[0]: 1 - np.asarray(PROGRAM.data[names[0]])})
    with pytest.raises(StoreError, match=f"another run.*the data '{names[0]}'"):
        sumout.sample(changed, store=tmp_path, **OPTIONS)
    other = replace(PROGRAM, log_joint=lambda x, z, data: 2 * PROGRAM.log_joint(x, z, data))
    with pytest.raises(StoreError, match=r"another run.*the model"):
        sumout.sample(other, store=tmp_path, **OPTIONS)


def test_another_version_is_refused():
    assert differences({"the version of jax": "1"}, {"the version of jax": "2"}) == ["the version of jax (2, was 1)"]
    assert differences({}, {"the data 'w'": "0"}) == ["the data 'w', which was not there"]


def test_folders_that_will_not_do(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match="is a file"):
        run(tmp_path / "file")
    (tmp_path / "other.json").write_text(json.dumps({}))
    with pytest.raises(StoreError, match="other files"):
        run(tmp_path)
    with pytest.raises(StoreError, match="holds no run"):
        sumout.load(tmp_path / "nowhere")


def test_two_processes_cannot_write_to_one_folder(tmp_path, stored):
    import fcntl

    spoil(tmp_path, stored, "nothing", b"")
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StoreError, match="in use"):
            run(tmp_path)


def test_a_summary_of_a_stored_run(tmp_path, stored, undisturbed):
    spoil(tmp_path, stored, "nothing", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        np.testing.assert_array_equal(sumout.summary(sumout.load(tmp_path)), sumout.summary(undisturbed))
