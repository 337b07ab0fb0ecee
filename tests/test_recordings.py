"""Columns in files against columns in memory; recordings after a crash, one of them real."""
import json
import shutil
import signal
import subprocess
import sys
import tracemalloc

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.algos.algorithm import get
from rlbench.buffers.datasets import subset
from rlbench.buffers.frames import Frames
from rlbench.buffers.recordings import mapped, open_recording, start_recording
from rlbench.buffers.ring import ClosedRing, Ring
from rlbench.core.batch import Batch, columns
from rlbench.core.spaces import Spec
from rlbench.core.state import FileProblem, same, snapshot
from rlbench.core.words import ConfigError
from rlbench.training.learner import memory_for
from rlbench.training.trainer import Trainer


def row_of(t, num_envs, rng):
    "A row whose columns tell t and the environment"
    n = np.arange(num_envs)
    term = rng.random(num_envs) < .1
    obs = Batch(place=t * 10 + n, view=np.full((num_envs, 2), t, np.float32))
    return Batch(obs=obs, act=n + t, term=term, trunc=~term & (rng.random(num_envs) < .1))


@settings(max_examples=30, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), steps=st.integers(1, 30), seed=st.integers(0, 10**6))
def test_columns_in_files_behave_as_columns_in_memory(capacity, num_envs, steps, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    plain = Ring(capacity, num_envs)
    ring = Ring(capacity, num_envs, make=mapped(folder))
    rng = np.random.default_rng(seed)
    for t in range(steps):
        row = row_of(t, num_envs, rng)
        valid = rng.random(num_envs) < .8
        for memory in (plain, ring):
            memory.add(row, valid)
    assert same(ring.state(), plain.state())
    assert {path.name for path in folder.iterdir()} == {f"{name}.npy" for name, _ in columns(plain.rows)}
    restored = Ring(capacity, num_envs, make=mapped(tmp_path_factory.mktemp("restored")))
    restored.restore(plain.state())
    assert same(restored.state(), plain.state())
    if not len(ring): return
    assert same(subset(ring, ring.latest(), mapped(folder / "data")).state(), subset(plain, plain.latest()).state())


def test_rings_that_use_one_folder_do_not_share_their_rows(tmp_path):
    ring = Ring(5, 1, make=mapped(tmp_path))
    rng = np.random.default_rng(0)
    for t in range(7):
        ring.add(row_of(t, 1, rng))
    kept = snapshot(ring.state())
    twin = ring.twin()
    assert same(ring.state(), kept) and same(twin.state(), kept)
    twin.add(row_of(9, 1, rng))
    assert same(ring.state(), kept)
    ring.restore(ring.state())                            # from its own columns
    assert same(ring.state(), kept)


def test_frames_in_files(tmp_path):
    rng = np.random.default_rng(0)
    plain = Ring(20, 1)
    frames = Frames(20, 1, 3, True, make=mapped(tmp_path))

    def moved_on(stack):
        return np.concatenate([stack[:, 1:], rng.normal(size=(1, 1, 4)).astype(np.float32)], 1)

    stack = moved_on(np.zeros((1, 3, 4), np.float32))
    for t in range(50):
        after = moved_on(stack)
        end = t % 7 == 6
        for ring in (plain, frames):
            ring.add(Batch(obs=stack, next_obs=after, term=np.array([end]), trunc=np.array([False])))
        stack = moved_on(np.zeros_like(stack)) if end else after
    assert (tmp_path / "frame.npy").exists()
    assert same(dict(frames.gather(plain.latest())), dict(plain.gather(plain.latest())))


class Writer:
    "Writes rows into a recorder and remembers what each environment did"

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        self.names = [[] for _ in range(num_envs)]
        self.t = 0

    def write(self, recorder, count):
        for _ in range(count):
            row = row_of(self.t, recorder.num_envs, self.rng)
            valid = self.rng.random(recorder.num_envs) < .8
            recorder.add(row, valid)
            for n in np.flatnonzero(valid):
                self.names[n].append(self.t * 10 + n)
            self.t += 1

    def check(self, found, crashed):
        "What is found are the newest rows of each environment, but for those that a crash may cost"
        total = 0
        for n, names in enumerate(self.names):
            counts = np.where(found.everyone == n, found.sizes, 0)
            held = found.gather(found.latest(counts))
            place = held.obs.place.tolist()
            size = len(place)
            missing = names.index(place[-1]) + 1 if place else 0
            total += len(names) - missing
            assert size == found.sizes[n]
            assert place == names[missing - size:missing]
            assert held.act.tolist() == [name // 10 + name % 10 for name in place]
            assert size >= min(missing, found.capacity) - (found.risk if crashed else 0)
        assert total <= (found.risk if crashed else 0)


@settings(max_examples=25, deadline=None)
@given(capacity=st.integers(4, 20), num_envs=st.integers(1, 2), block=st.integers(1, 2), steps=st.integers(1, 60),
       more=st.integers(0, 30), seed=st.integers(0, 10**6))
def test_a_recording_is_true_whenever_its_writer_is_killed(
        capacity, num_envs, block, steps, more, seed, tmp_path_factory):
    "The files are copied while being written; and the row that was just being written is torn"
    folder = tmp_path_factory.mktemp("recording")
    recorder = start_recording(folder / "a", capacity, num_envs, block)
    writer = Writer(num_envs, seed)
    writer.write(recorder, steps)
    if recorder.places is None: return
    shutil.copytree(folder / "a", folder / "b")
    if not (folder / "b" / "ring.json").exists():
        assert recorder.added < block
        return
    torn = np.load(folder / "b" / "act.npy", mmap_mode="r+")
    torn[recorder.shifted(recorder.aged(0, recorder.everyone), 1)] = -77        # half a row over the oldest one
    torn.flush()
    del torn

    found = open_recording(folder / "b")
    writer.check(found, crashed=True)
    if len(found):
        drawn = found.gather(found.uniform(np.random.default_rng(seed), 100))
        assert set(drawn.obs.place.tolist()) <= set(found.gather(found.latest()).obs.place.tolist())
    recorder.close()
    again = open_recording(folder / "a")
    writer.check(again, crashed=False)
    writer.write(again, more)                             # and on it goes
    again.close()
    writer.check(open_recording(folder / "a"), crashed=False)


@pytest.mark.parametrize("closed", [True, False])
def test_an_episode_of_before_does_not_go_on_in_a_recording_that_was_opened(tmp_path, closed):
    def of(t):
        no = np.zeros(2, bool)
        return Batch(rew=np.array([t, t]), term=np.array([t == 3, False]), trunc=no)

    recorder = start_recording(tmp_path / "a", 20, 2, 2)
    for t in range(4): recorder.add(of(t))
    if closed: recorder.close()
    read = open_recording(tmp_path / "a")
    assert not read.rows.trunc.any()                       # who only reads changes nothing
    again = open_recording(tmp_path / "a")
    for t in (8, 9): again.add(of(t))
    again.close()
    found = open_recording(tmp_path / "a").rows[:6]
    assert found.rew[:, 0].tolist() == [0, 1, 2, 3, 8, 9]
    assert found.trunc.tolist() == [[False, number == 3] for number in range(6)]


def test_what_a_crash_made_doubtful_is_trusted_again_once_it_is_written_over(tmp_path):
    recorder = start_recording(tmp_path / "a", 10, 1, 3)
    writer = Writer(1, seed=0)
    writer.write(recorder, 40)
    found = open_recording(tmp_path / "a")
    assert found.sizes.tolist() == [7]
    found.extend(recorder.rows[:2])
    assert found.sizes.tolist() == [9]
    assert found.twin(ClosedRing).sizes.tolist() == [9]


WRITER = """
import sys, numpy as np
from rlbench.buffers.recordings import start_recording
from rlbench.core.batch import Batch
recorder = start_recording(sys.argv[1], capacity=300, num_envs=1, block=25)
no = np.array([False])
for t in range(10**9):
    recorder.add(Batch(obs=np.full((1, 50), t, np.float32), rew=np.array([t]), term=no, trunc=no))
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
    said = [int(line) for line in writer.communicate()[0].split()]      # what it still said before it was gone
    last = max([rows, *said])
    found = open_recording(tmp_path / "run")
    held = found.gather(found.latest())
    names = held.rew.tolist()
    assert names == list(range(names[0], names[-1] + 1))
    assert last - names[-1] <= 25
    assert len(names) >= min(names[-1] + 1, 300 - 25)
    assert (held.obs == held.rew[:, None]).all()
    no = np.array([False])
    found.add(Batch(obs=np.zeros((1, 50), np.float32), rew=np.array([-1]), term=~no, trunc=no))
    found.close()
    again = open_recording(tmp_path / "run")
    assert again.gather(again.newest(1)).rew.tolist() == [-1]


def test_folders_that_hold_no_recording_are_refused(tmp_path):
    with pytest.raises(FileProblem, match="no recording"):
        open_recording(tmp_path)
    recorder = start_recording(tmp_path / "a", 10, 1, 2)
    for _ in range(3):
        recorder.add(Batch(rew=np.ones(1)))
    with pytest.raises(FileExistsError, match="open_recording"):
        start_recording(tmp_path / "a", 10, 1, 2)
    data = (tmp_path / "a" / "rew.npy").read_bytes()
    (tmp_path / "a" / "rew.npy").write_bytes(data[:60])
    with pytest.raises(FileProblem, match="rew.npy: "):
        open_recording(tmp_path / "a")


# ---- columns that hold what cannot be

def recorded(folder, steps=30, close=True):
    "A recording of states and of numbers, of which the newest 20 rows are held"
    recorder = start_recording(folder, 20, 1, 2)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        state = rng.integers(16, size=1)
        seen = rng.normal(size=(1, 4)).astype(np.float32)
        ends = np.zeros(1, bool)
        obs = Batch(state=state, seen=seen)
        recorder.add(Batch(obs=obs, act=state % 4, rew=seen[:, 0], term=ends, trunc=ends, next_obs=obs))
    if close: recorder.close()
    return recorder


def spoil(folder, name, row, value):
    "Write a value into a row of a column's file; flags are bytes"
    column = np.load(folder / f"{name}.npy", mmap_mode="r+")
    (column.view(np.uint8) if column.dtype == bool else column)[row] = value
    column.flush()


@pytest.mark.parametrize("name, value, told", [
    ("rew", np.nan, "nan"), ("rew", -np.inf, "-inf"), ("obs.seen", np.nan, "nan"), ("next_obs.seen", np.inf, "inf"),
    ("term", 2, "2"), ("trunc", 255, "255"),
])
def test_a_recording_that_holds_what_cannot_be_is_refused(tmp_path, name, value, told):
    recorded(tmp_path / "a")
    spoil(tmp_path / "a", name, 7, value)
    with pytest.raises(FileProblem) as found:
        open_recording(tmp_path / "a")
    assert f"{name}.npy: row 7 holds {told}" in str(found.value)


def test_what_stands_where_nothing_is_held_does_no_harm(tmp_path):
    recorded(tmp_path / "a", steps=5)
    spoil(tmp_path / "a", "rew", 5, np.nan)
    assert len(open_recording(tmp_path / "a")) == 5
    recorded(tmp_path / "b", close=False)                 # 30 rows in 20 places: row 10 may be torn
    spoil(tmp_path / "b", "rew", 10, np.nan)
    spoil(tmp_path / "b", "term", 10, 9)
    assert len(open_recording(tmp_path / "b")) == 18
    spoil(tmp_path / "b", "rew", 12, np.nan)
    with pytest.raises(FileProblem, match="rew.npy: row 12 holds nan"):
        open_recording(tmp_path / "b")


def test_a_long_recording_is_looked_at_in_little_memory(tmp_path):
    recorder = start_recording(tmp_path / "a", 1200, 100, 2)
    ends = np.zeros((1200, 100), bool)
    Ring.extend(recorder, Batch(obs=np.ones((1200, 100, 20), np.float32), term=ends, trunc=ends))   # noted once, below
    recorder.close()
    spoil(tmp_path / "a", "obs", 119_999, np.nan)
    tracemalloc.start()
    try:
        with pytest.raises(FileProblem, match="row 119999 holds"):
            open_recording(tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 4e6   # the columns take 9.8
    finally: tracemalloc.stop()


@pytest.mark.parametrize("name, value", [
    ("written", -1), ("written", 30.5), ("written", "30"), ("written", True), ("written", None), ("written", 2**62),
    ("forgotten", -1), ("forgotten", 31),
])
def test_counts_that_cannot_be_are_refused(tmp_path, name, value):
    recorded(tmp_path / "a")
    path = tmp_path / "a" / "ring.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: [value]}))
    with pytest.raises(FileProblem, match=f"ring.json: .*{name}"):
        open_recording(tmp_path / "a")


def lake(folder):
    "A recording of states and actions of a lake"
    recorder = start_recording(folder, 20, 1, 2)
    for t in range(30):
        ends = np.zeros(1, bool)
        state = np.array([t % 16])
        recorder.add(Batch(obs=state, act=state % 4, rew=np.ones(1, np.float32), term=ends, trunc=ends, next_obs=state))
    recorder.close()


@pytest.mark.parametrize("name, value", [("obs", 16), ("obs", -1), ("next_obs", 99), ("act", 4)])
def test_what_a_space_does_not_hold_is_refused_before_anything_learns_from_it(tmp_path, name, value):
    lake(tmp_path / "a")
    assert len(Trainer("FrozenLake-v1", "bc", memory=open_recording(tmp_path / "a")).run(updates=1).learner.todo) == 0
    spoil(tmp_path / "a", name, 7, value)
    memory = open_recording(tmp_path / "a")
    with pytest.raises(FileProblem) as found:
        Trainer("FrozenLake-v1", "bc", memory=memory)
    assert f"{name}.npy: row 7 holds {value}, expected" in str(found.value) and "Discrete" in str(found.value)
    with pytest.raises(ConfigError, match=f"its {name} hold {value} in row"):
        Trainer("FrozenLake-v1", "bc", memory=subset(memory, memory.latest()))


@pytest.mark.parametrize("name, value", [("obs.place", 3), ("act.turn", 5), ("next_obs.place", -1)])
def test_parts_of_observations_and_actions_are_looked_at(tmp_path, name, value):
    place = gym.spaces.Dict(place=gym.spaces.MultiDiscrete([3, 3]))
    turn = gym.spaces.Dict(turn=gym.spaces.Discrete(2, start=3), force=gym.spaces.Box(-1, 1, (1,)))
    ring = Ring(9, 1)
    obs = Batch(place=np.ones((1, 2), np.int64))
    act = Batch(turn=np.array([3]), force=np.zeros((1, 1), np.float32))
    for _ in range(5):
        ends = np.zeros(1, bool)
        ring.add(Batch(obs=obs, act=act, rew=np.ones(1, np.float32), term=ends, trunc=ends, next_obs=obs))
    spec = Spec(place, turn, 1)
    assert memory_for(get("dqn")(), spec, ring) is ring
    dict(columns(ring.places))[name][2] = value
    with pytest.raises(ConfigError, match=f"its {name} hold {value} in row 2, expected"):
        memory_for(get("dqn")(), spec, ring)


def test_a_recording_of_other_types_is_not_gone_on_with(tmp_path):
    recorder = start_recording(tmp_path / "a", 20, 1, 2)
    obs = np.zeros((1, 4))
    no = np.zeros(1, bool)
    for _ in range(9):
        recorder.add(Batch(obs=obs, act=np.zeros(1, int), rew=np.ones(1), term=no, trunc=no, next_obs=obs))
    with pytest.raises(ConfigError, match="has obs of float64, expected float32; give its rows"):
        Trainer("CartPole-v1", "dqn", num_envs=1, memory=recorder)
    taken = Trainer("CartPole-v1", "dqn", num_envs=1, memory=recorder.twin()).learner.memory
    assert (taken.places.obs.dtype, recorder.places.obs.dtype) == (np.float32, np.float64)
