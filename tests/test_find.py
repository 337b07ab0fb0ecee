"""One door for all environments: ids, files, classes; and gymnasium knows ours as soon as the library is imported."""
import copy
import json
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rlbench import Trainer
from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem
from rlbench.envs.find import find, from_code, known, make
from rlbench.envs.native import NativeVec
from rlbench.envs.registration import ENTRIES, TEAMS, register_all

OWN = '''
import gymnasium as gym
import numpy as np

class Still(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reward=1.):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, act):
        return np.zeros(2, np.float32), self.reward, False, False, {}
'''


@pytest.mark.parametrize("wrong,near", [
    ("CartPol-v1", "CartPole-v1"),
    ("rlbench/ClifWalk-v0", "rlbench/CliffWalk-v0"),
    ("rlbench/Penies-v0", "rlbench/Pennies-v0"),
])
def test_an_unknown_id_names_the_nearest(wrong, near):
    for ask in (known, make):
        with pytest.raises(EnvProblem, match=f"no environment '{wrong}'; did you mean '{near}'"):
            ask(wrong)


def test_what_is_no_environment_is_refused():
    with pytest.raises(EnvProblem, match="got list"):
        make([1])
    with pytest.raises(EnvProblem, match="nowhere.py cannot be imported"):
        make("nowhere.py:World")


def test_classes_in_files_are_found_and_what_is_not_there_is_named(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    env = make(f"{file}:Still", 3, reward=2.)
    env.reset(0)
    assert env.step({AGENT: np.zeros(3, int)})[AGENT].rew.tolist() == [2, 2, 2]
    with pytest.raises(EnvProblem, match="has no Stil; environments there: Still"):
        make(f"{file}:Stil")
    assert from_code("CartPole-v1") is None
    assert from_code("rlbench.envs.walks:Walk").__name__ == "Walk"


MODERN = """from __future__ import annotations
from dataclasses import dataclass
from gymnasium.envs.classic_control import CartPoleEnv
from beside_it import LENGTH

@dataclass
class Rules:
    length: float = LENGTH

class Pole(CartPoleEnv):
    def __init__(self, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.length = Rules().length
"""


def test_files_are_imported_as_python_runs_them(tmp_path):
    (tmp_path / "json.py").write_text(MODERN)             # the name of another module, which stays that
    (tmp_path / "beside_it.py").write_text("LENGTH = .75")
    path = list(sys.path)
    trainer = Trainer(f"{tmp_path}/json.py:Pole", "ppo", n_steps=16, num_envs=1).run(steps=20)
    assert trainer.env.single.unwrapped.length == .75 and sys.path == path and json.loads("1") == 1
    trainer.save(tmp_path / "run.rlb")
    again = "from rlbench import load; import sys; print(load(*sys.argv[1:]).run(steps=40).steps)"
    told = subprocess.run([sys.executable, "-c", again, tmp_path / "run.rlb", f"{tmp_path}/json.py:Pole"],
                          capture_output=True, text=True)
    assert told.stdout.strip() == "60", told.stderr
    copy.deepcopy(trainer.env.single)


def test_modules_of_the_present_folder_are_found_from_wherever_one_starts(tmp_path, monkeypatch):
    (tmp_path / "own_world.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    assert make("own_world:Still").id == "own_world:Still"


@pytest.mark.parametrize("place", ["..", ".x", "a..b", "a/b", "-"])
def test_what_is_no_name_of_a_module_is_refused(place):
    with pytest.raises(EnvProblem, match="is no module; expected file.py:Name or package.module:Name"):
        from_code(f"{place}:X")


@pytest.mark.parametrize("text, told", [
    ("import math\nclass Odd(:", "odd.py, line 2: invalid syntax"),
    ("from math import nowhere", "cannot import name 'nowhere'"),
    ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
])
def test_a_file_that_cannot_be_imported_says_why_in_one_line(tmp_path, text, told):
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(EnvProblem) as problem:
        from_code(f"{tmp_path}/odd.py:X")
    assert told in str(problem.value) and "\n" not in str(problem.value)


@pytest.mark.parametrize("modes, mode", [("['rgb_array']", "rgb_array"), ("['human']", None), ("None", None)])
def test_own_environments_are_drawn_where_they_can_be(tmp_path, modes, mode):
    text = OWN.replace("reward=1.)", "reward=1., render_mode=None)").replace("self.reward = reward",
                                                                            "self.render_mode = render_mode")
    (tmp_path / "own.py").write_text(f"{text}\n    metadata = {{'render_modes': {modes}}}\n")
    assert make(f"{tmp_path}/own.py:Still").single.render_mode == mode
    assert make(f"{tmp_path}/own.py:Still", render_mode=None).single.render_mode is None
    (tmp_path / "other.py").write_text(OWN + f"\n    metadata = {{'render_modes': {modes}}}\n")
    assert make(f"{tmp_path}/other.py:Still").single.render_mode is None           # its constructor takes none


@pytest.mark.parametrize("checked", [True, False])
def test_who_is_no_environment_of_gymnasium_is_told_what_to_be(checked):
    class Duck:
        observation_space = gym.spaces.Box(-1, 1, (3,))
        action_space = gym.spaces.Discrete(2)
        reset = step = close = lambda *_, **__: None

    with pytest.raises(EnvProblem, match=r"made Duck, expected an environment of gymnasium: class Duck\(gymnasium.Env"):
        Trainer(Duck, "ppo", check_env=checked)


def test_the_vector_form_is_taken_where_there_is_one_and_wanted():
    assert isinstance(make("CartPole-v1", 2), NativeVec)
    assert isinstance(make("CartPole-v1", 2, native=False), EnvList)
    assert isinstance(make("CartPole-v1", 1), EnvList)
    vector = make("CartPole-v1", 2)
    assert find(vector, {}).vector(7, True) is vector


def test_every_line_of_the_table_makes_an_environment():
    for name in ENTRIES:
        env = make(f"rlbench/{name}-v0", 2)
        assert env.num_envs == 2 and list(env.behaviours) == [AGENT]
        env.close()
    for id in TEAMS:
        assert len(make(id, 2).behaviours) == 2


def test_registering_twice_changes_nothing():
    register_all()
    before = dict(gym.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_all()
    assert dict(gym.registry) == before


FIRST = [
    "import rlbench; import gymnasium",
    "import gymnasium; import rlbench",
    "import rlbench.envs.registration, gymnasium",
    "import rlbench.envs.find, gymnasium",
    "import rlbench.core.spaces, gymnasium",
]
TELL = """
import os
import sys
import torch                    # what takes longest is imported once, and knows neither
for first in sys.argv[1:]:
    if not os.fork():
        exec(first)
        print(gymnasium.make("rlbench/CliffWalk-v0").unwrapped.shape)
        print(sum(id.startswith("rlbench/") for id in gymnasium.registry))
        break
    assert os.wait()[1] == 0, first
"""


def test_gymnasium_knows_them_whatever_is_imported_first():
    done = subprocess.run([sys.executable, "-c", TELL, *FIRST], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["(4,", "12)", str(len(ENTRIES))] * len(FIRST)


def test_the_library_alone_imports_neither_torch_nor_gymnasium():
    told = "import sys, rlbench; print('torch' in sys.modules, 'gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_environment_may_be_registered_by_its_class(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Own-v0", entry_point=CartPoleEnv, max_episode_steps=7)
    vec = make("Own-v0", 2)
    vec.reset(seed=0)
    assert vec.single.spec.max_episode_steps == 7


def test_a_game_of_minatar_names_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    with pytest.raises(EnvProblem, match=r"MinAtar/Breakout-v1 needs a package .* pip install 'rlbench\[minatar\]'"):
        make("MinAtar/Breakout-v1")


def test_a_game_of_minatar_goes_on_from_where_it_was_told():
    here = make("MinAtar/Breakout-v1", 2)
    there = make("MinAtar/Breakout-v1", 2)
    for vec, seed in ((here, 0), (there, 1)):
        vec.reset(seed)
        for _ in range(30 + seed):
            vec.step(dict(agent=np.array([1, 2])))
    there.restore(here.state())
    for _ in range(40):
        assert same(*(vec.step(dict(agent=np.array([2, 0])))["agent"] for vec in (here, there)))
