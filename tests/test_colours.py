"Colours and names: seen by everybody, and meant by everybody in the same way"
import re

import numpy as np
import pytest

import rlbench
from rlbench.core.words import ConfigError
from rlbench.envs.find import make
from rlbench.envs.observations import MEASURED, row_length, observation_names
from rlbench.lab.pictures.colours import CHOICES, TONES, RUN_TONES, contrast, run_tone, told_apart
from rlbench.lab.pictures.components import read_asset
from rlbench.lab.pictures.drawing import AMOUNT, DIVERGING, VIRIDIS, choice_colours
from rlbench.lab.pictures.scene import FACES, Line, ROLES, Sheet, mixed
from rlbench.lab.views.length_views import VisitsMap
from rlbench.lab.views.part_histories import PartsHistory, draw_story
from rlbench.lab.views.policy_maps import PolicyMap
from rlbench.lab.views.updates import role_of

def colours_of(image):
    return {rgb for _, rgb in image.getcolors(1 << 20)}


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


@pytest.mark.parametrize("theme", FACES)
def test_a_line_is_seen_on_its_band(theme):
    told = np.array([(0, 0., 1, 2), (9, 0., 1, 2)])
    for name in ("ent", "adv", "q", "rew", "loss"):
        sheet = Sheet()
        draw_story(sheet, (8, 8, 392, 228), name, told, (0., 3.))
        band, line = [mark for mark in sheet.marks if isinstance(mark, Line)][:2]
        ground = "#%02x%02x%02x" % tuple(mixed(ROLES[band.colour], FACES[theme]["face"], band.alpha))
        assert (band.kind, line.kind) == ("area", "line") and contrast(ROLES[line.colour], ground) > 2.2


def test_a_part_has_one_colour_in_its_histogram_and_in_its_history():
    trainer = rlbench.Trainer("CartPole-v1", "ppo", seed=0, num_envs=2, n_steps=16, batch_size=16).run(steps=64)
    view = PartsHistory(trainer, "agent")
    view.draw(trainer, moving=False)
    lines = [mark for mark in view.shown.marks if isinstance(mark, Line) and mark.kind == "line" and mark.width == 2]
    assert [line.colour for line in lines] == [role_of(name) for name in view.menu.chosen(view.stories)]
    assert "error" in {line.colour for line in lines}


def test_the_history_of_a_part_that_never_moves_has_usual_numbers_beside_it():
    trainer = rlbench.Trainer("FrozenLake-v1", "sarsa", seed=0).run(steps=20)
    view = PartsHistory(trainer, "agent")
    view.draw(trainer, moving=False)
    assert "delta 0" in view.shown.words and not [word for word in view.shown.words if "e-" in word]


def test_amounts_are_not_coloured_as_values_are():
    trainer = rlbench.Trainer("rlbench/DynaMaze-v0", "dyna", seed=0).run(steps=200)
    view = VisitsMap(trainer, "agent")
    view.draw(trainer, moving=False)
    fills = {mark.fill for mark in view.shown.marks if isinstance(getattr(mark, "fill", None), tuple)}
    tables = [set(map(tuple, table.tolist())) for table in (AMOUNT, VIRIDIS)]
    assert len(fills) > 3 and fills <= tables[0] and len(fills & tables[1]) < 2
    assert "percent" in view.shown.words


def test_actions_have_colours_of_their_own_and_their_names_beside_them():
    trainer = rlbench.Trainer("CartPole-v1", "ppo", seed=0, num_envs=2, n_steps=16, batch_size=16)
    view = PolicyMap(trainer, "agent")
    view.draw(trainer, moving=False)
    assert " ".join(view.shown.words).endswith("push left push right action")
    [image] = view.picture.planes.values()
    assert colours_of(image[0].convert("RGB")) <= set(map(tuple, choice_colours(2).tolist()))
    assert told_apart(CHOICES[:6]) > 12 and len(set(map(tuple, choice_colours(18).tolist()))) == 18


def test_a_number_that_is_done_has_a_sign():
    trainer = rlbench.Trainer("Pendulum-v1", "td3", seed=0, learning_starts=20, hidden=(16,)).run(steps=30)
    view = PolicyMap(trainer, "agent")
    view.draw(trainer, moving=False)
    low, high = view.picture.range
    assert low == -high < 0 and view.picture.table is DIVERGING and "blue" in view.said


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
