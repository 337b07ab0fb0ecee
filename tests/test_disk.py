"Disks that are full, folders that are closed, files that are odd: one clear line, nothing lost, nothing left behind"
import errno
import json
import os
import stat

import pytest

from rlbench.core.state import read_tree, same
from rlbench.launch.cli import main
from rlbench.training.checkpoints import checkpoints_of, newest

SMALL = ["--set", "checkpoint_every=50", "--set", "eval_every=0", "--quiet"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "a"


def run(steps, *words):
    return main(["train", "CartPole-v1", "dqn", "--run-id", "a", "--steps", str(steps), *SMALL, *words])


def said(capsys):
    "The only line on the terminal"
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("rlbench: ")
    return line


def left_behind(folder):
    return list(folder.rglob("*.part"))


def state_at(folder):
    return read_tree(newest(folder), "checkpoint")["state"]


def failing_after(monkeypatch, name, times, code):
    "Let a function of os fail from some call on"
    works = getattr(os, name)
    calls = []

    def fails(*args):
        calls.append(args)
        if len(calls) > times: raise OSError(code, os.strerror(code))
        return works(*args)

    monkeypatch.setattr(os, name, fails)


@pytest.mark.parametrize("name, code, words", [
    ("fsync", errno.ENOSPC, "No space left on device"),
    ("fsync", errno.EDQUOT, "quota exceeded"),
    ("replace", errno.EACCES, "Permission denied"),
    ("replace", errno.EROFS, "Read-only file system"),
])
def test_what_cannot_be_written_ends_the_run_and_loses_nothing(place, monkeypatch, capsys, name, code, words):
    with monkeypatch.context() as patch:
        failing_after(patch, name, 12, code)
        assert run(300) == 2
        line = said(capsys)
        assert "cannot be written" in line and words in line and str(place.relative_to(place.parents[1])) in line
    assert checkpoints_of(place) and not left_behind(place)
    assert all(read_tree(file, "checkpoint") for file in checkpoints_of(place))
    assert run(300, "--resume") == 0
    whole = main(["train", "CartPole-v1", "dqn", "--run-id", "b", "--steps", "300", *SMALL])
    assert whole == 0 and same(state_at(place), state_at(place.with_name("b")))


def test_the_first_file_of_all(place, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        failing_after(patch, "fsync", 0, errno.ENOSPC)
        assert run(60) == 2
        assert "No space left on device" in said(capsys)
    assert not left_behind(place.parent)
    assert run(60) == 0


def test_a_file_in_the_place_of_the_folder(place, capsys):
    place.parent.write_text("mine")
    assert run(60) == 2
    assert "runs" in said(capsys)
    assert place.parent.read_text() == "mine"


ODD = ["", "{", "[]", "3", '{"best": "high"}', '{"best": [1]}', '{"steps": "many"}', '{"best": null}', "\x00\xff",
       "[" * 5000]


@pytest.mark.parametrize("text", ODD)
def test_an_odd_status_loses_nothing(place, capsys, text):
    assert run(60) == 0
    before = state_at(place)
    (place / "status.json").write_text(text, encoding="latin-1")
    capsys.readouterr()
    status = run(120, "--resume")
    if status:
        assert status == 2 and "status.json" in said(capsys)
        assert same(state_at(place), before)
        (place / "status.json").unlink()
        assert run(120, "--resume") == 0
    assert state_at(place)["env"]["counts"]["steps"] == 120


@pytest.mark.parametrize("line", ODD[1:])
def test_an_odd_line_in_the_metrics_costs_no_other(place, line):
    assert run(60, "--set", "log_every=20") == 0
    metrics = place / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("\n", f"\n{line}\n", 1), encoding="latin-1")
    assert run(120, "--resume") == 0
    assert [json.loads(row)["steps"] for row in metrics.read_text().splitlines()] == [20, 40, 60, 80, 100, 120]


def test_a_status_that_is_a_folder(place, capsys):
    assert run(60) == 0
    (place / "status.json").unlink()
    (place / "status.json").mkdir()
    capsys.readouterr()
    assert run(120, "--resume") == 2
    assert "status.json" in said(capsys)


def test_a_run_resumes_from_its_very_beginning(place):
    assert run(0) == 0
    assert [file.name for file in checkpoints_of(place)] == ["000000000000.rlb"]
    assert run(120, "--resume") == 0
    assert main(["train", "CartPole-v1", "dqn", "--run-id", "b", "--steps", "120", *SMALL]) == 0
    assert same(state_at(place), state_at(place.with_name("b")))
    rows = [(place.with_name(name) / "metrics.jsonl").read_text().count("\n") for name in "ab"]
    assert rows[0] == rows[1]


def test_files_have_the_rights_that_the_user_wants(place):
    before = os.umask(0o027)
    status = run(60)
    os.umask(before)
    assert status == 0
    for path in [place, *place.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o027 == 0, path
    assert stat.S_IMODE(newest(place).stat().st_mode) == 0o640
