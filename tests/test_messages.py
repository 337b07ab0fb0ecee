"What cannot be meant is answered with what was wrong, where, and what was expected; and nothing has happened"
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench import Trainer, Workbench, check_env, describe, evaluate, load, make, play, register, train
from rlbench.algos.ppo import PPO
from rlbench.buffers.ring import Ring
from rlbench.core.state import FileProblem, same
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.training.callbacks import Callbacks
from rlbench.training.checkpoints import RunProblem
from rlbench.training.learner import NotFinite

WHOLE = "expected a whole number of at least"
EMPTY = "expected the name of a file or folder, got an empty path"


@pytest.fixture(scope="module")
def trainer():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2, n_steps=16, hidden=(8,)).run(steps=40)
    assert trainer.policy                                   # has a random stream from now on
    return trainer


@pytest.fixture(scope="module")
def file(trainer, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.rlb"
    trainer.save(path)
    return path


WITH_A_TRAINER = [
    (lambda t: evaluate(t, 0), ValueError, f"episodes = 0: {WHOLE} 1"),
    (lambda t: evaluate(t, -1), ValueError, f"episodes = -1: {WHOLE} 1"),
    (lambda t: evaluate(t, 2.5), ValueError, f"episodes = 2.5: {WHOLE} 1"),
    (lambda t: evaluate(t, 2, num_envs=0), ValueError, "num_envs = 0: expected a whole number from 1 to 10,000"),
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
    (lambda t: t.learner.owe(-1), ValueError, "owe: n = -1: expected a whole number from 1 to 10,000"),
    (lambda t: t.run(3, stop=True), ValueError, "run: stop = True: expected a function"),
    (lambda t: t.run(3, stop=abs), ValueError, "expected a function without arguments"),
    (lambda t: t.run(3, stop=0), ValueError, "run: stop = 0: expected a function"),
    (lambda t: t.until(nothing), ValueError, "until: nothing cannot be called so"),
    (lambda t: t.restore({**t.snapshot(), "obs": 3}), FileProblem, "not a state of this run: obs: int, expected"),
    (lambda t: t.restore({**t.snapshot(), "obs": dict(agent=3)}), FileProblem, "obs: {'agent': ()}, expected"),
    (lambda t: t.restore({**t.snapshot(), "learning": "no"}), FileProblem, "learning: str, expected bool"),
    (lambda t: t.restore({**t.snapshot(), "learners": {}}), FileProblem, "learners: parts , expected parts agent"),
    (lambda t: t.set(source=object(), lr=.1), ConfigError, "source: expected words for who says so"),
    (lambda t: t.restore(t.snapshot(), "no"), ConfigError, "fresh_episodes = 'no': expected True or False"),
    (lambda t: t.until("steps"), ValueError, "until: unknown unit 'steps'; did you mean 'step'"),
    (lambda t: t.restore([]), FileProblem, "expected what snapshot() gave"),
    (lambda t: evaluate(t, seed="a"), ValueError, f"evaluate: seed = 'a': {WHOLE} 0"),
    (lambda t: evaluate(t, seed=-1), ValueError, f"evaluate: seed = -1: {WHOLE} 0"),
    (lambda t: evaluate(""), ConfigError, f"run: {EMPTY}"),
    (lambda t: t.run(updates=np.zeros(3)), ValueError, "run: updates = array([0., 0., 0.]): expected a whole number"),
    (lambda t: t.set(3), TypeError, "takes 1 positional argument but 2 were given"),
    (lambda t: t.save(3), ConfigError, "expected the name of a file or folder, got 3"),
    (lambda t: t.save(""), ConfigError, f"path: {EMPTY}"),
    (lambda t: t.save(" "), ConfigError, EMPTY),
    (lambda t: t.save("a\0b"), ConfigError, "got 'a\\x00b'"),
    (lambda t: t.save("x" * 300), ConfigError, "got a name of 300 bytes"),
    (lambda t: t.set(render_mode="human"), ConfigError, "unknown setting 'render_mode'"),
    (lambda t: t.policy.act("x"), ValueError, "observation 'x': expected numbers of shape (4,)"),
    (lambda t: t.policy.act(dict(a=1)), ValueError, "observation {'a': 1}: expected numbers of shape (4,)"),
    (lambda t: t.policy.act([1, 2, 3]), ValueError, "observation of shape (3,), expected (4,) or (B, 4)"),
    (lambda t: t.policy.act([math.nan] * 4), ValueError, "holds numbers that are not finite"),
    (lambda t: play(3), TypeError, "or a run's id, folder or file, got int"),
    (lambda t: play(t, episodes=0), ValueError, f"play: episodes = 0: {WHOLE} 1"),
    (lambda t: t.policy.act([0, 0, 0, 10**400]), ValueError, "expected numbers of shape (4,)"),
    (lambda t: t.policy.act(torch.zeros(4, requires_grad=True)), ValueError, "expected numbers of shape (4,)"),
    (lambda t: play(""), ConfigError, f"run: {EMPTY}"),
    (lambda t: play(t, ""), ConfigError, f"play: output: {EMPTY}"),
    (lambda t: play(t, seed="a"), ValueError, f"play: seed = 'a': {WHOLE} 0"),
    (lambda t: play(t, fps=0), ValueError, "play: fps = 0: expected a number from 0.01 to 1,000"),
    (lambda t: play(t, fps=1e-9), ValueError, "play: fps = 1e-09: expected a number from 0.01"),
    (lambda t: play(t, "film.mp5", max_steps=10**9), ConfigError, "expected a name that ends in .gif"),
    (lambda t: Workbench(t, lr=.1), ConfigError, "lr: a trainer that is given has all that"),
    (lambda t: Workbench(t, "dqn"), ConfigError, "algo: a trainer that is given has all that"),
    (lambda t: Workbench(t, views="values"), ValueError, "expected a list, such as"),
    (lambda t: Workbench(t, views=[3]), ValueError, "expected names or view classes, got 3"),
    (lambda t: Workbench(t, views=[int]), ValueError, "expected names or view classes, got <class 'int'>"),
    (lambda t: Workbench(t, views=3), ValueError, "views = 3: expected a list, such as ['curve']"),
    (lambda t: Workbench(t, driver=[]), ValueError, "driver []: expected one of thread, sync, clock"),
]


@pytest.mark.parametrize("call, kind, words", WITH_A_TRAINER)
def test_the_trainer_stays_as_it_was(trainer, call, kind, words):
    before = trainer.snapshot()
    with pytest.raises(kind) as found:
        call(trainer)
    assert words in str(found.value)
    assert same(trainer.state(), before)


RENDERED = dict(render_mode="rgb_array")


class Deaf(Callbacks):
    def on_episode_end(self, episode):
        "Has forgotten the trainer"


def nothing():
    "Makes no environment"


def sized(size):
    "Wants to be told something"


def own_pole():
    return gym.make("CartPole-v1", render_mode="rgb_array")


def pole(**settings):
    return Trainer("CartPole-v1", "ppo", **settings)


ALONE = [
    (lambda: Workbench("CartPole-v1"), ConfigError, "which algorithm?"),
    (lambda: Workbench(3), EnvProblem, "expected an environment's id or a function that makes one, got int"),
    (lambda: Workbench("CartPole-v1", "ppo", views="values", driver="sync"), ValueError, "such as ['values']"),
    (lambda: Trainer(3), EnvProblem, "expected an environment's id or a function that makes one, got int"),
    (lambda: Trainer(env=None), EnvProblem, "expected an environment's id or a function that makes one, got NoneType"),
    (lambda: Trainer("CartPole-v1"), ConfigError, "CartPole-v1: which algorithm? Give its name, such as"),
    (lambda: Trainer("CartPole-v1", ["ppo"]), ConfigError, "Expected a name such as 'ppo', got ['ppo']"),
    (lambda: Trainer(gym.make("CartPole-v1"), "ppo"), EnvProblem, "got TimeLimit, of which copies are needed"),
    (lambda: Trainer(nothing, "ppo"), EnvProblem, "nothing made NoneType, expected an environment with reset, step"),
    (lambda: Trainer(sized, "ppo"), EnvProblem, "sized was not made with no env_settings: missing"),
    (lambda: Trainer(own_pole, "ppo", env_settings=RENDERED), EnvProblem, "not made with env_settings render_mode"),
    (lambda: pole(env_settings=dict(render_mode="text")), EnvProblem, "'text': expected one of human, rgb_array"),
    (lambda: pole(env_settings=[1]), EnvProblem, "env_settings: expected a dictionary"),
    (lambda: pole(env_settings=np.zeros(3)), EnvProblem, "env_settings: expected a dictionary"),
    (lambda: pole(env_settings={3: 4}), EnvProblem, "env_settings: expected a dictionary"),
    (lambda: pole(env_settings=0), EnvProblem, "env_settings: expected a dictionary"),
    (lambda: train("CartPole-v1", "ppo", env_settings=[1]), EnvProblem, "env_settings: expected a dictionary"),
    (lambda: train("CartPole-v1", 3), ConfigError, "Expected a name such as 'ppo', got 3"),
    (lambda: train("CartPole-v1", dict(agent=3)), ConfigError, "Expected a name such as 'ppo', got 3"),
    (lambda: train("CartPole-v1", "ppo", run_id="a", folder=""), ConfigError, f"folder: {EMPTY}"),
    (lambda: train("CartPole-v1", "ppo", run_id="a", folder=3), ConfigError, "folder: expected the name of a file or"),
    (lambda: train("CartPole-v1", "ppo", run_id="a\0"), RunProblem, "expected one name"),
    (lambda: train("CartPole-v1", "ppo", config=""), ConfigError, EMPTY),
    (lambda: train("CartPole-v1", "ppo", memory=""), ConfigError, EMPTY),
    (lambda: train("CartPole-v1", "ppo", initialize_from=""), ConfigError, EMPTY),
    (lambda: Trainer(":x", "ppo"), EnvProblem, "no environment ':x'"),
    (lambda: check_env("CartPole-v1", 0), ValueError, f"check_env: steps = 0: {WHOLE} 1"),
    (lambda: load(""), ConfigError, EMPTY),
    (lambda: load("x" * 300), ConfigError, "got a name of 300 bytes"),
    (lambda: pole(config=dict(lr=1)), ConfigError, "config: expected a Config, got dict"),
    (lambda: pole(seed="a"), ConfigError, "seed = 'a': expected a whole number of at least 0"),
    (lambda: pole(num_envs=0), ConfigError, "num_envs = 0: expected a whole number from 1"),
    (lambda: make("CartPole-v1", 0), ValueError, f"make: num_envs = 0: {WHOLE} 1"),
    (lambda: make("CartPole-v1", "a"), ValueError, f"make: num_envs = 'a': {WHOLE} 1"),
    (lambda: load(None), ConfigError, "expected the name of a file or folder, got None"),
    (lambda: load("none.rlb"), FileProblem, "none.rlb: no such file"),
    (lambda: train("CartPole-v1", "ppo", steps=1, callbacks=[Deaf()]), ValueError, "Deaf.on_episode_end: on_ep"),
    (lambda: train("CartPole-v1", "ppo", steps=1, callbacks=[Deaf]), ConfigError, "expected Callbacks or functions"),
    (lambda: train("CartPole-v1", "ppo", steps=1, callbacks=[nothing]), ValueError, "function of trainer, event"),
    (lambda: train("CartPole-v1", "ppo", run_id="a", force="no"), ConfigError, "force = 'no': expected True or"),
    (lambda: train("CartPole-v1", "ppo", progress=3), ConfigError, "progress = 3: expected True or False"),
    (lambda: train("CartPole-v1", "ppo", steps=1, callbacks=print), ConfigError, "expected a list of Callbacks"),
    (lambda: train("CartPole-v1", "ppo", steps=1, initialize_from=3), ConfigError, "expected the name of a file"),
    (lambda: train("CartPole-v1", "ppo", **{"bob.lr": .1}), ConfigError, "unknown section 'bob'. There are:"),
    (lambda: train(config=3), ConfigError, "expected the name of a file or folder, got 3"),
    (lambda: pole(hidden=(-3,)), ConfigError, "hidden = (-3,): expected numbers such as (64, 64) from 1 to 65,536"),
    (lambda: pole(hidden=(0,)), ConfigError, "hidden = (0,)"),
    (lambda: train(np.zeros(3), "ppo", steps=9), EnvProblem, "expected an environment's id"),
    (lambda: Ring("5", 1), ValueError, "Ring: capacity = '5': expected a whole number of at least 1"),
    (lambda: Ring(5, 0), ValueError, "Ring: num_envs = 0: expected a whole number of at least 1"),
    (lambda: pole(lr=math.inf), ConfigError, "lr = inf: expected numbers of at most 3.4e+38"),
    (lambda: pole(gamma=math.inf), ConfigError, "gamma = inf: expected a number from 0 to 1"),
    (lambda: pole(gamma=1e39), ConfigError, "gamma = 1e+39: expected a number from 0 to 1"),
    (lambda: pole(ent_coef=1e300), ConfigError, "ent_coef = 1e+300: expected numbers of at most 3.4e+38"),
    (lambda: pole(threads=10**9), ConfigError, "threads = 1000000000: expected a whole number from 1 to 1,024"),
    (lambda: pole(num_envs=10**9), ConfigError, "num_envs = 1000000000: expected a whole number from 1 to 65,536"),
    (lambda: pole(env_settings=dict(wind=3)), EnvProblem, "was not made with env_settings wind"),
    (lambda: train("CartPole-v1", "ppo", run_id=np.zeros(2)), RunProblem, "expected one name"),
    (lambda: train("CartPole-v1", "ppo", source=3), ConfigError, "source: expected words for who says so"),
    (lambda: make("CartPole-v1", native="no"), ConfigError, "native = 'no': expected True or False"),
    (lambda: describe(3), TypeError, "describe: expected a Batch or a dictionary of arrays, got int"),
    (lambda: register("")(PPO), ConfigError, "register '': expected a name such as 'my_ppo'"),
    (lambda: register("mine")(int), ConfigError, "expected a dataclass that inherits from Algorithm, got"),
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
    with pytest.raises(FileProblem, match="not a state of Acrobot-v1 .*: .*expected .*made with 'CartPole-v1'"):
        load(file, env="Acrobot-v1")
    with pytest.raises(FileProblem, match="actors: unknown behaviour 'bob'. There are: agent"):
        load(file, actors=dict(bob=3))
    for wrong in (dict(fresh_episodes="no"), dict(device=""), dict(actors=0), dict(env=np.zeros(2))):
        with pytest.raises((FileProblem, ConfigError)):
            load(file, **wrong)


YIELDED = [
    (lambda group, loss, named: (group, named["ratio"], named), "the loss of all is of shape (8,), expected"),
    (lambda group, loss, named: (group, loss.detach(), named), "the loss of all depends on no parameter"),
    (lambda group, loss, named: (group, 3., named), "the loss of all is 3.0, expected a tensor with one number"),
    (lambda group, loss, named: (group, loss, None), "beside the loss of all stands NoneType, expected {name: tensor}"),
    (lambda group, loss, named: (group, loss, dict(named, mine=3.)), "mine': 'float'}, expected {name: tensor}"),
    (lambda group, loss, named: ([group], loss, named), "yielded a loss for ['all'], expected one of its groups: all"),
    (lambda group, loss, named: (group, named["v_loss"].mean(), named), "has no gradient for all parameters of the"),
    (lambda group, loss, named: (group, loss + 0j, named), "has no gradient for all parameters of the group: grad can"),
    (lambda group, loss, named: (group, loss), "yielded tuple, expected three: group, loss, {name: tensor}"),
    (lambda group, loss, named: loss, "yielded Tensor, expected three"),
    (lambda group, loss, named: ("actor", loss, named), "yielded a loss for 'actor', expected one of its groups: all"),
]


@pytest.mark.parametrize("change, words", YIELDED)
def test_of_an_algorithm_of_ones_own_it_is_said_what_is_wrong_with_its_loss(change, words):
    class Mine(PPO):
        name = "mine"

        def losses(self, nets, batch):
            return (change(*answer) for answer in super().losses(nets, batch))

    with pytest.raises(ValueError) as found:
        Trainer("CartPole-v1", Mine(n_steps=8, batch_size=8, hidden=(4,)), num_envs=2).run(steps=16)
    assert str(found.value).startswith("Mine.losses: ") and words in str(found.value)


@pytest.mark.parametrize("answers, words", [(None, "gave NoneType, expected to yield"), ((), "yielded nothing")])
def test_an_algorithm_of_ones_own_that_yields_no_loss_is_named(answers, words):
    class Mine(PPO):
        name = "mine"

        def losses(self, nets, batch): return answers

    with pytest.raises(ValueError, match=f"Mine.losses: {words}"):
        Trainer("CartPole-v1", Mine(n_steps=8, hidden=(4,)), num_envs=2).run(steps=16)


@pytest.mark.parametrize("shift", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_moves_nothing_though_its_gradient_is(shift):
    class Mine(PPO):
        name = "mine"

        def losses(self, nets, batch):
            for group, loss, named in super().losses(nets, batch):
                yield group, loss + shift, named

    trainer = Trainer("CartPole-v1", Mine(n_steps=8, hidden=(4,)), num_envs=2)
    before = trainer.learner.nets.state_dict()
    with pytest.raises(NotFinite, match="the loss of all is (inf|nan)"):
        trainer.run(steps=16)
    assert same(before, trainer.learner.nets.state_dict())


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "reinforce", "dqn"])
def test_a_weight_that_is_not_finite_stops_the_run(algo, value, tmp_path):
    trainer = Trainer("CartPole-v1", algo, num_envs=1, hidden=(4,), log_every=40)
    next(trainer.learner.nets.parameters()).data.view(-1)[0] = value
    trainer.save(tmp_path / "run.rlb")
    with pytest.raises(FileProblem, match="agent: nets.*: numbers that are not finite"):
        load(tmp_path / "run.rlb")
    with pytest.raises((NotFinite, ValueError), match="not finite"):
        trainer.run(steps=60)


def test_runs_files_and_trainers_are_played_alike(trainer, file, tmp_path):
    assert [play(one, tmp_path / "film.gif", max_steps=4) for one in (trainer, file, str(file))] == [4, 4, 4]


@pytest.mark.parametrize("state", [-1, 48, 1.5, math.inf, 10**30, "x"])
def test_a_state_that_there_is_not_is_no_observation(state):
    policy = Trainer("rlbench/CliffWalk-v0", "sarsa").policy
    with pytest.raises(ValueError, match="observation .*: expected (whole numbers from 0 to 47|numbers of shape)"):
        policy.act(state)


@pytest.fixture(scope="module")
def bench():
    bench = Workbench(Trainer("CartPole-v1", "dqn", hidden=(4,)).run(steps=20), driver="sync", views=["curve"])
    yield bench
    bench.close()


IN_HANDS = [
    (lambda wb: wb.save(""), ConfigError, EMPTY),
    (lambda wb: wb.load(""), ConfigError, EMPTY),
    (lambda wb: wb.step("step", math.nan), ValueError, f"step 'step': n = nan: {WHOLE} 1"),
    (lambda wb: wb.step("step", "3"), ValueError, f"step 'step': n = '3': {WHOLE} 1"),
    (lambda wb: wb.step("step", 2.5), ValueError, f"step 'step': n = 2.5: {WHOLE} 1"),
    (lambda wb: wb.speed("fast"), ValueError, "speed fast: expected events a second above 0"),
    (lambda wb: wb.speed(math.nan), ValueError, "speed nan: expected events a second above 0"),
    (lambda wb: wb.switch(collecting="no"), ValueError, "collecting = 'no': expected True or False"),
    (lambda wb: wb.call(3), ValueError, "call = 3: expected a function of trainer"),
    (lambda wb: wb.call(nothing), ValueError, "cannot be called so"),
    (lambda wb: wb.until(nothing), ValueError, "expected a function of event"),
    (lambda wb: wb.until(None), ValueError, "step: unknown unit None. There are: event, step"),
    (lambda wb: wb.step(None), ValueError, "step: unknown unit None. There are: event, step"),
    (lambda wb: wb.wait("x"), ValueError, "wait: seconds = 'x': expected a number of at least 0"),
    (lambda wb: wb.wait(math.nan), ValueError, "wait: seconds = nan: expected a number of at least 0"),
    (lambda wb: wb.wait(1e30), ValueError, "wait: seconds = 1e+30: expected a number of at least 0"),
    (lambda wb: wb.edit("x", rew=1), ValueError, "unknown name 'x'"),
    (lambda wb: wb.edit(2.5, rew=1), ValueError, "row 2.5 is not held"),
    (lambda wb: wb.pin(wb.trainer.obs["agent"][0], row=0), ValueError, "give obs=, what is seen there, or row="),
    (lambda wb: wb.rollout(wb.trainer.obs["agent"][0], row=0), ValueError, "give obs=, what is seen there, or row="),
    (lambda wb: wb.pin(row=[0]), ValueError, "row [0]: expected the number of one stored row"),
    (lambda wb: wb.value_against_return(stop=3), ValueError, "value against return: stop = 3: expected a function"),
    (lambda wb: wb.edit(0, rew=3, obs=[1, 2]), ValueError, "obs = [1, 2]: expected numbers of shape (4,)"),
    (lambda wb: wb.edit(0, rew="x"), ValueError, "rew = 'x': expected numbers of shape ()"),
    (lambda wb: wb.edit(10**30, rew=1), ValueError, f"row {10**30} is not held"),
    (lambda wb: wb.edit(torch.tensor(3.), rew=1), ValueError, "row 3.0 is not held"),
    (lambda wb: wb.rows(10**30), ValueError, f"rows {10**30}: expected numbers of rows"),
    (lambda wb: wb.learn(who=[]), ValueError, "unknown behaviour []. There are: agent"),
    (lambda wb: wb.edit(0, who=[], rew=1), ValueError, "unknown behaviour []. There are: agent"),
    (lambda wb: wb.advice({}), ConfigError, "unknown behaviour {}. There are: agent"),
    (lambda wb: wb.hide([]), ValueError, "unknown control or card []"),
    (lambda wb: wb.break_when(obs=3), ValueError, "observation of shape (), expected (4,)"),
    (lambda wb: wb.act(1.7), ValueError, "action 1.7: expected one of Discrete(2)"),
    (lambda wb: wb.act(math.inf), ValueError, "action inf: expected one of Discrete(2)"),
]


@pytest.mark.parametrize("call, kind, words", IN_HANDS)
def test_the_workbench_stays_as_it_was(bench, call, kind, words):
    before = bench.trainer.snapshot()
    with pytest.raises(kind) as found:
        call(bench)
    assert words in str(found.value)
    assert same(bench.trainer.state(), before)


def test_a_folder_is_no_name_for_a_file(trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (".", tmp_path):
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
