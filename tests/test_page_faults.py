"Only what has something to show, and what can be done, is on the page; words and numbers keep out of each other's way"
import numpy as np
import pytest

from rlbench.lab.page.world_panel import DRAG
from rlbench.lab.pictures.components import is_revealed
from rlbench.lab.pictures.scene import Sheet, Still, Words, width_of
from rlbench.lab.views.chain_views import ChainPicture
from rlbench.lab.views.memory_views import CarryPicture
from tests.test_layout import seen
from tests.test_workbench import bench, view     # noqa: F401


@pytest.mark.parametrize("look", ["explore", "teach", "debug"])
def test_a_bandit_has_its_regret_in_place_of_a_learning_curve(bench, look):             # noqa: F811
    wb = bench("rlbench/Bandit-v0", "bandit", seed=0, look=look)
    wb.step("step", 50)
    assert "curve" not in seen(wb) and "bandit" in seen(wb)


def test_teaching_shows_the_values_of_a_chain(bench):                                   # noqa: F811
    assert "chain" in seen(bench("rlbench/Walk-v0", "td", seed=0, look="teach"))


def test_one_state_of_an_episode_is_seen(bench):                                        # noqa: F811
    wb = bench("MinAtar/Breakout-v1", "dqn", seed=0, learning_starts=50)
    trace = view(wb, "values")
    for _ in range(2):
        cross = trace.here.get_xdata(), trace.here.get_ydata()
        assert np.isfinite(cross).all() and cross[0] == [0]
        wb.step("episode")


@pytest.mark.parametrize("env, algo, settings, there", [
    ("FrozenLake-v1", "value_iteration", {}, False),
    ("FrozenLake-v1", "policy_iteration", {}, False),
    ("CartPole-v1", "r2d2", dict(learning_starts=100, memory_size=8), True),
    ("FrozenLake-v1", "qlearning", {}, True),
    ("rlbench/Bandit-v0", "bandit", {}, True),
])
def test_targets_are_there_where_they_have_terms(bench, env, algo, settings, there):    # noqa: F811
    wb = bench(env, algo, seed=0, **settings)
    assert "targets" not in seen(wb)
    wb.step("update")
    assert ("targets" in seen(wb)) is there


@pytest.mark.parametrize("env, algo, views, there", [
    ("rlbench/Bandit-v0", "bandit", None, False),
    ("rlbench/Walk-v0", "td", None, False),
    ("rlbench/CliffWalk-v0", "qlearning", ["curve"], False),
    ("rlbench/CliffWalk-v0", "qlearning", None, True),
    ("FrozenLake-v1", "ppo", None, True),
])
def test_dragging_is_offered_where_there_is_a_grid(bench, env, algo, views, there):     # noqa: F811
    world = bench(env, algo, seed=0, views=views).page.world
    assert any(DRAG in part.value for part in world.room.children if hasattr(part, "value")) is there
    assert is_revealed(world.widget) is (there or "Cliff" in env)     # its parameters are there for everybody


# words on pictures

def words_on(sheet):
    "The Words on a sheet"
    marks = []
    for mark in sheet.marks:
        marks += mark.marks if isinstance(mark, Still) else [mark]
    return [one for one in marks if isinstance(one, Words)]


def boxes_of_words(sheet):
    "(words, (left, top, right, bottom)) of all that is written, nearly as large as it is drawn"
    found = []
    for one in words_on(sheet):
        wide = width_of(one.words, one.size)
        left = one.x - wide * dict(l=0, m=.5, r=1)[one.anchor[0]]
        top = one.y - one.size * dict(a=-.1, m=.4, b=.9)[one.anchor[1]]
        found.append((one.words, (left, top, left + wide, top + .8 * one.size)))
    return found


def overlaps(sheet):
    "Pairs of words that stand on each other"
    found = boxes_of_words(sheet)
    pairs = [(one, two) for i, one in enumerate(found) for two in found[:i]]
    return [(a, b) for (a, p), (b, q) in pairs if p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]]


@pytest.mark.parametrize("high", [1., 40., 13_000.])
def test_words_below_each_other_do_not_overlap(high):
    states = np.arange(1, 20)
    chain = ChainPicture("visits").tell(states, -high * states, None, (3, -3 * high), 300 * states)
    carried = CarryPicture().tell(high * np.sin(np.arange(1200.)).reshape(120, 10), np.arange(120) % 50 == 0)
    assert (overlaps(chain), overlaps(carried)) == ([], [])
    assert "visits" in chain.words and {"change", "carried"} <= set(carried.words)


def test_what_is_carried_has_a_scale():
    words = CarryPicture().tell(3 * np.ones((40, 4)), np.zeros(40, bool)).words
    scale = [float(word) for word in words if "." in word and word.lstrip("-").replace(".", "").isdigit()]
    assert min(scale) <= -3 and max(scale) >= 3


def test_a_refusal_has_no_empty_box_below(bench):                                       # noqa: F811
    wb = bench("rlbench/CliffWalk-v0", "qlearning", seed=0)
    wb.page.world.place(40)
    said = wb.page.complaint.widget.value
    assert "nobody can stand in state 40" in said and "<pre>" not in said


def smallest(sheet):
    "Pixels of the smallest words on a sheet"
    return min((one.size for one in words_on(sheet)), default=10)


@pytest.mark.parametrize("env, algo, settings", [
    ("rlbench/CliffWalk-v0", "qlearning", {}),
    ("Pendulum-v1", "sac", dict(learning_starts=100)),
    ("CartPole-v1", "recurrent_ppo", dict(n_steps=64, memory_size=16)),
])
def test_words_in_pictures_can_be_read(bench, env, algo, settings):                     # noqa: F811
    wb = bench(env, algo, seed=0, **settings)
    wb.step("step", 150)
    sheets = {card.view.name: card.view.shown for card in wb.page.on_page() if isinstance(card.view.shown, Sheet)}
    sizes = {name: smallest(sheet) for name, sheet in sheets.items()}
    assert len(sizes) > 4 and min(sizes.values()) >= 9, sizes       # of pictures that are often shown a fifth smaller
