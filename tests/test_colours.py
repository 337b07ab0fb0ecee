"Colours and names: seen by everybody, and meant by everybody in the same way"
import re

import pytest

import rlbench
from rlbench.core.words import ConfigError
from rlbench.envs.find import make
from rlbench.envs.observations import MEASURED, row_length, observation_names
from rlbench.lab.pictures.colours import TONES, RUN_TONES, contrast, run_tone, told_apart
from rlbench.lab.pictures.components import read_asset
from rlbench.lab.pictures.scene import FACES

MARKS = [*TONES.values(), *RUN_TONES]


@pytest.mark.parametrize("theme", FACES)
def test_marks_and_words_are_seen(theme):
    face = FACES[theme]["face"]
    assert min(contrast(tone, face) for tone in MARKS) >= 3
    assert contrast(FACES[theme]["text"], face) >= 4.5


def test_nobody_confuses_what_stands_side_by_side():
    assert told_apart(TONES.values()) > 20
    assert told_apart(RUN_TONES) > 20
    assert len({run_tone(place) for place in range(6)}) == 6


@pytest.mark.parametrize("name, meaning", [("accent", "policy"), ("mark", "here")])
def test_the_page_means_the_same_by_its_colours(name, meaning):
    assert re.search(rf"--rl-{name}: (#\w+)", read_asset("lab.css"))[1] == TONES[meaning]


CLASSICS = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]


@pytest.mark.parametrize("id", CLASSICS)
def test_the_manuals_words_fit_the_classics(id):
    env = make(id)
    space = env.behaviours["agent"].observation_space
    names = observation_names(env, space)
    assert len(names) == row_length(space) == len(set(names))
    assert names[0][0] in "".join(MEASURED[type(env.single.unwrapped).__name__])
    env.close()


def named(trainer):
    return observation_names(trainer.env, trainer.env.behaviours["agent"].observation_space)


OURS = "place (m), speed (m/s), lean (rad), turning (rad/s)"


def test_names_of_ones_own_go_wherever_the_run_goes(tmp_path):
    trainer = rlbench.Trainer("CartPole-v1", "ppo", seed=0, num_envs=2, n_steps=8, batch_size=8, observation_names=OURS)
    assert named(trainer)[2] == ("lean", "rad")
    assert named(trainer.fork())[2] == ("lean", "rad")
    trainer.save(tmp_path / "run.rlb")
    assert named(rlbench.load(tmp_path / "run.rlb"))[2] == ("lean", "rad")
    before = trainer.snapshot()
    trainer.set(observation_names="a, b, c, d (m)")
    assert named(trainer)[3] == ("d", "m")
    trainer.restore(before)
    assert named(trainer)[2] == ("lean", "rad")
    assert OURS in trainer.config.explain("observation_names")._repr_html_()


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"2 names \(a, b\); expected as many .* numbers in a row: 4"):
        rlbench.Trainer("CartPole-v1", "ppo", observation_names="a, b")
    trainer = rlbench.Trainer("CartPole-v1", "ppo", seed=0)
    with pytest.raises(ConfigError, match="expected as many"):
        trainer.set(observation_names="a, b")
    assert named(trainer)[0] == ("cart position", "m")


def test_what_does_not_stand_in_a_row_has_no_names():
    env = make("rlbench/CliffWalk-v0")
    assert observation_names(env, env.behaviours["agent"].observation_space) == [("state", "")]
    env = make("rlbench/Forbidden-v0")
    assert observation_names(env, env.behaviours["agent"].observation_space) == []
