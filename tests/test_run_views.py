"Runs looked at: broken, foreign and growing folders, intervals against slow loops, every algorithm, a page by hand"
import json
import os
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlbench
from rlbench.algos.algorithm import algorithms
from rlbench.core.intervals import iqm, iqm_interval, redrawn
from rlbench.core.state import FileProblem
from rlbench.launch.cli import main
from rlbench.lab.pictures.components import as_page
from rlbench.lab.page.flame import Flame, flame_bars, time_tree
from rlbench.lab.runs.run_curves import RunCurves, band_of, common_places, figure_of_bands, read_off
from rlbench.lab.runs.run_files import RunReader, is_written
from rlbench.lab.runs.run_rows import beat
from rlbench.lab.runs.run_table import RunGroup
from rlbench.training.checkpoints import RunProblem
from rlbench.training.claims import claimed
from rlbench.training.train import train
from tests.cases import EPISODE, ONE_EACH, demonstrations
from tests.conftest import small
from tests.test_runs import ARGS, process_of, wait_for_checkpoint

EVIL = "<img src=x onerror=alert(1)>"
QUICK = dict(steps=300, num_envs=2, n_steps=32, hidden=(8,), log_every=50, eval_every=100, eval_episodes=1)
numbers = st.floats(-1e6, 1e6, width=32)


def run_by_hand(folder, name, rows=(), lr=.1, seed=0, env="Pole", algo="ppo", status=None):
    "A run folder as a few files"
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / ".rlbench").touch()
    told = {"trainer": dict(seed=dict(value=seed, source="python")), "run": {},
            "agent": dict(lr=dict(value=lr, source="python"))}
    (path / "config.json").write_text(json.dumps(dict(env=env, algo=algo, settings=told)))
    (path / "status.json").write_text(json.dumps(dict(state="finished") if status is None else status))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    "Two learning rates, two seeds each"
    folder = tmp_path_factory.mktemp("lab") / "runs"
    for lr in (.001, .01):
        for seed in (0, 1):
            train("CartPole-v1", "ppo", run_id=f"{lr:g}-{seed}", folder=folder, lr=lr, seed=seed, progress=False,
                  **QUICK)
    return rlbench.Runs(folder)


# ---- intervals

def slow_iqm(values):
    "By hand: lowest and highest are thrown away together, while no more than a quarter of all goes at each end"
    left = sorted(values)
    thrown = 0
    while thrown + 1 <= len(values) / 4:
        left = left[1:-1]
        thrown += 1
    return sum(left) / len(left)


@settings(max_examples=30, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=9))
def test_the_interquartile_mean_is_what_is_left_when_the_ends_are_thrown_away(values):
    assert np.isclose(iqm(np.array(values)), slow_iqm(values), rtol=1e-6, atol=1e-6)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_the_interval_is_that_of_a_slow_double_loop(data):
    n = data.draw(st.integers(1, 4))
    places = data.draw(st.integers(1, 2))
    x = np.array(data.draw(st.lists(st.lists(numbers, min_size=places, max_size=places), min_size=n, max_size=n)))
    strata = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    low, high = iqm_interval(x, strata)
    picks = redrawn(strata, np.random.default_rng(0)).tolist()
    for place in range(places):
        drawn = [slow_iqm(x[pick, place].tolist()) for pick in picks]
        assert np.allclose([low[place], high[place]], np.percentile(drawn, [2.5, 97.5]), rtol=1e-6, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_a_draw_holds_as_many_of_each_kind_as_there_are(strata):
    kinds = np.array(strata)[redrawn(strata, np.random.default_rng(0))]
    assert (np.sort(kinds, 1) == np.sort(strata)).all()


@pytest.mark.parametrize("by, lrs, seeds, told", [
    ((), (.1, .2), (0, 0, 0), "1"),                             # one and the same run three times
    ((), (.1, .2), (0, 1), "2"),
    ("algo", (.1, .2, .3), (0,), "1 in each of 3 settings"),    # a sweep: nothing is known of luck
    ("algo", (.1, .2), (0, 1, 1), "2 in each of 2 settings"),
])
def test_only_different_seeds_of_a_setting_make_an_interval(tmp_path, by, lrs, seeds, told):
    for lr in lrs:
        for at, seed in enumerate(seeds):
            rows = [dict(steps=step, eval_mean=100 * lr + seed + step) for step in (1, 2)]
            run_by_hand(tmp_path, f"{lr}-{at}", rows, lr=lr, seed=seed)
    runs = rlbench.Runs(tmp_path)
    several = len(set(seeds)) > 1
    for line in runs.paper(by=by).text().splitlines()[2:]:
        cells = line.split(" | ")
        assert cells[2] == told and ("[" in cells[5]) == several and "**" not in line
    for band in runs.curves(by=by).panels["greedy"]:
        assert (band.low < band.high).all() == several
        assert (band.low == band.high).all() != several
        assert set(band.counts) == {len(set(seeds))}


# ---- curves

curve = st.dictionaries(st.integers(0, 400), numbers, min_size=1, max_size=12).map(lambda found: sorted(found.items()))


def slow_value(points, place):
    "What a curve has at a place between two of its points"
    for (x, y), (after, then) in zip(points, points[1:] + points[-1:]):
        if place == x: return y
        if x < place < after: return y + (then - y) * (place - x) / (after - x)
    raise AssertionError(f"{place} lies beyond {points}")


@settings(max_examples=60, deadline=None)
@given(st.lists(curve, min_size=1, max_size=4))
def test_curves_are_read_off_where_all_of_them_are_and_straight_between_points(drawn):
    curves = [tuple(np.array(points, float).T) for points in drawn]
    places = common_places(curves)
    start = max(points[0][0] for points in drawn)
    end = min(points[-1][0] for points in drawn)
    known = {x for points in drawn for x, _ in points}
    assert places.tolist() == sorted(x for x in known if start <= x <= end)
    values = read_off(curves, places)
    for one, points in enumerate(drawn):
        for at, place in enumerate(places):
            assert np.isclose(values[one, at], slow_value(points, place), rtol=1e-6, atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.lists(curve, min_size=1, max_size=3))
def test_a_line_lies_within_its_interval_and_that_within_its_runs(drawn):
    curves = [tuple(np.array(points, float).T) for points in drawn]
    band = band_of(RunGroup("a", [None] * len(curves), (0,) * len(curves), tuple(range(len(curves)))), curves)
    if not len(band.x): return
    values = read_off(curves, band.x)
    slack = 1e-6 * (1 + np.abs(values).max())
    assert (values.min(0) - slack <= band.low).all() and (band.high <= values.max(0) + slack).all()
    assert (band.low - slack <= band.middle).all() and (band.middle <= band.high + slack).all()


@pytest.mark.parametrize("many", [1, 8, 40])
def test_pictures_of_few_and_of_many_runs(tmp_path, many):
    for at in range(many):
        rows = [dict(steps=100 * i, eval_mean=at + i, mean_return=i) for i in range(5)]
        run_by_hand(tmp_path, f"run-{at}", rows, lr=at // 2 / 100, seed=at % 2)
    runs = rlbench.Runs(tmp_path)
    curves = runs.curves()
    assert set(curves.panels) == {"greedy", "training"}
    assert sum(len(band.singles) for band in curves.panels["greedy"]) == many
    light, dark = (runs.curves(theme=theme)._repr_png_() for theme in ("light", "dark"))
    assert light != dark and light.startswith(b"\x89PNG") and len(light) < 60_000


# ---- folders

def everything_in(folder):
    "What is there, with times and bytes"
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}


def test_looking_changes_nothing(four):
    before = everything_in(four.reader.folder)
    runs = rlbench.Runs(four.reader.folder)
    repr(runs)
    runs.curves()._repr_png_()
    runs.paper().text("latex")
    runs.flame(0)
    runs.open(0, driver="sync").close()
    assert everything_in(four.reader.folder) == before


FILES = ("config.json", "status.json", "metrics.jsonl", "timers.json")
junk = st.one_of(st.binary(max_size=60), st.sampled_from([b"[]", b"{}", b'{"env": 3}', b"null", b"[" * 5000, b"\0",
                 b'{"settings": {"trainer": 5}, "algo": "x"}', b'{"algo": {"a": "b"}, "settings": {"a": {"lr": 1}}}',
                 b'{"algo": "x", "env": ["a"], "settings": {"agent": {"lr": {"value": [[1], {}], "source": 3}}}}',
                 b'{"steps": "many", "state": ["a"], "best": {}, "mean_return": null}', b'{"steps": 1e999}\n{"ste']))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), junk)
def test_whatever_a_file_holds_the_other_runs_are_read(tmp_path_factory, name, text):
    folder = tmp_path_factory.mktemp("runs")
    run_by_hand(folder, "good", [dict(steps=1, eval_mean=2.)])
    (run_by_hand(folder, "odd", [dict(steps=1, eval_mean=2.)]) / name).write_bytes(text)
    runs = rlbench.Runs(folder)
    assert "good" in [line["run"] for line in runs.lines]
    assert len(runs) + len(runs.reader.left_out) == 2
    assert all(runs[line["run"]]["run"] == line["run"] for line in runs.lines)
    assert repr(runs) and runs._repr_html_() and runs.curves().words() and runs.group()
    runs.sort("return").where("seed >= 0 or state == 'x'")
    try:
        runs.flame("odd")
    except (FileProblem, RunProblem) as problem:
        assert "\n" not in str(problem)


def nested(depth):
    "Lists in one another"
    return [] if not depth else [nested(depth - 1)]


@pytest.mark.parametrize("odd", [
    dict(seed=10**400), dict(lr=10**400), dict(lr=-10**400), dict(lr=[1, "a", None, {}]),
    dict(status=dict(steps=10**400, best=10**400)),
    dict(rows=[dict(steps=10**400, mean_return=10**400, eval_mean=1e308, time=1e300)]),
    dict(lr=nested(900)),
])
def test_numbers_and_lists_of_any_size_leave_the_other_runs_readable(tmp_path, odd, capsys):
    run_by_hand(tmp_path, "good", [dict(steps=step, eval_mean=2., mean_return=1.) for step in (1, 2)])
    run_by_hand(tmp_path, "odd", **dict(dict(rows=[dict(steps=1, eval_mean=2., mean_return=1.)]), **odd))
    runs = rlbench.Runs(tmp_path)
    if odd == dict(lr=nested(900)):
        assert "lr: more than 20 lists" in runs.reader.left_out["odd"] and "cannot be read: odd" in repr(runs)
    assert len(runs) + len(runs.reader.left_out) == 2
    assert repr(runs) and runs._repr_html_() and runs.curves().png() and runs.group()
    for flags in ((), ("--where", "lr < 1 and algo == 'ppo'"), *(("--sort", name) for name in ("lr", "seed", "steps"))):
        assert main(["runs", str(tmp_path), *flags]) == 0
    assert "good" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["9.**9**9 > 1", "lr == " + "9" * 400, "2**seed**99**99 > 1", "-" * 3000 + "1 > 0",
                                  "(" * 150 + "1" + ")" * 150 + " > " + "9" * 5000])
def test_what_cannot_be_reckoned_is_said_in_one_line(tmp_path, text, capsys):
    run_by_hand(tmp_path, "good")
    main(["runs", str(tmp_path), "--where", text])
    told = capsys.readouterr().err
    assert told.count("\n") <= 1 and (not told or told.startswith("rlbench: command line: "))


def test_a_run_began_when_it_began(tmp_path):
    for name in "ab":
        train("CartPole-v1", "ppo", run_id=name, folder=tmp_path, progress=False, **QUICK)
    before = [line["started"] for line in rlbench.Runs(tmp_path).lines]
    train("CartPole-v1", "ppo", run_id="a", folder=tmp_path, progress=False, resume=True, **QUICK | dict(steps=400))
    runs = rlbench.Runs(tmp_path)
    assert [line["started"] for line in runs.lines] == before and [line["run"] for line in runs.lines] == ["a", "b"]
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    for told in (None, "x", 1e300, 10**400, -5):          # where it is not known, the file's own time counts
        (tmp_path / "a" / "config.json").write_text(json.dumps(config | dict(started=told)))
        assert abs(rlbench.Runs(tmp_path)["a"]["started"] - before[0]) < 600


def test_folders_that_are_none_and_files_that_are_pipes(tmp_path):
    run_by_hand(tmp_path, "good")
    (tmp_path / "a file").write_text("hello")
    (tmp_path / "photos").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    for name in ("config.json", "status.json", "metrics.jsonl", ".lock"):
        path = run_by_hand(tmp_path, f"pipe-{name}")
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)                        # reading one never ends
    runs = rlbench.Runs(tmp_path)
    assert {line["run"] for line in runs.lines} >= {"good", "pipe-.lock", "pipe-metrics.jsonl"}
    assert "is no ordinary file" in runs.reader.left_out["pipe-config.json"]
    assert runs.curves().words() == "no returns yet"


def test_many_runs_are_one_screen(tmp_path):
    for at in range(500):
        run_by_hand(tmp_path, f"run-{at:04}", [dict(steps=10, mean_return=at)], lr=at % 50, seed=at // 50)
    runs = rlbench.Runs(tmp_path)
    assert len(runs) == 500 and len(runs.group()) == 50
    assert len(repr(runs).splitlines()) == 23 and "… and 480 more" in runs._repr_html_()
    assert runs.sort("return").lines[0]["run"] == "run-0499"
    assert len(runs.where("lr < 5 and seed < 4")) == 20
    again = runs.refresh()
    assert all(one is other for one, other in zip(runs.lines, again.lines))


def test_no_name_becomes_a_part_of_the_page(tmp_path):
    run_by_hand(tmp_path, "a&b", [dict(steps=1, eval_mean=1.)], env=EVIL, algo=EVIL)
    run_by_hand(tmp_path, "other", [dict(steps=1, eval_mean=1.)], lr=EVIL)
    runs = rlbench.Runs(tmp_path)
    page = runs.show(driver="sync")
    as_page(page.rows, selected=page.rows.ids[1], opened=1)
    shown = [runs._repr_html_(), runs.paper()._repr_html_(), runs.apart(0, 1)._repr_html_(), page.title.value,
             page.words.value, page.card.name.value, page.card.settings.value, page.apart.value]
    assert not [text for text in shown if EVIL in text]
    page.close()


def test_a_run_whose_world_is_code_runs_none_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "open('ran', 'w')\nfrom gymnasium.envs.classic_control import CartPoleEnv as Pole"
    (tmp_path / "world.py").write_text(code)
    train("world.py:Pole", "ppo", run_id="own", progress=False, **QUICK)
    (tmp_path / "ran").unlink()
    runs = rlbench.Runs()
    for look in (repr, RunCurves, rlbench.Runs.paper): look(runs)
    assert runs.flame("own") and runs.settings("own", every=True)
    page = runs.show(driver="sync")
    page.card.show(runs["own"])
    page.card.pass_on()
    assert "world.py" in page.complaint.widget.value and page.opened is None
    page.close()
    assert not (tmp_path / "ran").exists()
    wb = runs.open("own", env="world.py:Pole", driver="sync")
    assert (tmp_path / "ran").exists() and wb.trainer.steps >= 300
    wb.close()


# ---- while they are written

def test_a_run_in_another_process_is_seen_running_and_then_broken_off(tmp_path):
    process = process_of("train", *ARGS, "--steps", 1_000_000, "--run-id", "far", "--folder", tmp_path)
    try:
        wait_for_checkpoint(tmp_path / "far", process)
        runs = rlbench.Runs(tmp_path)
        first = runs["far"]
        assert first["state"] == "running" and first["steps"] > 0
        page = runs.show(driver="sync")
        while runs.refresh()["far"]["steps"] == first["steps"]:
            assert process.poll() is None
        beat(page.pulse)
        assert page.choice.runs["far"]["steps"] > first["steps"]
        for _ in range(100): runs.refresh()           # the writer does not mind
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    runs = runs.refresh()
    assert runs["far"]["state"] == "broken off"
    assert runs.open("far", driver="sync").trainer.steps > 0
    page.close()


def test_who_looks_never_keeps_a_run_from_beginning(tmp_path):
    path = run_by_hand(tmp_path, "busy")
    over = threading.Event()

    def look():
        while not over.is_set(): is_written(path)
    looks = threading.Thread(target=look)
    looks.start()
    try:
        for _ in range(30):
            with claimed(path):
                assert is_written(path)
    finally:
        over.set()
        looks.join()
    assert not is_written(path)


def test_news_come_with_a_beat_and_nothing_else_moves(four):
    page = four.show(driver="sync")
    threads = threading.active_count()
    picture = page.picture.value
    beat(page.pulse)
    assert page.picture.value is picture and page.pulse.heard == 1
    assert threading.active_count() == threads
    page.close()


@pytest.mark.parametrize("text", ["lr >", "nonsense > 1", "lr"])
def test_what_is_wrong_with_a_filter_is_said_until_it_is_mended(tmp_path, text):
    for lr in (.001, .1): run_by_hand(tmp_path / "runs", f"{lr}", lr=lr)
    page = rlbench.Runs(tmp_path / "runs").show(driver="sync")
    page.text.value = text
    said = page.complaint.widget.value
    assert said
    look = lambda: beat(page.pulse)
    for act in (look, page.refresh, page.sort, page.draw, look):
        act()
        assert page.complaint.widget.value == said and len(page.choice.shown.lines) == 2
    page.text.value = "lr > .005"
    assert not page.complaint and len(page.choice.shown.lines) == 1
    page.close()


def test_news_do_not_take_away_what_is_said_of_something_else(tmp_path):
    page = rlbench.Runs(run_by_hand(tmp_path / "runs", "one").parent).show(driver="sync")
    page.open(page.choice.runs.lines[0], None)
    assert "checkpoint" in page.complaint.widget.value
    beat(page.pulse)
    assert "checkpoint" in page.complaint.widget.value
    page.sort()
    assert not page.complaint
    page.close()


def test_a_run_has_one_name_in_the_picture_though_it_was_never_evaluated(tmp_path):
    rows = [dict(steps=steps, mean_return=1.) for steps in (1, 2)]
    run_by_hand(tmp_path / "runs", "one", rows, algo="dqn")
    run_by_hand(tmp_path / "runs", "two", [*rows, dict(steps=2, eval_mean=3.)])
    curves = RunCurves(rlbench.Runs(tmp_path / "runs"))
    names = [text.get_text() for text in figure_of_bands(curves.panels).legends[0].texts]
    assert len(curves.panels) == 2 and len(names) == 2 and "(0 seeds)" not in " ".join(names)


# ---- every algorithm


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory):
    "A short run of every algorithm"
    folder = tmp_path_factory.mktemp("all") / "runs"
    for case in ONE_EACH:
        chosen = small(case.cls, log_every=20)
        given = case.cls.offline or case.cls.imitates
        memory = demonstrations(case.env, chosen.get("num_envs") or case.cls.num_envs) if given else None
        length = dict(updates=5) if case.cls.offline else dict(steps=60)
        train(case.env, case.algo, run_id=case.algo, folder=folder, memory=memory, env_settings=EPISODE,
              progress=False, eval_every=0, **length, **chosen)
    return rlbench.Runs(folder)


def test_every_algorithm_has_its_line(all_of_them):
    assert {line["algo"] for line in all_of_them.lines} == set(algorithms())
    assert all_of_them.reader.left_out == {}
    assert {line["state"] for line in all_of_them.lines} == {"finished"}
    groups = all_of_them.group()
    assert sum(len(group.lines) for group in groups) == len(algorithms()) == len(groups)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_its_times_settings_and_checkpoint_can_be_had(all_of_them, case):
    line = all_of_them[case.algo]
    flame = all_of_them.flame(case.algo)
    assert {bar.node.name for bar in flame_bars(flame.node)} & {"collect", "learn"}
    assert line["lr"] is None or "lr" in [row[0] for row in all_of_them.settings(case.algo, every=True)]
    wb = all_of_them.open(case.algo, driver="sync")
    assert isinstance(wb.flame(), Flame) and repr(time_tree(wb.trainer.timers))
    wb.close()


# ---- several behaviours

def test_a_run_of_two_behaviours_is_two_lines(tmp_path):
    path = run_by_hand(tmp_path, "tag", algo=dict(chaser="dqn", runner="ppo"))
    config = json.loads((path / "config.json").read_text())
    config["settings"] |= dict(chaser=dict(lr=dict(value=1., source="python")),
                               runner=dict(lr=dict(value=2., source="default")))
    (path / "config.json").write_text(json.dumps(config))
    rows = [{"steps": 10, "chaser/mean_return": 1., "runner/mean_return": -1., "runner/eval_mean": 5.}]
    (path / "metrics.jsonl").write_text(json.dumps(rows[0]))
    runs = rlbench.Runs(tmp_path)
    assert [(line["behaviour"], line["algo"], line["lr"], line["return"], line["greedy"]) for line in runs.lines] == [
        ("chaser", "dqn", 1., 1., None), ("runner", "ppo", 2., -1., 5.)]
    assert {group.label for group in runs.group()} == {"dqn chaser", "ppo runner"}
    assert len(runs.where("behaviour == 'runner'")) == 1
    assert len(runs.curves("training").panels["training"]) == 2


# ---- words

REFUSED = [
    (lambda runs: runs["0.001-9"], "unknown run '0.001-9'; did you mean '0.001-"),
    (lambda runs: runs[7], "run 7: the table has 4 lines"),
    (lambda runs: runs.sort("retrun"), "did you mean 'return'?"),
    (lambda runs: runs.where("lr === 1"), "invalid syntax"),
    (lambda runs: runs.where("x > 1"), "unknown name 'x'"),
    (lambda runs: runs.group("learning_rate"), "here it is 'lr'"),
    (lambda runs: runs.curves("gready"), "did you mean 'greedy'?"),
    (lambda runs: runs.curves(over="time"), "unknown axis 'time'"),
    (lambda runs: runs.paper("mean"), "unknown score 'mean'"),
    (lambda runs: runs.where("lr > 1").paper(), "no runs, and so no table"),
    (lambda runs: runs.curves(["greedy"]), "unknown return ['greedy']"),
    (lambda runs: runs.curves(theme="drak"), "did you mean 'dark'?"),
    (lambda runs: runs.curves(by=None), "by = None: expected names of settings"),
    (lambda runs: runs.paper(by="lrr"), "did you mean 'lr'?"),
    (lambda runs: runs.table(-1), "table: most = -1: expected a whole number"),
    (lambda runs: runs.sort("lr", "up"), "down = 'up': expected True or False"),
    (lambda runs: runs.settings("0.01-0", "all"), "every = 'all': expected True or False"),
    (lambda runs: runs.show("sinc"), "unknown driver 'sinc'; did you mean 'sync'?"),
    (lambda runs: runs.paper().text("pdf"), "There are: md, latex, html"),
    (lambda runs: runs.open("0.01-0", checkpoint="first"), "has no checkpoint 'first'; there are: "),
    (lambda runs: runs.flame("0.01-0").zoom("learning"), "unknown part of all 'learning'"),
    (lambda runs: rlbench.Runs(runs.reader.folder / "0.01-0"), "is a run itself"),
    (lambda runs: rlbench.Runs("nowhere"), "there is no folder nowhere"),
    (lambda runs: rlbench.Runs(""), "got an empty path"),
]


@pytest.mark.parametrize("act, words", REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_done_is_said(four, act, words):
    with pytest.raises((RunProblem, ValueError)) as refused:
        act(four)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_checkpoint_that_is_gone_or_damaged_is_said_on_the_page(four):
    page = four.show(driver="sync")
    page.card.show(four["0.01-1"])
    page.card.files.value.unlink()
    page.card.pass_on()
    assert "has no checkpoint" in page.complaint.widget.value and page.opened is None
    page.card.offer()
    page.card.files.value.write_bytes(b"PK nothing")
    page.card.pass_on()
    assert "damaged" in page.complaint.widget.value
    page.card.show(four["0.01-0"])
    page.card.pass_on()
    assert page.complaint.widget.value == "" and page.opened.trainer.learner.algo.lr == .01
    first = page.opened
    page.card.pass_on()
    assert first is not page.opened and first.page.widget.comm is None       # there is one at a time
    page.close()


def test_reading_again_is_for_what_has_changed(tmp_path):
    for name in "ab":
        run_by_hand(tmp_path, name, [dict(steps=1, mean_return=1.)])
    reader = RunReader(tmp_path)
    first = reader.lines()
    with (tmp_path / "b" / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 2, "mean_return": 3}\n')
    again = reader.lines()
    assert again[0] is first[0] and again[1] is not first[1] and again[1]["return"] == 3
