"""Frames stored once against a plain ring that stores every stack: equal rows at every wrap and every end."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers.datasets import subset
from rlbench.buffers.frames import Frames
from rlbench.buffers.priorities import Prioritised
from rlbench.buffers.ring import ClosedRing, Ring
from rlbench.buffers.sequences import SequenceSampler
from rlbench.core.batch import Batch, each
from rlbench.core.state import FileProblem, same, snapshot, write_tree
from rlbench.training.setup import told_whole
from rlbench.training.trainer import Trainer, load


class World:
    "Environments that hand out stacks, end at random and are sometimes busy resetting"

    def __init__(self, num_envs, stack, blank, seed, shape=(2,), p_end=.2, p_valid=.8):
        self.rng = np.random.default_rng(seed)
        self.num_envs = num_envs
        self.stack = stack
        self.blank = blank
        self.shape = shape
        self.p_end = p_end
        self.p_valid = p_valid
        self.obs = np.stack([self.first() for _ in range(num_envs)])

    def frame(self):
        return self.rng.normal(size=self.shape).astype(np.float32)

    def first(self):
        frame = self.frame()
        before = np.zeros_like(frame) if self.blank else frame
        return np.stack([before] * (self.stack - 1) + [frame])

    def step(self):
        "A row, and which environments made one"
        valid = self.rng.random(self.num_envs) < self.p_valid
        next_obs = np.stack([np.concatenate([obs[1:], self.frame()[None]]) for obs in self.obs])
        end = self.rng.random(self.num_envs) < self.p_end
        term = end & (self.rng.random(self.num_envs) < .5)
        act = self.rng.integers(5, size=self.num_envs)
        row = Batch(obs=self.obs.copy(), next_obs=next_obs, act=act, term=term, trunc=end & ~term)
        for n in np.flatnonzero(valid):
            self.obs[n] = self.first() if end[n] else next_obs[n]
        return row, valid


worlds = given(capacity=st.integers(1, 8), num_envs=st.integers(1, 3), stack=st.integers(1, 5), blank=st.booleans(),
               steps=st.integers(1, 40), seed=st.integers(0, 10**6))


@settings(max_examples=150, deadline=None)
@worlds
def test_rows_equal_those_of_a_plain_ring(capacity, num_envs, stack, blank, steps, seed):
    world = World(num_envs, stack, blank, seed)
    plain = Ring(capacity, num_envs)
    frames = Frames(capacity, num_envs, stack, blank)
    for t in range(steps):
        row, valid = world.step()
        assert plain.add(row, valid) == frames.add(row, valid)
        if t % 5 and t < steps - 1 or not len(plain): continue
        at = plain.latest()
        # an episode's start may be overwritten while its later rows are held: their older frames must still be there
        assert same(dict(frames.gather(at)), dict(plain.gather(at)))
        assert same(frames.latest(), at)
        assert same(frames.ordinal(at), plain.ordinal(at))
        tails = frames.places["tail"][at]
        used = tails[tails >= 0].tolist()
        # no place aside is lost, none is held twice
        assert sorted([*used, *frames.aside.free]) == list(range(len(frames.aside.frames)))
        assert len(used) <= int(frames.ends(at).sum()) + num_envs


@settings(max_examples=40, deadline=None)
@worlds
def test_many_steps_at_once_are_stored_as_single_steps_are(capacity, num_envs, stack, blank, steps, seed):
    world = World(num_envs, stack, blank, seed, p_valid=1.)
    one_by_one = Frames(capacity, num_envs, stack, blank)
    at_once = Frames(capacity, num_envs, stack, blank)
    rows = [world.step()[0] for _ in range(steps)]
    for row in rows:
        one_by_one.add(row)
    assert at_once.extend(each(lambda *columns: np.stack(columns), *rows)) == steps * num_envs
    assert same(at_once.state(), one_by_one.state())


@settings(max_examples=40, deadline=None)
@worlds
def test_a_restored_ring_of_frames_continues_to_the_bit(capacity, num_envs, stack, blank, steps, seed):
    world = World(num_envs, stack, blank, seed)
    frames = Frames(capacity, num_envs, stack, blank)
    restored = Frames(capacity, num_envs, stack, blank)
    for _ in range(steps):
        frames.add(*world.step())
    restored.restore(snapshot(frames.state()))
    twin = frames.twin()
    assert same(restored.state(), frames.state())
    assert same(twin.state(), frames.state())
    for _ in range(2 * capacity):
        row, valid = world.step()
        for memory in (frames, restored, twin):
            memory.add(row, valid)
    for memory in (restored, twin):
        assert same(memory.state(), frames.state())
        if len(frames):
            assert same(memory.gather(memory.latest()), frames.gather(frames.latest()))


@settings(max_examples=40, deadline=None)
@worlds
def test_ahead_stretches_and_priorities_read_the_same_rows(capacity, num_envs, stack, blank, steps, seed):
    world = World(num_envs, stack, blank, seed)
    plain = Ring(capacity, num_envs)
    frames = Frames(capacity, num_envs, stack, blank)
    for _ in range(steps):
        row, valid = world.step()
        plain.add(row, valid)
        frames.add(row, valid)
    if not len(plain): return
    index, _ = Prioritised(frames, 1., .1).draw(np.random.default_rng(seed), 6, .4)
    assert same(frames.ahead(index, 3), plain.ahead(index, 3))
    ours = SequenceSampler(frames, 2, 1, 1, False).around(index)
    theirs = SequenceSampler(plain, 2, 1, 1, False).around(index)
    assert same(ours, theirs)
    assert same(frames.gather(ours.index).obs[ours.valid], plain.gather(ours.index).obs[ours.valid])


def test_memory_is_that_of_the_bare_frames():
    "84 x 84 pixels, stacks of 4: at most 5 % above the bytes of each frame that was seen and is still needed"
    world = World(2, 4, True, 0, (84, 84), p_end=.05, p_valid=1.)
    frames = Frames(300, 2, 4, True)
    for _ in range(700):
        frames.add(*world.step())
    ends = int(frames.ends(frames.latest()).sum())
    bare = (600 + ends + 2) * 84 * 84 * 4                 # float32
    assert ends > 10
    assert bare <= frames.nbytes <= 1.05 * bare
    parts = (frames.film.places.frame, frames.aside.frames, *frames.rows.values())
    assert frames.nbytes == sum(x.nbytes for x in parts)


def test_an_environment_that_was_put_elsewhere_keeps_its_true_next_frame():
    def row(a, b, c, end=False):
        obs = np.array([[[a], [b]]])
        next_obs = np.array([[[b], [c]]])
        return Batch(obs=obs, next_obs=next_obs, term=np.array([end]), trunc=np.array([False]))

    frames = Frames(9, 1, 2, True)
    for one in (row(0, 1, 2), row(1, 2, 3), row(0, 7, 8), row(7, 8, 9, True), row(0, 1, 2)):
        frames.add(one)
    rows = frames.gather(frames.latest())
    assert rows.next_obs[..., 1, 0].tolist() == [2, 3, 8, 9, 2]
    assert rows.obs[..., 0].tolist() == [[0, 1], [1, 2], [0, 7], [7, 8], [0, 1]]


@pytest.mark.parametrize("blank", [True, False])
def test_the_wrong_padding_is_refused(blank):
    world = World(1, 3, blank, 0, p_end=.5)
    frames = Frames(50, 1, 3, not blank)
    with pytest.raises(ValueError, match=f"try blank={blank}"):
        for _ in range(50):
            frames.add(*world.step())


def test_the_wrong_stack_is_refused():
    with pytest.raises(ValueError, match=r"stacks \(N, 3"):
        Frames(5, 1, 3, True).add(World(1, 4, True, 0).step()[0])
    with pytest.raises(FileProblem, match="stacks of 2"):
        Frames(5, 1, 3, True).restore(Frames(5, 1, 2, True).state())


def test_a_closed_ring_of_frames_is_refused_and_a_data_set_is_not():
    world = World(1, 3, True, 0, p_valid=1.)
    frames = Frames(9, 1, 3, True)
    for _ in range(20):
        frames.add(*world.step())
    with pytest.raises(ValueError, match=r"twin\(ClosedRing\): Frames .* datasets.subset"):
        frames.twin(ClosedRing)
    data = subset(frames, frames.latest()).twin(ClosedRing)
    assert same(data.gather(np.arange(9)).obs, frames.gather(frames.latest()).obs)


STACKED = dict(num_envs=2, learning_starts=20, buffer_size=60, batch_size=8, hidden=(8,))


def stacked_run(algo, **settings):
    return Trainer("CartPole-v1", algo, seed=1, env_settings=dict(frame_stack=3), **STACKED | settings)


@pytest.mark.parametrize("algo, settings", [
    ("dqn", dict(n_step=3, prioritized_replay_alpha=.5)), ("qr_dqn", dict(quantiles=3)), ("r2d2", dict(hidden=(8, 8)))])
def test_what_is_learned_from_frames_is_what_is_learned_from_stacks(algo, settings, monkeypatch):
    frames = stacked_run(algo, **settings).run(steps=200)
    assert isinstance(frames.learner.memory, Frames) and frames.updates
    monkeypatch.setattr("rlbench.algos.replay.ring_for", lambda space, *size: Ring(*size))
    stacks = stacked_run(algo, **settings).run(steps=200)
    assert type(stacks.learner.memory) is Ring
    assert same(frames.learner.actor.state(), stacks.learner.actor.state())


def test_a_run_with_frames_goes_on_from_a_file_to_the_bit(tmp_path):
    trainer = stacked_run("dqn").run(steps=150)
    here = trainer.snapshot()
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb")
    for one in (trainer, twin):
        one.run(steps=70)
    assert same(trainer.snapshot()["learners"], twin.snapshot()["learners"])
    trainer.restore(here)
    assert same(trainer.run(steps=70).snapshot()["learners"], twin.snapshot()["learners"])


def torn(memory, part, name, change):
    "A memory's state, in which an entry of `film` or `aside` is another"
    return memory | {part: memory[part] | {name: change(memory[part][name])}}


@pytest.fixture(scope="module")
def whole_run():
    "What a file holds of a run with frames"
    return told_whole(stacked_run("dqn").run(steps=150))


@pytest.mark.parametrize("part, name, change", [
    ("film", "rows", lambda rows: rows[:5]),
    ("film", "rows", lambda rows: Batch(frame=rows.frame.astype(np.float64))),
    ("film", "rows", lambda rows: None),
    ("film", "written", lambda written: written - 1),
    ("film", "capacity", lambda capacity: capacity - 1),
    ("aside", "frames", lambda frames: frames[:-1]),
    ("aside", "frames", lambda frames: None),
    ("aside", "frames", lambda frames: frames[:, :2]),
    ("aside", "free", lambda free: np.append(free, 0)),
    ("aside", "free", lambda free: free.astype(float)),
])
def test_a_file_whose_frames_are_not_those_of_its_rows_is_refused(part, name, change, tmp_path, whole_run):
    tree = snapshot(whole_run)
    learner = tree["state"]["learners"]["agent"]
    learner["memory"] = torn(learner["memory"], part, name, change)
    write_tree(tmp_path / "torn.rlb", tree, kind="checkpoint")
    with pytest.raises(FileProblem):
        load(tmp_path / "torn.rlb")
