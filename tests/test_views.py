"Every view without a page: what it shows of a run, and that looking changes nothing"
import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench.algos.algorithm import algorithms
from rlbench.algos.questions import backup_diagram, eligibility, learned_model, most_urgent, return_distribution
from rlbench.core.spaces import SpaceProblem
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.actions import CALLED, action_names
from rlbench.envs.find import make
from rlbench.envs.grids import GridWorld
from rlbench.lab.views.backups import BackupView, ModelView, QueueView, TraceView, has_answer
from rlbench.lab.pictures.components import as_page, is_revealed
from rlbench.lab.pictures.drawing import short
from rlbench.training.by_hand import action_called
from rlbench.lab.views.inspect import BufferView, told_transition
from rlbench.lab.views.kept_views import MomentsView, UnitView, WeightTracesView
from rlbench.lab.views.return_views import ReturnsView
from rlbench.lab.pictures.scene import Words, width_of
from rlbench.lab.views.updates import GradientView, TargetsView, UpdateView, target_terms
from rlbench.lab.views.value_views import GridValues, ValueSurface, ValueTrace, value_sensitivity, value_slice
from rlbench.lab.views.views import ActionBars, EnvFrame, LearningCurve, state_values
from rlbench.training.trainer import Trainer
from tests.cases import Case
from tests.conftest import small

ALWAYS = {"curve", "update", "targets", "buffer"}
VIEWS = (LearningCurve, EnvFrame, GridValues, ValueSurface, ValueTrace, ActionBars, BackupView, TraceView, ModelView,
         QueueView, ReturnsView, UpdateView, TargetsView, GradientView, BufferView, MomentsView, UnitView,
         WeightTracesView)
SMALL = dict(seed=0, num_envs=2, n_steps=16, batch_size=16, n_epochs=2)
QUESTIONS = dict(backup=backup_diagram, traces=eligibility, model=learned_model, queue=most_urgent,
                 returns=return_distribution)


def views_of(trainer, who="agent"):
    "{name: view} of all that fit, told of every event"
    views = {kind.name: kind(trainer, who) for kind in VIEWS if kind.fits(trainer, who)}
    trainer.watchers += [view.note for view in views.values() if view.note]
    return views


def draw(trainer, views):
    "Draw them all"
    for view in views.values():
        view.draw(trainer, moving=False)


def pictures(views):
    "{name: what is on the screen} of the views that are pictures"
    seen = {name: getattr(view.image, "html", None) or getattr(view.image, "value", "") for name, view in views.items()}
    return {name: picture for name, picture in seen.items() if picture}


@pytest.mark.parametrize("env, algo, expected", [
    ("CartPole-v1", "ppo", {"frame", "values", "actions", "gradients", "unit"}),
    ("CartPole-v1", "dqn", {"frame", "values", "actions", "gradients"}),
    ("Pendulum-v1", "ppo", {"frame", "values", "gradients", "unit"}),
    ("CartPole-v1", "stream_q", {"frame", "values", "actions", "moments", "unit", "weight_traces"}),
    ("Pendulum-v1", "stream_ac", {"frame", "values", "moments", "unit", "weight_traces"}),
    ("FrozenLake-v1", "qlearning", {"frame", "values", "actions"}),
    ("Taxi-v4", "qlearning", {"frame", "values", "actions"}),
    ("rlbench/CliffWalk-v0", "dqn", {"frame", "values", "actions", "gradients"}),
    ("rlbench/FourRooms-v0", "ppo", {"frame", "values", "actions", "gradients", "unit"}),
])
def test_views_follow_from_what_there_is(env, algo, expected):
    settings = dict(dqn=dict(learning_starts=50), ppo=dict(n_steps=16, num_envs=2))
    trainer = Trainer(env, algo, seed=0, **settings.get(algo, {}))
    views = views_of(trainer)
    answered = {name for name, question in QUESTIONS.items() if has_answer(question, trainer.learner.algo)}
    assert set(views) - answered == expected | ALWAYS
    trainer.until("update", 3)
    draw(trainer, views)
    assert all(view.text() for view in views.values())


def test_pictures_change_with_a_step():
    trainer = Trainer("CartPole-v1", "ppo", lr=.05, **SMALL)    # large enough for every bar to move by a pixel
    views = views_of(trainer)
    trainer.until("iteration", 2)
    draw(trainer, views)
    before = pictures(views)
    trainer.until("iteration")
    assert pictures(views) == before                                         # nothing is drawn that nobody asked for
    draw(trainer, views)
    after = pictures(views)
    changed = {name for name in before if after[name] != before[name]}
    assert changed >= {"curve", "frame", "values", "actions", "update", "gradients"}


def test_looking_changes_nothing():
    watched, alone = (Trainer("CartPole-v1", "ppo", **SMALL) for _ in range(2))
    views = views_of(watched)
    table = views["buffer"].table
    surface = views["values"]
    for i in range(12):
        for one in (watched, alone):
            one.until("event", 9)
        draw(watched, views)
        as_page(table, order=("random", "TD error", "obs", "newest", "last", "row")[i % 6], draws=i)
        if table.ids: as_page(table, selected=table.ids[0], opened=i + 1)
        as_page(views["targets"].table, order=("drawn", "error", "paid")[i % 3])
        surface.picks[1].value = i % 4 if i % 4 != surface.picks[0].value else 3
        for view in views.values():
            view.dark(i % 2 == 0)
            view.tile()
    assert same(alone.state(), watched.state())


def test_a_row_opens_its_transition():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=50)
    view = BufferView(trainer, "agent")
    assert (view.table.total, view.table.rows) == (0, [])
    trainer.run(steps=60)
    view.draw(trainer, moving=False)
    table = view.table
    memory = trainer.learner.memory
    assert table.total == 60 and table.ids[0] == 59
    as_page(table, start=8)
    assert table.ids[0] == 51
    as_page(table, order="obs", down=True, start=0)
    assert table.ids[0] == memory.rows.obs[:60, 0, 0].argmax()
    row = table.ids[2]
    as_page(table, selected=row, opened=1)
    words = view.transition.words.value
    assert f"row</th><td>{row}, of environment 0" in words and "TD error" in words
    assert f"{memory.rows.obs[row, 0, 0]:.3g}" in words
    assert all(frame.html.startswith("<svg") for frame in view.transition.frames)
    fresh = trainer.fresh()
    other = BufferView(fresh, "agent")
    assert other.table.total == 0
    with pytest.raises(ValueError, match="row 7 is not held"):
        other.open(fresh, 7)


def test_the_theme_changes_every_picture():
    "In the file; on the page the style sheet does, and the picture is the same"
    trainer = Trainer("CartPole-v1", "ppo", **SMALL)
    views = views_of(trainer)
    trainer.until("update")
    draw(trainer, views)
    before = pictures(views)
    for name in ("curve", "values", "actions", "update", "gradients"):
        light = views[name].tile()
        views[name].dark(True)
        assert min(light.getpixel((0, 0))) > 200 and max(views[name].tile().getpixel((0, 0))) < 60, name
    draw(trainer, views)
    assert pictures(views) == before


# every algorithm, and what it says of itself

PLACES = ["CartPole-v1", "FrozenLake-v1", "rlbench/Bandit-v0", "MountainCar-v0", "Pendulum-v1"]
NESTED = [
    ("ppo", "rlbench/Forbidden-v0"),
    ("ppo", "rlbench/SideAndForce-v0"),
    ("dqn", "rlbench/Forbidden-v0"),
    ("recurrent_ppo", "rlbench/RepeatAfterMe-v0"),
    ("qlearning", "Blackjack-v1"),
    ("dyna", "rlbench/CliffWalk-v0"),
    ("policy_iteration", "rlbench/Gambler-v0"),
]


def accepted(algo):
    "(algorithm, the first environment whose spaces it accepts); None where it needs a memory from outside"
    for env in PLACES:
        try: Trainer(env, algo, **small(algorithms()[algo]))
        except SpaceProblem: continue
        except ConfigError: return None
        return algo, env


CASES = [case for case in map(accepted, algorithms()) if case] + [case for case in NESTED if case[0] in algorithms()]


@pytest.mark.parametrize("algo, env", CASES)
def test_every_view_that_fits_draws_itself(algo, env):
    trainer = Trainer(env, algo, seed=0, num_envs=1, **small(algorithms()[algo]))
    views = views_of(trainer)
    for _ in range(60):
        trainer.advance()
    before = trainer.snapshot()
    for name, view in views.items():
        view.draw(trainer, moving=False)
        assert isinstance(view.text(), str), name
        tile = view.tile()
        assert tile is None or tile.width >= 100, name
    assert same(trainer.state(), before)                                    # looking changes nothing
    spec = trainer.env.behaviours["agent"]
    counted = isinstance(spec.observation_space, gym.spaces.Discrete)
    for name, question in QUESTIONS.items():
        answered = has_answer(question, trainer.learner.algo)
        if answered and counted:
            assert name in views
        if not answered:
            assert name not in views


def test_a_backup_diagram_shows_the_numbers_of_the_last_update():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0)
    if not BackupView.fits(trainer, "agent"):
        pytest.skip("nobody drew the diagram of Q-learning")
    shown = BackupView(trainer, "agent")
    trainer.watchers.append(shown.note)
    trainer.until("update")
    shown.draw(trainer, moving=False)
    parts = trainer.learner.last.parts
    numbers = [f"{name} {short(float(parts[name][0]))}" for name in ("q", "target", "delta")]
    name = trainer.env.single.unwrapped.actions[int(trainer.learner.last.batch.act[0])]
    now = trainer.learner.nets.q.values[36].tolist()[int(trainer.learner.last.batch.act[0])]
    assert shown.text() == f"s 36, {name}: {', '.join(numbers)}, now {short(now)}" and numbers[0] == "q 1.00"
    words = "".join(shown.shown.words)
    assert f"s 36, {name}" in words and short(now) in words and "r -" in words
    assert len(shown.tile().getcolors(100_000)) > 3


@pytest.mark.parametrize("name", ["sarsa", "qlearning", "tree_backup", "dyna", "monte_carlo"])
def test_where_values_of_actions_are_learned_an_action_is_the_root(name):
    trainer = Trainer("rlbench/CliffWalk-v0", name, seed=0)
    trainer.until("iteration")
    learner = trainer.learner
    tree = backup_diagram(learner.algo, learner.nets, learner.last.batch)
    assert tree.kind == "action" and tree.text.startswith("s ") and tree.value is not None
    assert ("max: a " in str(tree)) == (name in ("qlearning", "dyna"))


DRAWN = [(name, "rlbench/Bandit-v0" if "bandit" in name else "rlbench/CliffWalk-v0") for name, kind in
         algorithms().items() if has_answer(backup_diagram, object.__new__(kind))]


def worth_of(tree, gamma):
    "What a diagram of one step makes of the values that it shows"
    [[label, after]] = tree.edges
    values = [child.value for _, child in after.edges]
    marked = [child.value for mark, child in after.edges if mark == "max"]
    follows = np.mean(marked or values or after.value or 0.)
    return float(label.split(",")[0].removeprefix("r ")) + gamma * follows


@pytest.mark.parametrize("algo, env", DRAWN)
def test_a_diagram_shows_the_values_that_the_target_was_made_of(algo, env):
    trainer = Trainer(env, algo, seed=0, **(dict() if "bandit" in algo else dict(gamma=.9)))
    view = BackupView(trainer, "agent")
    trainer.watchers.append(view.note)
    learner = trainer.learner
    moved = 0
    for _ in range(12):
        trainer.until("update")
        view.draw(trainer, moving=False)
        parts = learner.last.parts
        before = view.earlier.tree(learner)
        now = backup_diagram(learner.algo, learner.nets, learner.last.batch)
        was = float(parts.get("q", parts.get("val"))[0])
        assert before.value == pytest.approx(was) and f"{short(was)} →" in view.drawn.text
        assert view.drawn.value == now.value and view.drawn.edges == view.named(trainer, before).edges
        moved += before.edges != now.edges
        if algo in ("qlearning", "double_q", "sarsa", "td", "dyna"):
            assert worth_of(before, .9) == pytest.approx(float(parts.target[0]), rel=1e-3)
    assert moved or algo not in ("qlearning", "sarsa", "value_iteration")
    assert "values of now" not in view.text()


def test_where_the_values_before_are_not_known_a_diagram_says_now():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0).run(steps=20)
    view = BackupView(trainer, "agent")
    trainer.watchers.append(view.note)
    view.draw(trainer, moving=False)
    assert view.text().endswith("; below it values of now")
    place = trainer.snapshot()
    trainer.until("update")
    view.draw(trainer, moving=False)
    assert "of now" not in view.text()
    trainer.restore(place)                          # to another update
    view.draw(trainer, moving=False)
    assert view.text().endswith("; below it values of now")
    trainer.until("update", 2)
    view.draw(trainer, moving=False)
    assert "of now" not in view.text()


def test_actions_have_their_names_in_every_table():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0).run(steps=9)
    names = trainer.env.single.unwrapped.actions
    for view in (BufferView(trainer, "agent"), TargetsView(trainer, "agent")):
        view.draw(trainer, moving=False)
        at = view.table.columns.index("act")
        for row in view.table.rows:
            act, name = row[at].split()
            assert names[int(act)] == name.strip("()")
    bars = ActionBars(trainer, "agent")
    bars.draw(trainer, moving=False)
    assert bars.text().removeprefix("greedy action: ") in names


FOLDERS = tuple(f"gymnasium.envs.{folder}" for folder in ("classic_control", "box2d", "toy_text"))
WORLDS = [(id, spec.entry_point.split(":")[1]) for id, spec in gym.registry.items()
          if str(spec.entry_point).startswith(FOLDERS) and id != "CartPole-v0"]


@pytest.mark.parametrize("id, name", WORLDS)
def test_every_action_of_gymnasiums_worlds_has_a_name(id, name):
    how = dict(continuous=False) if name == "CarRacing" else {}
    env = make(id, **how)
    try:
        space = env.behaviours["agent"].action_space
        if not isinstance(space, gym.spaces.Discrete):
            return
        names = action_names(env, space)
        assert len(set(names)) == space.n == len(CALLED[name])
        assert not any(word.isdigit() for word in names)
    finally:
        env.close()


def test_names_of_actions_are_shown_wherever_actions_are():
    trainer = Trainer("FrozenLake-v1", "qlearning", seed=0).run(steps=30)
    names = ["left", "down", "right", "up"]
    views = views_of(trainer)
    draw(trainer, views)
    assert views["actions"].text().removeprefix("greedy action: ") in names
    assert views["backup"].text().split(", ")[1].split(":")[0] in names
    assert all(f"{name} " in views["values"].text() for name in names)
    for view in (views["buffer"], views["targets"]):
        at = view.table.columns.index("act")
        assert all(row[at] == f"{row[at][0]} ({names[int(row[at][0])]})" for row in view.table.rows)
    told = dict(told_transition(trainer, "agent", 0))
    assert told["act"][3:-1] in names
    assert action_called("up", trainer.env, trainer.env.behaviours["agent"].action_space) == 3


class Later(GridWorld):
    "States are numbered from one"

    def __init__(self):
        super().__init__("S..G", step=-1.)
        self.observation_space = gym.spaces.Discrete(4, start=1)

    def reset(self, **more):
        obs, info = super().reset(**more)
        return obs + 1, info

    def step(self, act):
        obs, *rest = super().step(act)
        return obs + 1, *rest


@pytest.mark.parametrize("algo, how", [("sarsa_lambda", dict(trace="replacing")), ("dyna", {}), ("qlearning", {})])
def test_states_numbered_from_one_have_no_grid(algo, how):
    "A grid would show the values of their neighbours"
    if algo not in algorithms():
        pytest.skip(f"{algo} is not there")
    trainer = Trainer(Later, algo, **how)
    views = views_of(trainer)
    trainer.until("step", 12)
    draw(trainer, views)
    shown = {type(view).__name__ for view in views.values()}
    assert {"GridValues", "TraceView", "ModelView"}.isdisjoint(shown) and "ValueTrace" in shown and trainer.steps == 12


# several behaviours

def test_who_only_acts_has_views_but_no_memory_and_no_updates():
    chase = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, learning_starts=50).run(steps=200)
    again = Trainer("rlbench/Chase-v0", dict(chaser=chase.actors["chaser"], runner="ppo"), seed=1)
    before = again.snapshot()
    views = {who: views_of(again, who) for who in again.actors}
    assert set(views["chaser"]) == {"curve", "values", "actions"}
    assert set(views["runner"]) >= {"curve", "values", "update", "targets", "gradients", "buffer"}
    for each in views.values():
        draw(again, each)
    assert same(again.state(), before)


def test_curves_keep_the_returns_of_several_behaviours_apart():
    trainer = Trainer("rlbench/Pennies-v0", "ppo", seed=0, n_steps=16, log_every=50)
    curves = {who: LearningCurve(trainer, who) for who in trainer.actors}
    trainer.watchers += [curve.note for curve in curves.values()]
    trainer.run(steps=200)
    even, odd = (np.array(curves[who].returns.points) for who in ("even", "odd"))
    assert len(even) and np.array_equal(even[:, :2], odd[:, :2] * [1, -1])   # what one wins the other loses
    later = np.array(LearningCurve(trainer, "even").returns.points)                  # a run that was loaded has a past
    assert np.array_equal(later[-100:, :2], even[-100:, :2])    # one by one, means before
    means = trainer.metrics.column("even/mean_return")
    assert set(later[:-100, 1]) <= set(means) and later[-1, 2] == pytest.approx(even[-1, 2])


@pytest.mark.parametrize("algo, env", [("dqn", "CartPole-v1"), ("ppo", "CartPole-v1"), ("qlearning", "FrozenLake-v1"),
                                       ("sac", "Pendulum-v1")])
def test_terms_add_up_to_their_targets(algo, env):
    trainer = Trainer(env, algo, seed=0, gamma=.9, **small(algorithms()[algo]))
    trainer.until("update", 5)
    terms = target_terms(trainer.learner.last, .9)
    assert np.allclose(terms.paid + np.nan_to_num(terms.discount * terms.follows), terms.target, atol=1e-6)
    assert np.allclose(terms.target - terms.estimate, terms.error)


@pytest.mark.parametrize("n_step, gamma", [(1, .9), (3, .9), (2, 0.)])
def test_targets_of_r2d2_have_terms_in_the_view(n_step, gamma):
    how = dict(n_step=n_step, gamma=gamma, sequence_length=6, burn_in=3, learning_starts=100, batch_size=4)
    trainer = Trainer("CartPole-v1", "r2d2", seed=0, hidden=(8,), **how)
    trainer.until("update", 3)
    assert TargetsView.fits(trainer, "agent")
    view = TargetsView(trainer, "agent")
    assert view.ready(trainer)
    view.draw(trainer, moving=False)
    parts = trainer.learner.last.parts
    assert np.array_equal(view.terms.target, parts.target.numpy()) and view.table.total == len(parts.target)
    whole = view.terms.paid + np.nan_to_num(view.terms.discount * view.terms.follows)
    assert np.allclose(np.sqrt(whole + 1) - 1 + .001 * whole, view.terms.target, atol=1e-4)
    assert set(np.round(view.terms.discount, 4)) <= {0., *np.round(gamma**np.arange(1, n_step + 1), 4)}
    assert view.said.startswith("h(") and "h(x) = sign(x)" in view.said and view.tile() is not None


# nothing is cut off

@pytest.mark.parametrize("ret", [-1073.59, -117.053, 21., -1e6, 123456.7])
def test_the_name_of_an_axis_stays_on_the_picture_beside_numbers_of_any_length(ret):
    trainer = Trainer("CartPole-v1", "ppo", **SMALL)
    curve = LearningCurve(trainer, "agent")
    curve.returns.points = [(200, ret, ret)]
    curve.draw(trainer, moving=False)
    words = [mark for mark in curve.ax.background().marks if isinstance(mark, Words)]
    [name] = [mark for mark in words if mark.words == "return of the episode"]
    assert name.anchor == "la" and name.x >= 1
    numbers = [mark for mark in words if mark.anchor == "rm"]
    assert len(numbers) > 1 and all(mark.x - width_of(mark.words, mark.size) >= 0 for mark in numbers)
    assert all(mark.x <= curve.ax.box[0] for mark in numbers)       # and not over the lines


@pytest.mark.parametrize("env, algo, names", [
    ("rlbench/Gambler-v0", "value_iteration", 50), ("rlbench/Gambler-v0", "qlearning", 50),
    ("FrozenLake-v1", "qlearning", 4), ("CartPole-v1", "ppo", 2), ("Acrobot-v1", "dqn", 3)])
def test_names_of_actions_do_not_stand_on_each_other(env, algo, names):
    trainer = Trainer(env, algo, seed=0)
    bars = ActionBars(trainer, "agent")
    bars.draw(trainer, moving=False)
    below = {}
    for mark in bars.shown.marks:
        if isinstance(mark, Words) and mark.anchor == "mb" and mark.y > 200:
            below.setdefault(mark.y, []).append(mark)
    assert below
    for line in below.values():
        assert names <= 4 or names / 4 < len(line) < names
        for one, other in zip(line, line[1:]):
            apart = (width_of(one.words, one.size) + width_of(other.words, other.size)) / 2
            assert other.x - one.x >= apart - 1, (one.words, other.words)


@pytest.mark.parametrize("env, algo, more", [
    ("CartPole-v1", "recurrent_ppo", dict(num_envs=4, n_steps=32)), ("CartPole-v1", "ppo", SMALL),
    ("CartPole-v1", "r2d2", dict(learning_starts=50)), ("CartPole-v1", "dqn", dict(learning_starts=50))])
def test_the_rows_of_an_update_are_those_that_are_learned_from(env, algo, more):
    trainer = Trainer(env, algo, **dict(seed=0) | more).run(updates=1)
    batch = trainer.learner.last.batch
    counts = np.ones(np.shape(batch.act)[:2 if "valid" in batch else 1], bool)
    if "valid" in batch: counts &= batch.valid.numpy(force=True)
    if "burn" in batch: counts &= ~batch.burn.numpy(force=True)
    view = UpdateView(trainer, "agent")
    view.draw(trainer, moving=False)
    assert view.text().endswith(f" {counts.sum():,} rows")


def test_a_step_of_an_episode_is_never_below_zero():
    trainer = Trainer("rlbench/Forbidden-v0", "ppo", **SMALL)
    trace = ValueTrace(trainer, "agent")
    trace.draw(trainer, moving=False)
    assert trace.ax.get_xlim()[0] == 0


def test_where_no_state_can_be_drawn_no_place_is_kept_for_it():
    trainer = Trainer("rlbench/Forbidden-v0", "ppo", **SMALL)
    trainer.until("step", 3)
    buffer = BufferView(trainer, "agent")
    buffer.open(trainer, 0)
    assert not any(map(is_revealed, buffer.transition.boxes))


def test_an_environment_that_fails_without_words_gets_some():
    class Fails(gym.Wrapper):
        def render(self):
            raise AssertionError

    trainer = Trainer(lambda: Fails(gym.make("CartPole-v1", render_mode="rgb_array")), "ppo", **SMALL)
    frame = EnvFrame(trainer, "agent")
    frame.draw(trainer, moving=False)
    assert "AssertionError: it gives no reason; was the environment made with render_mode" in frame.text()


# ---- a slice through what is thought of states, by a method

class Rings(gym.Env):
    "Twenty numbers, of which the value of the policy's network is made to depend on three"
    observation_space = gym.spaces.Box(-1, 1, (20,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low * 0 + self.np_random.uniform(-1, 1, 20).astype(np.float32), {}

    def step(self, act):
        return self.np_random.uniform(-1, 1, 20).astype(np.float32), 0., False, bool(self.np_random.random() < .1), {}


def ringed():
    "A run whose values depend on 5, on 11 and, most of all, on 17"
    trainer = Trainer(Rings, "ppo", seed=0, num_envs=2, n_steps=32, normalize_obs=False, hidden=(4,))
    trainer.until("step", 40)
    first = next(weight for name, weight in trainer.learner.nets.value.named_parameters() if weight.ndim == 2)
    with torch.no_grad():
        heights = torch.zeros(20)
        heights[[5, 11, 17]] = torch.tensor([.3, .1, 1.])
        first.copy_(first.abs().amax() * heights.expand_as(first))
    trainer.actors["agent"].look()
    return trainer


def test_a_slice_holds_what_the_sliders_hold():
    trainer = ringed()
    cut = value_slice(trainer, "obs 17", 5, at={"obs 11": .5, 3: -1})
    rows = np.repeat(trainer.obs["agent"][:1], 36 * 24, 0)
    rows[:, 17] = np.tile(cut.x, 24)
    rows[:, 5] = np.repeat(cut.y, 36)
    rows[:, [11, 3]] = .5, -1
    assert np.allclose(cut.val.ravel(), state_values(trainer.actors["agent"], rows), atol=1e-5)
    assert cut.names == ["obs 17", "obs 5"] and cut.val.shape == (24, 36) and cut._repr_png_()[:4] == b"\x89PNG"


def test_the_dimensions_that_matter_come_first():
    found = value_sensitivity(ringed())
    assert list(found)[:3] == ["obs 17", "obs 5", "obs 11"] and not any(list(found.values())[3:])


def test_a_map_of_many_dimensions_has_sliders_for_those_that_matter_and_for_those_that_are_asked_for():
    trainer = ringed()
    view = ValueSurface(trainer, "agent")
    view.draw(trainer, moving=False)
    others = view.plane.others
    assert is_revealed(others.widget) and is_revealed(others.more) and not others.sliders
    as_page(others.follow, value=False)
    assert list(others.sliders)[:3] == [17, 5, 11] and len(others.sliders) == others.first
    as_page(others.more, index=10)          # "another slider" comes first
    assert 9 in others.sliders and others.sliders[9].value == pytest.approx(trainer.obs["agent"][0, 9])
    as_page(others.sliders[17], value=.25)
    held = trainer.obs["agent"][:1].copy()
    held[0, 17] = .25
    told = state_values(trainer.actors["agent"], held)[0]
    assert float(view.text().split(";")[0].split()[-1]) == pytest.approx(told, abs=.01)
    as_page(others.follow, value=True)
    assert view.text().startswith("value here")


def test_who_has_no_slice_says_why():
    silent = Case("bc", "CartPole-v1").trainer()
    for trainer, words in ((silent, "bc has no values of states"),
                           (Trainer("FrozenLake-v1", "qlearning"), "agent observes Discrete.16.: expected a Box")):
        for ask in (value_slice, value_sensitivity):
            with pytest.raises(ValueError, match=words): ask(trainer)
    for wrong, words in ((dict(across=17, up="obs 17"), "across and up are both obs 17"),
                         (dict(across="obs 71"), "unknown dimension 'obs 71'"),
                         (dict(at=[3]), "expected {dimension: number}"),
                         (dict(at={"obs 3": np.nan}), "at: obs 3 = nan: expected a number")):
        with pytest.raises(ValueError, match=words):
            value_slice(ringed(), **wrong)
