"A way back that fails leaves the run where it was; where the environment cannot get there, it says so and waits"
import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.state import FileProblem, same
from rlbench.envs.env import EnvProblem
from rlbench.training.rule import BrokenOff
from rlbench.training.trainer import Trainer, load
from tests.test_going_back import Chase

SMALL = dict(num_envs=2, n_steps=8, batch_size=8, n_epochs=2, hidden=(4,))


class Moody(gym.Wrapper):
    "CartPole that on some days is another, or answers no more"
    moved = 0.              # added to what is seen
    left = np.inf           # calls until one fails
    problem = TimeoutError("the simulator does not answer")

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))

    def called(self):
        Moody.left -= 1
        if Moody.left == 0: raise self.problem

    def reset(self, **how):
        self.called()
        return self.env.reset(**how)

    def step(self, act):
        self.called()
        obs, *rest = self.env.step(act)
        return obs + np.float32(self.moved), *rest


class MoodyChase(Chase):
    "Two that act at once, in such a world"

    def reset(self, seed=None, options=None):
        self.episodes = 0
        return super().reset()

    def seen(self):
        return {agent: obs + np.float32(Moody.moved) for agent, obs in super().seen().items()}


@pytest.fixture(autouse=True)
def calm():
    "All is well, before and after"
    Moody.moved = 0.
    Moody.left = np.inf
    yield
    Moody.moved = 0.
    Moody.left = np.inf


def made(kind=Moody, algo="ppo"):
    settings = SMALL if algo == "ppo" else dict(num_envs=2, learning_starts=10)
    return Trainer(kind, algo, **settings).run(steps=43)


def waits(trainer, place):
    "True where all but the environment is at a place, and nothing goes on without a word"
    with pytest.raises(BrokenOff, match="could not be put back where it was"):
        trainer.advance()
    return same(trainer.state(), place) and same(trainer.snapshot(), place)


@pytest.mark.parametrize("call", [1, 2, 9, 24])      # the first reset or step of one of both, or a later one
@pytest.mark.parametrize("problem", [TimeoutError("the simulator does not answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("fresh", [False, True])
def test_what_fails_once_leaves_the_run_where_it_was(call, problem, fresh):
    trainer = made()
    twin = trainer.fork()
    there = trainer.snapshot()
    for one in (trainer, twin): one.run(steps=13)
    Moody.problem = problem
    Moody.left = min(call, 2) if fresh else call
    with pytest.raises(KeyboardInterrupt if isinstance(problem, KeyboardInterrupt) else FileProblem):
        trainer.restore(there, fresh_episodes=fresh)
    assert Moody.left <= 0
    for _ in range(60):
        assert trainer.advance().text == twin.advance().text
    assert same(trainer.state(), twin.state())


def made_to_wait(trainer):
    "Where a trainer is that waits now, since its environment could neither go back nor return"
    there = trainer.snapshot()
    trainer.run(steps=13)
    here = trainer.snapshot()
    Moody.moved = 1.
    with pytest.raises(EnvProblem, match="could not be put back where it was"):
        trainer.restore(there)
    assert waits(trainer, here)
    return here


@pytest.mark.parametrize("kind, algo", [(Moody, "ppo"), (MoodyChase, "dqn")])
def test_what_cannot_go_back_at_all_waits(kind, algo, tmp_path):
    trainer = made(kind, algo)
    here = made_to_wait(trainer)
    with pytest.raises(FileProblem, match="it has no actors"):
        trainer.restore({})
    assert waits(trainer, here)
    trainer.save(tmp_path / "here.rlb")
    afresh = load(tmp_path / "here.rlb", env=kind, fresh_episodes=True)
    assert afresh.run(steps=20).steps >= here["env"]["counts"]["steps"] + 20
    Moody.moved = 0.
    twin = trainer.fork()                                   # and the day comes on which it is itself again
    assert waits(trainer, here)
    trainer.restore(here)
    assert same(trainer.run(steps=40).state(), twin.run(steps=40).state())


def test_whoever_waits_goes_on_with_new_episodes():
    trainer = made()
    there = trainer.snapshot()
    trainer.run(steps=13)
    Moody.moved = 1.
    with pytest.raises(EnvProblem): trainer.restore(there)
    steps = trainer.steps
    trainer.restore(trainer.snapshot(), fresh_episodes=True)
    assert trainer.run(steps=20).steps >= steps + 20
    assert trainer.metrics.rows[-1]["fresh_episodes"] == 2


def test_an_environment_is_not_moved_where_something_else_is_wrong():
    trainer = made()
    twin = trainer.fork()
    broken = trainer.snapshot()
    broken["learners"]["agent"]["actor"]["nets"].popitem()
    for one in (trainer, twin): one.run(steps=13)
    Moody.moved = 1.                                        # it could not go back
    with pytest.raises(FileProblem): trainer.restore(broken)
    Moody.moved = 0.
    assert same(trainer.run(steps=40).state(), twin.run(steps=40).state())


def test_of_a_native_vector_too():
    class Balky(gym.vector.VectorWrapper):
        def reset(self, **how):
            if Moody.moved: raise TimeoutError("the simulator does not answer")
            return self.env.reset(**how)

    trainer = Trainer("CartPole-v1", "ppo", **SMALL).run(steps=43)
    trainer.env.env = Balky(trainer.env.env)
    here = made_to_wait(trainer)
    Moody.moved = 0.
    trainer.restore(here)
    assert same(trainer.state(), here)
