"What cannot be meant is answered with what was wrong, where, and what was expected; and nothing has happened"
import math

import pytest

from rlbench import Trainer, Workbench, evaluate, load, train
from rlbench.algos.ppo import PPO
from rlbench.core.state import FileProblem, same
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.training.checkpoints import RunProblem

WHOLE = "expected a whole number of at least"


@pytest.fixture(scope="module")
def trainer():
    return Trainer("CartPole-v1", "ppo", num_envs=2, n_steps=16, hidden=(8,)).run(steps=40)


@pytest.fixture(scope="module")
def file(trainer, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.rlb"
    trainer.save(path)
    return path


WITH_A_TRAINER = [
    (lambda t: evaluate(t, 0), ValueError, f"episodes = 0: {WHOLE} 1"),
    (lambda t: evaluate(t, -1), ValueError, f"episodes = -1: {WHOLE} 1"),
    (lambda t: evaluate(t, 2.5), ValueError, f"episodes = 2.5: {WHOLE} 1"),
    (lambda t: evaluate(t, 2, num_envs=0), ValueError, f"num_envs = 0: {WHOLE} 1"),
    (lambda t: evaluate(t, 2, longest=0), ValueError, f"longest = 0: {WHOLE} 1"),
    (lambda t: evaluate(3), TypeError, "or a run's id, folder or file, got int"),
    (lambda t: evaluate("run.rlb"), RunProblem, "no run 'run.rlb'"),
    (lambda t: t.restore({}), FileProblem, "not a state of this run"),
    (lambda t: t.restore(None), FileProblem, "not a state of this run"),
    (lambda t: t.run(-5), ValueError, f"run: steps = -5: {WHOLE} 0"),
    (lambda t: t.run(math.nan), ValueError, f"run: steps = nan: {WHOLE} 0"),
    (lambda t: t.run(math.inf), ValueError, f"run: steps = inf: {WHOLE} 0"),
    (lambda t: t.run("100"), ValueError, f"run: steps = '100': {WHOLE} 0"),
    (lambda t: t.run(True), ValueError, f"run: steps = True: {WHOLE} 0"),
    (lambda t: t.run(updates=-1), ValueError, f"run: updates = -1: {WHOLE} 0"),
    (lambda t: t.until("step", 0), ValueError, f"until: n = 0: {WHOLE} 1"),
    (lambda t: t.until("step", "3"), ValueError, f"until: n = '3': {WHOLE} 1"),
    (lambda t: t.learner.owe(-1), ValueError, f"owe: n = -1: {WHOLE} 1"),
    (lambda t: Workbench(t, lr=.1), ConfigError, "lr: a trainer that is given has all that"),
    (lambda t: Workbench(t, "dqn"), ConfigError, "algo: a trainer that is given has all that"),
    (lambda t: Workbench(t, views="values"), ValueError, "expected a list, such as"),
    (lambda t: Workbench(t, views=[3]), ValueError, "expected names or view classes, got 3"),
]


@pytest.mark.parametrize("call, kind, words", WITH_A_TRAINER)
def test_the_trainer_stays_as_it_was(trainer, call, kind, words):
    before = trainer.snapshot()
    with pytest.raises(kind) as found:
        call(trainer)
    assert words in str(found.value)
    assert same(trainer.state(), before)


def pole(**settings):
    return Trainer("CartPole-v1", "ppo", **settings)


ALONE = [
    (lambda: Workbench("CartPole-v1"), ConfigError, "which algorithm?"),
    (lambda: pole(hidden=(-3,)), ConfigError, "hidden = (-3,): expected numbers such as (64, 64) from 1 to 65,536"),
    (lambda: pole(hidden=(0,)), ConfigError, "hidden = (0,)"),
    (lambda: pole(threads=10**9), ConfigError, "threads = 1000000000: expected a whole number from 1 to 1,024"),
    (lambda: pole(num_envs=10**9), ConfigError, "num_envs = 1000000000: expected a whole number from 1 to 65,536"),
    (lambda: pole(env_settings=dict(wind=3)), EnvProblem, "was not made with env_settings wind"),
    (lambda: Trainer("CartPole-v1", PPO), ConfigError, "PPO is a class; give its name 'ppo', or PPO(…)"),
    (lambda: Trainer("CartPole-v1", "bc", memory=3), ConfigError, "memory: expected a Ring"),
    (lambda: train("CartPole-v1", "ppo", run_id=""), RunProblem, "run_id '': expected one name"),
    (lambda: train("CartPole-v1", "ppo", run_id=3), RunProblem, "run_id 3: expected one name"),
    (lambda: train("CartPole-v1", "ppo", steps=1, callbacks=[3]), ConfigError, "expected Callbacks or functions"),
]


@pytest.mark.parametrize("call, kind, words", ALONE)
def test_nothing_is_made(call, kind, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as found:
        call()
    assert words in str(found.value)
    assert not list(tmp_path.iterdir())


def test_a_run_is_loaded_into_its_own_environment_only(file):
    with pytest.raises(FileProblem, match="not a state of Acrobot-v1 .*: .*expected"):
        load(file, env="Acrobot-v1")


def test_a_folder_is_no_name_for_a_file(trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", tmp_path):
        with pytest.raises(FileProblem, match="is a folder, expected a name for a file"):
            trainer.save(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["streams", "learners", "env", "metrics", "obs", "exploring"])
def test_restore_is_all_or_nothing(trainer, part):
    before = trainer.snapshot()
    twin = trainer.fork()
    tree = twin.run(steps=40).snapshot()
    del tree[part]
    with pytest.raises(FileProblem, match="not a state of this run"):
        trainer.restore(tree)
    assert same(trainer.state(), before)


def test_a_vector_made_by_hand_is_never_shared():
    from rlbench.envs.find import make
    vec = make("CartPole-v1", 2)
    one = Trainer(vec, "ppo", n_steps=16, hidden=(8,)).run(steps=20)
    before = one.snapshot()
    two = one.fork()
    evaluate(one, 3)
    two.run(steps=30)
    assert one.env is vec and two.env is not vec
    assert same(one.state(), before)
    one.run(steps=30)
    assert same(one.state(), two.state())
