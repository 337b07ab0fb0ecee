"""Subsets, merges and files of rings against plain lists; recordings after a crash, one of them real."""
import shutil
import signal
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rlbench.buffers import datasets
from rlbench.buffers.buffers import Ring
from rlbench.buffers.datasets import Recorder, filtered, from_minari, layout, mapped, merged, read_lines, subset, to_minari, write_lines
from rlbench.buffers.frames import Frames
from rlbench.buffers.sequences import Reservoir
from rlbench.core.batch import Batch, columns
from rlbench.core.state import FileProblem, same


def row_of(t, num_envs, rng, p_end=.25):
    "A row whose every column tells t and the environment"
    n, term = np.arange(num_envs), rng.random(num_envs) < p_end / 2
    return Batch(obs=Batch(place=t * 10 + n, view=np.full((num_envs, 2), t, np.float32) + .1), act=n + t, rew=(t + n / 10).astype(np.float32),
                 term=term, trunc=~term & (rng.random(num_envs) < p_end / 2), next_obs=Batch(place=t * 10 + n + 10, view=np.full((num_envs, 2), t + 1, np.float32) + .1))


def fill(capacity, num_envs, steps, seed, p_valid=.8):
    "A ring, and for each environment the list of (name, term, trunc) of every row"
    rng, ring, lists = np.random.default_rng(seed), Ring(capacity, num_envs), [[] for _ in range(num_envs)]
    for t in range(steps):
        row, valid = row_of(t, num_envs, rng), rng.random(num_envs) < p_valid
        ring.add(row, valid)
        for n in np.flatnonzero(valid): lists[n].append((t * 10 + n, bool(row.term[n]), bool(row.trunc[n])))
    return ring, [rows[-capacity:] for rows in lists]


def read(ring):
    "(name, term, trunc) of every row of a data set, and that its columns tell the same"
    rows = ring.gather(ring.latest())
    name = rows.obs.place.numpy()
    np.testing.assert_array_equal(rows.act, name // 10 + name % 10)
    np.testing.assert_array_equal(rows.obs.view[:, 1], (name // 10).astype(np.float32) + np.float32(.1))
    np.testing.assert_array_equal(rows.next_obs.place, name + 10)
    return list(zip(name.tolist(), rows.term.tolist(), rows.trunc.tolist()))


def laid(lists, keep=lambda name: True):
    "The rows of all lists that are kept, with trunc where the next row kept is not the next row"
    out = []
    for rows in lists:
        for i, (name, term, trunc) in enumerate(rows):
            if keep(name):
                goes_on = i + 1 < len(rows) and keep(rows[i + 1][0])
                out.append((name, term, trunc or not (term or goes_on)))
    return out


rings = given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), steps=st.integers(1, 30), seed=st.integers(0, 10**6), block=st.sampled_from([1, 3, 65_536]))


@settings(max_examples=80, deadline=None)
@rings
def test_subsets_filters_and_merges_equal_lists(capacity, num_envs, steps, seed, block):
    before, datasets.BLOCK = datasets.BLOCK, block
    try:
        ring, lists = fill(capacity, num_envs, steps, seed)
        if not len(ring): return
        all_of = subset(ring, ring.latest())
        assert read(all_of) == laid(lists)
        assert read(merged(ring, all_of)) == laid(lists) + laid(lists)
        keep = lambda name: name * 7919 % 5 > 1                                 # noqa: E731
        want = laid(lists, keep)
        if not want:
            with pytest.raises(ValueError, match="none of"): filtered(ring, lambda rows: keep(rows.obs.place))
            return
        some = filtered(ring, lambda rows: keep(rows.obs.place))
        assert read(some) == want
        rows, alive = some.ahead(some.latest(), 4)                              # what is summed over follows in the source too
        names = some.places["obs"].place
        for k in range(len(want)):
            run = names[rows[alive[:, k], k]]
            assert np.isin(run[1:], run[:-1] + 10).all() or len({n % 10 for n in run}) == 1
        follow = {a[0]: b[0] for line in lists for a, b in zip(line, line[1:]) if not (a[1] or a[2])}
        for k in range(len(want)):
            run = names[rows[alive[:, k], k]].tolist()
            assert all(follow[a] == b for a, b in zip(run, run[1:]))
    finally:
        datasets.BLOCK = before


@settings(max_examples=40, deadline=None)
@rings
def test_json_lines_and_files_give_the_same_bits(capacity, num_envs, steps, seed, block, tmp_path_factory):
    ring, lists = fill(capacity, num_envs, steps, seed)
    if not len(ring): return
    folder, before = tmp_path_factory.mktemp("lines"), datasets.BLOCK
    datasets.BLOCK = block
    try:
        write_lines(folder / "a.jsonl", ring)
        back = read_lines(folder / "a.jsonl")
    finally:
        datasets.BLOCK = before
    assert same(back.state(), subset(ring, ring.latest()).state()) and layout(back) == layout(ring)
    back.save(folder / "a.rlb")
    assert same(Ring.load(folder / "a.rlb").state(), back.state())


def test_json_lines_keep_every_kind_of_number(tmp_path):
    rng = np.random.default_rng(0)
    ring = Ring(50, 1)
    for _ in range(50):
        bits = rng.integers(0, 2**32, dtype=np.uint32)
        ring.add(Batch(f=np.array([bits]).view(np.float32), d=rng.normal(size=1) * 10. ** rng.integers(-300, 300), i=rng.integers(-2**62, 2**62, size=1), u=rng.integers(256, size=(1, 2, 2), dtype=np.uint8),
                       b=rng.random((1, 3)) < .5, term=np.array([False]), trunc=np.array([False])))
    write_lines(tmp_path / "a.jsonl", ring)
    back = read_lines(tmp_path / "a.jsonl")
    f, g = ring.rows.pop("f"), back.rows.pop("f")
    np.testing.assert_array_equal(f, g)                                         # NaN for NaN, whatever its bits
    assert same(ring.rows[:49], back.rows[:49])


def test_damaged_lines_are_named(tmp_path):
    ring, _ = fill(9, 1, 9, 0, p_valid=1.)
    path = tmp_path / "a.jsonl"
    write_lines(path, ring)
    lines = path.read_text().splitlines()

    def refused(text, found):
        path.write_text(text)
        with pytest.raises(FileProblem, match=found): read_lines(path)
    for cut in range(len(lines) - 1): refused("\n".join(lines[:cut + 1]), f"line {cut + 2} is not JSON" if cut < 9 else "")
    refused("\n".join([*lines[:4], lines[4][:-9], *lines[5:]]), "line 5 is not JSON")
    refused("\n".join([*lines[:4], "{}", *lines[5:]]), "column 'obs.place'")
    refused("\n".join(lines[1:]), "first line must say")
    refused("", "first line must say")
    with pytest.raises(FileProblem, match="No such file"): read_lines(tmp_path / "none")


def test_rings_that_do_not_fit_together_are_refused():
    ring, _ = fill(9, 1, 9, 0)
    other = Ring(9, 1)
    other.add(Batch(act=np.zeros(1), term=np.array([True]), trunc=np.array([False])))
    with pytest.raises(ValueError, match="ring 1 has another column 'obs.place' than ring 0: none instead of"): merged(ring, other)
    with pytest.raises(ValueError, match="no rows"): subset(ring, [])


def test_files_of_other_buffers_are_not_taken_for_plain_rings(tmp_path):
    frames, pool = Frames(4, 1, 2, True), Reservoir(4, 1, 0)
    frames.add(Batch(obs=np.ones((1, 2, 1)), next_obs=np.ones((1, 2, 1)), term=np.array([True]), trunc=np.array([False])))
    pool.add(Batch(rew=np.ones(1)))
    for buffer, more in ((frames, "film, stack"), (pool, "rng")):
        buffer.save(tmp_path / "a.rlb")
        with pytest.raises(FileProblem, match=more): Ring.load(tmp_path / "a.rlb")
    data = subset(frames, frames.latest())                                      # as plain rows they may go anywhere
    data.save(tmp_path / "a.rlb")
    assert Ring.load(tmp_path / "a.rlb").rows.obs.shape == (1, 1, 2, 1)


# ---- files as memory

@settings(max_examples=30, deadline=None)
@rings
def test_columns_in_files_behave_as_columns_in_memory(capacity, num_envs, steps, seed, block, tmp_path_factory):
    plain, _ = fill(capacity, num_envs, steps, seed)
    folder, rng = tmp_path_factory.mktemp("columns"), np.random.default_rng(seed)
    ring = Ring(capacity, num_envs, make=mapped(folder))
    for t in range(steps): ring.add(row_of(t, num_envs, rng), rng.random(num_envs) < .8)
    assert same(ring.state(), plain.state())
    on_disk = {p.name for p in folder.iterdir()}
    assert on_disk == {f"{name}.npy" for name, _ in columns(plain.rows)}
    twin = Ring(capacity, num_envs, make=mapped(tmp_path_factory.mktemp("twin")))
    twin.restore(plain.state())
    assert same(twin.state(), plain.state())
    if len(ring): assert same(subset(ring, ring.latest(), mapped(folder / "data")).state(), subset(plain, plain.latest()).state())


def test_frames_in_files(tmp_path):
    rng, plain, frames = np.random.default_rng(0), Ring(20, 1), Frames(20, 1, 3, True, make=mapped(tmp_path))
    stack = np.zeros((1, 3, 4), np.float32)
    for t in range(50):
        stack = np.concatenate([stack[:, 1:], rng.normal(size=(1, 1, 4)).astype(np.float32)], 1)
        after = np.concatenate([stack[:, 1:], rng.normal(size=(1, 1, 4)).astype(np.float32)], 1)
        for ring in (plain, frames): ring.add(Batch(obs=stack, next_obs=after, term=np.array([t % 7 == 6]), trunc=np.array([False])))
        stack = np.zeros_like(stack) if t % 7 == 6 else stack
    at = plain.latest()[5:]
    assert (tmp_path / "frame.npy").exists() and same(frames.gather(at, ("obs", "next_obs")).obs[:, -1], plain.gather(at).obs[:, -1])


@settings(max_examples=25, deadline=None)
@given(capacity=st.integers(4, 20), num_envs=st.integers(1, 2), block=st.integers(1, 2), steps=st.integers(1, 60), more=st.integers(0, 30), seed=st.integers(0, 10**6))
def test_a_recording_is_true_whenever_its_writer_is_killed(capacity, num_envs, block, steps, more, seed, tmp_path_factory):
    "The files are copied while being written; and the row that was just being written is torn"
    folder, rng = tmp_path_factory.mktemp("recording"), np.random.default_rng(seed)
    recorder, lists, t = Recorder(folder / "a", capacity, num_envs, block), [[] for _ in range(num_envs)], 0

    def write(ring, count):
        nonlocal t
        for _ in range(count):
            row, valid = row_of(t, num_envs, rng), rng.random(num_envs) < .8
            ring.add(row, valid)
            for n in np.flatnonzero(valid): lists[n].append(t * 10 + n)
            t += 1
    write(recorder, steps)
    shutil.copytree(folder / "a", folder / "b")
    if not (folder / "b" / "ring.json").exists():
        assert recorder.added < block
        return
    if recorder.rows is not None:
        torn = np.load(folder / "b" / "act.npy", mmap_mode="r+")
        torn[recorder.heads, np.arange(num_envs)] = -77                         # half a row over the oldest one
        torn.flush()
        del torn

    def check(ring, lost):
        total = 0
        for n, names in enumerate(lists):
            held = ring.gather(ring.latest(np.where(np.arange(num_envs) == n, ring.sizes, 0)))
            place, size = held.obs.place.tolist(), int(ring.sizes[n])
            missing = names.index(place[-1]) + 1 if place else 0
            total += len(names) - missing
            assert place == names[missing - size:missing] and held.act.tolist() == [p // 10 + p % 10 for p in place]
            assert size >= min(missing, capacity) - (ring.risk if lost else 0)
        assert total <= (block + num_envs - 1 if lost else 0)
    found = Recorder.open(folder / "b")
    check(found, lost=True)
    if len(found):
        drawn = found.gather(found.uniform(rng, 100))
        assert set(drawn.obs.place.tolist()) <= set(found.gather(found.latest()).obs.place.tolist())
    recorder.close()
    again = Recorder.open(folder / "a")
    check(again, lost=False)
    write(again, more)                                                          # and on it goes
    again.close()
    check(Recorder.open(folder / "a"), lost=False)


WRITER = """
import sys, numpy as np
from rlbench.buffers.datasets import Recorder
from rlbench.core.batch import Batch
recorder = Recorder(sys.argv[1], capacity=300, num_envs=1, block=25)
for t in range(10**9):
    recorder.add(Batch(obs=np.full((1, 50), t, np.float32), rew=np.array([t]), term=np.array([False]), trunc=np.array([False])))
    print(t, flush=True)
"""


@pytest.mark.parametrize("rows", [40, 1000])
def test_a_killed_process_loses_at_most_the_last_block(rows, tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    try:
        for line in writer.stdout:
            if int(line) >= rows: break
    finally:
        writer.send_signal(signal.SIGKILL)
    said = [int(line) for line in writer.communicate()[0].split()]              # what it still said before it was gone
    last = max([rows, *said])
    found = Recorder.open(tmp_path / "run")
    held = found.gather(found.latest())
    names = held.rew.tolist()
    assert names == list(range(names[0], names[-1] + 1)) and last - names[-1] <= 25
    assert len(names) >= min(names[-1] + 1, 300 - 25)
    assert (held.obs == held.rew[:, None]).all()
    found.add(Batch(obs=np.zeros((1, 50), np.float32), rew=np.array([-1]), term=np.array([True]), trunc=np.array([False])))
    found.close()
    assert Recorder.open(tmp_path / "run").gather(found.latest()).rew[-1] == -1


def test_folders_that_hold_no_recording_are_refused(tmp_path):
    with pytest.raises(FileProblem, match="no recording"): Recorder.open(tmp_path)
    recorder = Recorder(tmp_path / "a", 10, 1, 2)
    for _ in range(3): recorder.add(Batch(rew=np.ones(1)))
    with pytest.raises(FileExistsError, match="Recorder.open"): Recorder(tmp_path / "a", 10, 1, 2)
    data = (tmp_path / "a" / "rew.npy").read_bytes()
    (tmp_path / "a" / "rew.npy").write_bytes(data[:60])
    with pytest.raises(FileProblem, match="column 'rew'"): Recorder.open(tmp_path / "a")


# ---- Minari

def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    ring, _ = fill(9, 1, 9, 0)
    for ask in (lambda: from_minari("a/b-v0"), lambda: to_minari(ring, "a/b-v0", None, None)):
        with pytest.raises(ImportError, match=r"pip install 'rlbench\[minari\]'"): ask()


class Episode:
    "What iterating a Minari data set gives, as far as it is used"
    def __init__(self, observations, actions, rewards, terminations, truncations):
        self.observations, self.actions, self.rewards, self.terminations, self.truncations = observations, actions, rewards, terminations, truncations


class Dataset:
    def __init__(self, episodes): self.episodes, self.total_steps = episodes, sum(len(e.rewards) for e in episodes)
    def iterate_episodes(self): return iter(self.episodes)


def test_minari_episodes_become_rows():
    def episode(start, n, cut):
        ends = np.arange(n) == n - 1
        return Episode(dict(place=np.arange(start, start + n + 1), pair=(np.zeros((n + 1, 2)), np.ones(n + 1))), np.arange(n), np.arange(n, dtype=float), ends & (not cut), ends & cut)
    data = from_minari(Dataset([episode(0, 3, False), episode(10, 2, True)]))
    assert data.rows.obs.place[:, 0].tolist() == [0, 1, 2, 10, 11] and data.rows.next_obs.place[:, 0].tolist() == [1, 2, 3, 11, 12]
    assert data.rows.obs.pair["1"].shape == (5, 1) and data.rows.obs.pair["0"].shape == (5, 1, 2)
    assert data.rows.term[:, 0].tolist() == [False, False, True, False, False] and data.rows.trunc[:, 0].tolist() == [False] * 4 + [True]


def test_there_and_back_through_minari(monkeypatch, tmp_path):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ring, lists = fill(30, 2, 60, seed=1, p_valid=1.)
    obs = gym.spaces.Dict(place=gym.spaces.Box(-2**31, 2**31, (), np.int64), view=gym.spaces.Box(-1e9, 1e9, (2,), np.float32))
    about = dict(algorithm_name="none", author="rlbench", author_email="none", code_permalink="none", description="rows of a test")
    to_minari(ring, "rlbench/rows-v0", obs, gym.spaces.Discrete(10**6), **about)
    back = from_minari("rlbench/rows-v0")
    assert read(back) == laid(lists)
    want = subset(ring, ring.latest())
    np.testing.assert_array_equal(back.rows.rew, want.rows.rew)
    np.testing.assert_array_equal(back.rows.next_obs.view, want.rows.next_obs.view)
    jumpy, lists = fill(30, 1, 60, seed=1, p_valid=.8)                          # in this toy stream time goes on while nothing is written
    to_minari(jumpy, "rlbench/rows-v1", obs, gym.spaces.Discrete(10**6), **about)
    want = [(name, term, trunc or not (term or after == name + 10)) for (name, term, trunc), (after, *_) in zip(laid(lists), [*laid(lists)[1:], (0,)])]
    assert read(from_minari("rlbench/rows-v1")) == want and sum(x[2] for x in want) > sum(x[2] for x in laid(lists))
