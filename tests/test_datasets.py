"""Subsets, merges and files of rings against plain lists."""
import json
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench import Trainer
from rlbench.buffers import datasets
from rlbench.buffers.datasets import (
    digest, filtered, from_minari, jumps, layout, load_ring, merged, read_lines, returns_in, save_ring, subset,
    to_minari, write_lines)
from rlbench.buffers.frames import Frames
from rlbench.buffers.ring import Ring
from rlbench.buffers.sequences import Reservoir
from rlbench.core.batch import Batch
from rlbench.core.state import FileProblem, read_tree, same, write_tree
from rlbench.core.words import ConfigError
from rlbench.training.demonstrations import Demonstration


def row_of(t, num_envs, rng, p_end=.25):
    "A row whose every column tells t and the environment"
    n = np.arange(num_envs)
    term = rng.random(num_envs) < p_end / 2
    trunc = ~term & (rng.random(num_envs) < p_end / 2)
    obs = Batch(place=t * 10 + n, view=np.full((num_envs, 2), t, np.float32) + .1)
    next_obs = Batch(place=t * 10 + n + 10, view=np.full((num_envs, 2), t + 1, np.float32) + .1)
    rew = (t + n / 10).astype(np.float32)
    return Batch(obs=obs, act=n + t, rew=rew, term=term, trunc=trunc, next_obs=next_obs)


def fill(capacity, num_envs, steps, seed, p_valid=.8):
    "A ring, and for each environment the list of (name, term, trunc) of every row that it holds"
    rng = np.random.default_rng(seed)
    ring = Ring(capacity, num_envs)
    lists = [[] for _ in range(num_envs)]
    for t in range(steps):
        row = row_of(t, num_envs, rng)
        valid = rng.random(num_envs) < p_valid
        ring.add(row, valid)
        for n in np.flatnonzero(valid):
            lists[n].append((t * 10 + n, bool(row.term[n]), bool(row.trunc[n])))
    return ring, [rows[-capacity:] for rows in lists]


def read(ring):
    "(name, term, trunc) of every row of a data set, and that its columns tell the same"
    rows = ring.gather(ring.latest())
    name = rows.obs.place
    np.testing.assert_array_equal(rows.act, name // 10 + name % 10)
    np.testing.assert_array_equal(rows.obs.view[:, 1], (name // 10).astype(np.float32) + np.float32(.1))
    np.testing.assert_array_equal(rows.next_obs.place, name + 10)
    return list(zip(name.tolist(), rows.term.tolist(), rows.trunc.tolist()))


def all_names(name):
    return True


def odd_names(name):
    "Some of the names"
    return name * 7919 % 5 > 1


def laid(lists, keep=all_names):
    "The rows of all lists that are kept, with trunc where the next row kept is not the next row"
    out = []
    for rows in lists:
        for i, (name, term, trunc) in enumerate(rows):
            if keep(name):
                goes_on = i + 1 < len(rows) and keep(rows[i + 1][0])
                out.append((name, term, trunc or not (term or goes_on)))
    return out


def followers(lists):
    "{name: name of the row that follows it in the same episode}"
    found = {}
    for rows in lists:
        found |= {here[0]: after[0] for here, after in zip(rows, rows[1:]) if not (here[1] or here[2])}
    return found


rings = given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), steps=st.integers(1, 30),
              seed=st.integers(0, 10**6), block=st.sampled_from([1, 3, 65_536]))


@settings(max_examples=80, deadline=None)
@rings
def test_subsets_filters_and_merges_equal_lists(capacity, num_envs, steps, seed, block):
    ring, lists = fill(capacity, num_envs, steps, seed)
    if not len(ring): return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "BLOCK", block)
        all_of = subset(ring, ring.latest())
        assert read(all_of) == laid(lists)
        assert read(merged(ring, all_of)) == laid(lists) + laid(lists)
        want = laid(lists, odd_names)
        if not want:
            with pytest.raises(ValueError, match="none of"):
                filtered(ring, lambda rows: odd_names(rows.obs.place))
            return
        some = filtered(ring, lambda rows: odd_names(rows.obs.place))
    assert read(some) == want
    # what is summed over follows in the source too
    rows, alive = some.ahead(some.latest(), 4)
    follow = followers(lists)
    for k in range(len(want)):
        run = some.places["obs"].place[rows[alive[:, k], k]].tolist()
        assert all(follow[here] == after for here, after in zip(run, run[1:]))


@settings(max_examples=40, deadline=None)
@rings
def test_json_lines_and_files_give_the_same_bits(capacity, num_envs, steps, seed, block, tmp_path_factory):
    ring, _ = fill(capacity, num_envs, steps, seed)
    if not len(ring): return
    folder = tmp_path_factory.mktemp("lines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "BLOCK", block)
        write_lines(folder / "a.jsonl", ring)
        back = read_lines(folder / "a.jsonl")
    assert same(back.state(), subset(ring, ring.latest()).state())
    assert layout(back) == layout(ring)
    save_ring(folder / "a.rlb", back)
    assert same(load_ring(folder / "a.rlb").state(), back.state())


def test_json_lines_keep_every_kind_of_number(tmp_path):
    rng = np.random.default_rng(0)
    ring = Ring(50, 1)
    for _ in range(50):
        bits = rng.integers(0, 2**32, dtype=np.uint32)
        ring.add(Batch(
            f=np.array([bits]).view(np.float32),
            d=rng.normal(size=1) * 10. ** rng.integers(-300, 300),
            i=rng.integers(-2**62, 2**62, size=1),
            u=rng.integers(256, size=(1, 2, 2), dtype=np.uint8),
            b=rng.random((1, 3)) < .5,
            term=np.array([False]),
            trunc=np.array([False]),
        ))
    write_lines(tmp_path / "a.jsonl", ring)
    ours = dict(ring.places[:49])                         # the last one is cut there
    theirs = dict(read_lines(tmp_path / "a.jsonl").places[:49])
    np.testing.assert_array_equal(ours.pop("f"), theirs.pop("f"))       # NaN for NaN, whatever its bits
    assert same(ours, theirs)


def test_damaged_lines_are_named(tmp_path):
    ring, _ = fill(9, 1, 9, 0, p_valid=1.)
    path = tmp_path / "a.jsonl"
    write_lines(path, ring)
    lines = path.read_text().splitlines()

    def refused(text, found):
        path.write_text(text)
        with pytest.raises(FileProblem, match=found):
            read_lines(path)

    for cut in range(len(lines) - 1):
        refused("\n".join(lines[:cut + 1]), f"line {cut + 2} is not JSON")
    refused("\n".join([*lines[:4], lines[4][:-9], *lines[5:]]), "line 5 is not JSON")
    refused("\n".join([*lines[:4], "{}", *lines[5:]]), "line 5: column 'obs.place' is not there, expected")
    refused("\n".join(lines[1:]), "first line must say")
    refused("", "first line must say")
    with pytest.raises(FileProblem, match="no such file"):
        read_lines(tmp_path / "none")


HEAD = dict(format="rlbench rows", version=1, rows=3, columns=dict(obs=["float32", [2]], act=["int64", []],
            rew=["float32", []], term=["bool", []], trunc=["bool", []], next_obs=["float32", [2]]))
ROW = dict(obs=[0., 1], act=1, rew=1, term=False, trunc=0, next_obs=[0., 1.])


def written_by_hand(path, **odd):
    "A file of three rows, of which the second has something of its own"
    path.write_text("\n".join(map(json.dumps, [HEAD, ROW, ROW | odd, ROW])))
    return path


@pytest.mark.parametrize("name, value, expected", [
    ("act", .9, "a whole number (int64)"),
    ("act", "1", "a whole number (int64)"),
    ("act", True, "a whole number (int64)"),
    ("act", 2**64, "a whole number (int64)"),
    ("act", float("nan"), "a whole number (int64)"),
    ("act", [1], "a whole number (int64)"),
    ("rew", "1.5", "a number (float32)"),
    ("rew", True, "a number (float32)"),
    ("rew", None, "a number (float32)"),
    ("rew", 10**400, "a number (float32)"),
    ("rew", 1e39, "a number (float32)"),
    ("term", "false", "true or false (bool)"),
    ("term", None, "true or false (bool)"),
    ("term", .3, "true or false (bool)"),
    ("term", 2, "true or false (bool)"),
    ("obs", [[0.], [1.]], "lists of shape [2], each entry a number (float32)"),
    ("obs", [0.], "lists of shape [2], each entry a number (float32)"),
    ("obs", "ab", "lists of shape [2], each entry a number (float32)"),
    ("obs", [0., None], "lists of shape [2], each entry a number (float32)"),
])
def test_lines_written_by_hand_stay_what_they_are_or_are_refused(tmp_path, name, value, expected):
    with pytest.raises(FileProblem) as told:
        read_lines(written_by_hand(tmp_path / "a.jsonl", **{name: value}))
    assert f"line 3: column {name!r} is " in str(told.value)
    assert str(told.value).endswith(f", expected {expected}") and len(str(told.value)) < 300


def test_a_byte_order_mark_before_lines_is_no_mistake(tmp_path):
    path = written_by_hand(tmp_path / "a.jsonl")
    plain = digest(read_lines(path))
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert digest(read_lines(path)) == plain


@pytest.mark.parametrize("odd", [dict(act=1.), dict(term=0, trunc=True), dict(rew=2.5, obs=[1, 2])])
def test_numbers_that_are_the_same_in_another_spelling_are_read(tmp_path, odd):
    rows = read_lines(written_by_hand(tmp_path / "a.jsonl", **odd)).places
    for name, value in odd.items():
        assert rows[name].dtype == HEAD["columns"][name][0] and np.array_equal(rows[name][1], value)


def test_rings_that_do_not_fit_together_are_refused():
    ring, _ = fill(9, 1, 9, 0)
    other = Ring(9, 1)
    other.add(Batch(act=np.zeros(1), term=np.array([True]), trunc=np.array([False])))
    with pytest.raises(ValueError, match="ring 1 has another column 'obs.place' than ring 0: none instead of"):
        merged(ring, other)
    with pytest.raises(ValueError, match="no columns yet"):
        merged(ring, Ring(9, 1))
    with pytest.raises(ValueError, match="no rows"):
        subset(ring, [])


def test_rows_that_lack_a_column_are_refused_where_it_is_needed(tmp_path):
    ring = Trainer("CartPole-v1", "dqn").run(steps=9).learner.memory
    save_ring(tmp_path / "whole.rlb", ring)
    for name in ring.rows:
        tree = read_tree(tmp_path / "whole.rlb", "memory")
        del tree["rows"][name]
        write_tree(tmp_path / "less.rlb", tree, "memory")
        if name in ("term", "trunc"):
            with pytest.raises(FileProblem, match=f"no column {name}, so nobody knows where episodes end"):
                load_ring(tmp_path / "less.rlb")
            continue
        less = load_ring(tmp_path / "less.rlb")
        with pytest.raises(ConfigError, match=f"it has no column {name}; it has "):
            Trainer("CartPole-v1", "dqn", memory=less)
        if name in ("obs", "act"):
            with pytest.raises(ConfigError, match=f"it has no column {name}; it has "):
                Trainer("CartPole-v1", "bc", memory=less)


def test_a_data_set_says_where_episodes_end(tmp_path):
    ring = Ring(10, 1)
    for t in range(4):
        ring.add(Batch(obs=np.float32([[t]]), rew=np.float32([t])))

    def paid(rows): return rows.rew > 1

    asked = dict(
        subset=lambda: subset(ring, [0]),
        filtered=lambda: filtered(ring, paid),
        merged=lambda: merged(ring, ring),
        save_ring=lambda: save_ring(tmp_path / "a.rlb", ring),
        write_lines=lambda: write_lines(tmp_path / "a.jsonl", ring),
        returns_in=lambda: returns_in(ring),
    )
    for name, ask in asked.items():
        with pytest.raises(ConfigError, match=f"{name}: no column term, trunc, so nobody knows where episodes end"):
            ask()
    assert not list(tmp_path.iterdir())


def test_files_of_other_memories_are_not_taken_for_plain_rings(tmp_path):
    frames = Frames(4, 1, 2, True)
    stacks = np.ones((1, 2, 1))
    ends = dict(term=np.array([True]), trunc=np.array([False]))
    frames.add(Batch(obs=stacks, next_obs=stacks, **ends))
    pool = Reservoir(4, 1, 0)
    pool.add(Batch(rew=np.ones(1), **ends))
    for memory, more in ((frames, "aside, film, stack"), (pool, "rng")):
        save_ring(tmp_path / "a.rlb", memory)
        with pytest.raises(FileProblem, match=more):
            load_ring(tmp_path / "a.rlb")
    save_ring(tmp_path / "a.rlb", subset(frames, frames.latest()))      # as plain rows they may go anywhere
    assert load_ring(tmp_path / "a.rlb").rows.obs.shape == (1, 1, 2, 1)


@pytest.mark.parametrize("version", [0, 2, 9, "1", None])
def test_lines_of_another_version_are_refused(tmp_path, version):
    path = tmp_path / "rows.jsonl"
    write_lines(path, fill(9, 1, 9, 0)[0])
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(dict(json.loads(head), version=version)), *lines]))
    with pytest.raises(FileProblem, match=f"version {version!r} of such files, expected version 1"):
        read_lines(path)



# ---- Minari

def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    ring, _ = fill(9, 1, 9, 0)
    with pytest.raises(ImportError, match=r"pip install 'rlbench\[minari\]'"):
        from_minari("a/b-v0")
    with pytest.raises(ImportError, match=r"pip install 'rlbench\[minari\]'"):
        to_minari(ring, "a/b-v0", None, None)


@dataclass
class Episode:
    "What iterating a Minari data set gives, as far as it is used"
    observations: dict
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


class Dataset:
    "A Minari data set, as far as it is used"
    id = "test/rows-v0"
    pair = gym.spaces.Tuple([gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-9, 9, ())])
    observation_space = gym.spaces.Dict(place=gym.spaces.Discrete(99), pair=pair)
    action_space = gym.spaces.Discrete(9)

    def __init__(self, episodes):
        self.episodes = episodes
        self.total_steps = sum(len(episode.rewards) for episode in episodes)

    def iterate_episodes(self):
        return iter(self.episodes)


def test_minari_episodes_become_rows():
    def episode(start, n, cut):
        ends = np.arange(n) == n - 1
        obs = dict(place=np.arange(start, start + n + 1), pair=(np.zeros((n + 1, 2)), np.ones(n + 1)))
        return Episode(obs, np.arange(n), np.arange(n, dtype=float), ends & (not cut), ends & cut)

    data = from_minari(Dataset([episode(0, 3, False), episode(10, 2, True)])).places
    assert data.obs.place.tolist() == [0, 1, 2, 10, 11]
    assert data.next_obs.place.tolist() == [1, 2, 3, 11, 12]
    assert (data.obs.pair["1"].shape, data.obs.pair["0"].shape) == ((5,), (5, 2))
    assert data.term.tolist() == [False, False, True, False, False]
    assert data.trunc.tolist() == [False] * 4 + [True]


def test_an_episode_without_an_end_does_not_go_on_in_the_next_one():
    def episode(start, n, term):
        obs = dict(place=np.arange(start, start + n + 1), pair=(np.zeros((n + 1, 2)), np.ones(n + 1)))
        ends = np.arange(n) == n - 1
        return Episode(obs, np.arange(n), np.full(n, 10. ** (start // 10)), ends & term, ends & False)

    ring = from_minari(Dataset([episode(0, 4, False), episode(10, 3, False), episode(20, 2, True)]))
    assert ring.places.trunc.tolist() == [False, False, False, True, False, False, True, False, False]
    assert ring.places.term.tolist() == [False] * 8 + [True]
    assert returns_in(ring).tolist() == [4, 30, 200]
    _, alive = ring.ahead(ring.latest(), 3)
    assert alive.sum(0).tolist() == [3, 3, 2, 1, 3, 2, 1, 2, 1]


def cut_at_jumps(rows):
    "Rows (name, term, trunc) of a data set, cut where the next row is not the one that was to come"
    out = []
    for (name, term, trunc), (after, *_) in zip(rows, [*rows[1:], (0,)]):
        out.append((name, term, trunc or not (term or after == name + 10)))
    return out


def test_where_an_episode_jumps_is_asked_of_parts_by_name():
    rows = Batch(obs=Batch(at=np.arange(3), seen=np.zeros(3)), next_obs=Batch(seen=np.zeros(3), at=np.arange(1, 4)))
    assert not jumps(rows).any()
    rows.obs.at[2] = 9
    assert jumps(rows).tolist() == [False, True]


def test_there_and_back_through_minari(monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    place = gym.spaces.Box(-2**31, 2**31, (), np.int64)
    view = gym.spaces.Box(-1e9, 1e9, (2,), np.float32)
    spaces = (gym.spaces.Dict(place=place, view=view), gym.spaces.Discrete(10**6))
    about = dict(algorithm_name="none", author="rlbench", author_email="none", code_permalink="none",
                 description="a test")
    ring, lists = fill(30, 2, 60, seed=1, p_valid=1.)
    to_minari(ring, "rlbench/rows-v0", *spaces, **about)
    back = from_minari("rlbench/rows-v0")
    assert read(back) == laid(lists)
    want = subset(ring, ring.latest())
    np.testing.assert_array_equal(back.rows.rew, want.rows.rew)
    np.testing.assert_array_equal(back.rows.next_obs.view, want.rows.next_obs.view)

    jumpy, lists = fill(30, 1, 60, seed=1, p_valid=.8)    # in this toy stream time goes on while nothing is written
    to_minari(jumpy, "rlbench/rows-v1", *spaces, **about)
    found = read(from_minari("rlbench/rows-v1"))
    assert found == cut_at_jumps(laid(lists))
    assert sum(trunc for *_, trunc in found) > sum(trunc for *_, trunc in laid(lists))


@pytest.mark.parametrize("name", ["pole", "t/x-v0", "hand//a-v0", "a/b", "ä.b/c-v0"])
def test_a_name_that_minari_does_not_take_leaves_nothing(name, monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ring, _ = fill(30, 1, 20, seed=1, p_valid=1.)
    with pytest.raises(ConfigError, match="expected a Minari id such as pole-v0"):
        to_minari(ring, name, gym.spaces.Discrete(9), gym.spaces.Discrete(9))
    assert list(tmp_path.iterdir()) == [] and list(minari.list_local_datasets()) == []


def test_where_minari_fails_nothing_is_left(monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ring, _ = fill(30, 1, 20, seed=1, p_valid=1.)
    obs = gym.spaces.Dict(place=gym.spaces.Discrete(10**6), view=gym.spaces.Box(-9, 9, (2,)))
    spaces = obs, gym.spaces.Discrete(99)
    (tmp_path / "kept").mkdir()
    for name in ("new/deeper/rows-v0", "kept/rows-v0"):
        with pytest.raises(Exception):
            to_minari(ring, name, *spaces, data_format="none such")
    left = [path.name for path in tmp_path.rglob("*") if path.suffix != ".json"]
    assert left == ["kept"]
    assert list(minari.list_local_datasets()) == []


def test_a_folder_that_minari_cannot_list_does_not_keep_ours_from_it(monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ring, _ = fill(30, 1, 20, seed=1, p_valid=1.)
    spaces = gym.spaces.Dict(place=gym.spaces.Box(0, 999, (), int), view=gym.spaces.Box(-999, 999, (2,)))
    with pytest.warns(UserWarning):
        to_minari(ring, "rlbench/rows-v0", spaces, gym.spaces.Discrete(99))
    for name in ("an old name", "rlbench/half-v0"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "metadata.json").write_text("{}")
    with pytest.raises(ValueError, match="Malformed"):
        minari.list_local_datasets()
    with pytest.warns(UserWarning, match="Minari cannot list its data sets while there is 'an old name'"):
        with pytest.raises(FileProblem, match="did you mean 'rlbench/rows-v0'"):
            from_minari("rlbench/row-v0")
    for name in ("an old name", "rlbench/half-v0"):
        with pytest.raises(FileProblem, match=f"'{name}': it cannot be read"):
            from_minari(name)


@pytest.mark.parametrize("id, told", [("CartPole-v1", False), (CartPoleEnv, True)])
def test_who_saves_without_a_registered_environment_is_told_what_is_kept(id, told, monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    shown = Demonstration(Trainer(id, "ppo", seed=0))
    for _ in range(30): shown.act(0)
    with pytest.warns(UserWarning) as warned:
        data = shown.to_minari("by-hand/own-v0")
    words = "by-hand/own-v0: episodes and spaces are kept, the environment is not"
    assert sum(words in str(one.message) for one in warned) == told
    if not told: return
    with pytest.raises(ValueError): data.recover_environment()
    assert len(from_minari("by-hand/own-v0"))


def test_a_name_that_minari_has_not_says_which_there_are(monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ring, _ = fill(30, 1, 20, seed=1, p_valid=1.)
    obs = gym.spaces.Dict(place=gym.spaces.Box(0, 999, (), int), view=gym.spaces.Box(-999, 999, (2,)))
    spaces = obs, gym.spaces.Discrete(99)
    with pytest.warns(UserWarning):
        to_minari(ring, "rlbench/rows-v0", *spaces)
    with pytest.raises(FileProblem, match="did you mean 'rlbench/rows-v0'"):
        from_minari("rlbench/row-v0")
