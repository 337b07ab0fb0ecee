"A person acts, begins episodes, changes the world: marked, exact on every way back, or refused in words"
import re

import numpy as np
import pytest

from rlbench.algos.streaming import RewardScale
from rlbench.buffers.recordings import read_memory
from rlbench.core.state import same, snapshot
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.envs.find import make
from rlbench.envs.place import state_behind
from rlbench.lab.page.hand_panel import thought_html
from rlbench.lab.page.world_panel import move_slider
from rlbench.lab.views.advice import Decision
from rlbench.training.by_hand import why_own_actions
from rlbench.training.demonstrations import Demonstration
from rlbench.training.evaluate import evaluate
from rlbench.training.learner import acted_by_hand
from rlbench.training.trainer import Trainer, load
from tests.cases import ONE_EACH
from tests.test_page_truth import repeated, told
from tests.test_workbench import bench          # noqa: F401

SMALL = dict(learning_starts=8, batch_size=4, hidden=(4,), buffer_size=64)


def drawn(trainer, n):
    "n actions for the first environment"
    space = trainer.env.behaviours["agent"].action_space
    space.seed(3)
    return [space.sample() for _ in range(n)]


def lend_hands(trainer):
    "Whatever a hand can do to a run, between some steps"
    for act in drawn(trainer, 2):
        if not why_own_actions(trainer, "agent"): trainer.act(act)
    here = np.array(trainer.obs["agent"][0])
    trainer.until("step", 2)
    try: trainer.place(here)
    except EnvProblem: pass
    parameters = trainer.env.parameters
    if parameters:
        name = list(parameters)[0]
        trainer.set_env(**{name: getattr(trainer.env.single.unwrapped, name) * .5})
    trainer.until("step")


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_a_run_that_hands_were_in_goes_on_to_the_bit(case, tmp_path):
    trainer = case.trainer()
    trainer.until("step", 3)
    before = trainer.snapshot()
    lend_hands(trainer)
    kept = trainer.snapshot()
    trainer.until("step", 12)
    later = trainer.snapshot()
    trainer.restore(before)
    lend_hands(trainer)
    assert same(trainer.snapshot(), kept)                       # what was done is done again
    trainer.until("step", 12)
    assert same(trainer.snapshot(), later)
    trainer.restore(kept)
    trainer.save(tmp_path / "run.rlb")
    other = load(tmp_path / "run.rlb")
    assert same(other.until("step", 12) and other.snapshot(), later)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_who_may_learn_from_a_hand_has_it_marked_and_the_others_say_why_not(case):
    trainer = case.trainer()
    learner = trainer.learner
    [act] = drawn(trainer, 1)
    before = trainer.snapshot()
    if why_own_actions(trainer, "agent"):
        with pytest.raises(ValueError, match="Record what you do as demonstrations"):
            trainer.act(act)
        assert same(trainer.snapshot(), before)
        return
    event = trainer.act(act)
    assert np.array_equal(np.asarray(event.rows["agent"].act[0]), np.asarray(act))
    if learner.settings.offline: return
    rows = learner.memory.newest(1).ravel()
    assert acted_by_hand(learner, rows).tolist() == [True] + [False] * (len(rows) - 1)
    trainer.restore(before)
    assert not acted_by_hand(learner, rows).any()


def test_without_hands_a_state_is_what_it_was():
    trainer = Trainer("CartPole-v1", "dqn", num_envs=2, **SMALL).run(steps=40)
    assert "by_hand" not in trainer.state() and "wanted" not in trainer.state()["env"]


def jumped(**settings):
    "A run whose first environment was put elsewhere after six steps, and went on for six more"
    trainer = Trainer("CartPole-v1", "dqn", num_envs=2, **SMALL | dict(learning_starts=60), **settings)
    trainer.until("step", 6)
    trainer.place(state=[0, 0, .1, 0])
    trainer.until("step", 6)
    return trainer


@pytest.mark.parametrize("native", [True, False])
def test_no_row_reaches_across_a_jump(native):
    trainer = jumped(native=native)
    memory = trainer.learner.memory
    first = memory.aged(np.arange(12)[::-1], 0)
    assert np.flatnonzero(memory.ends(first)).tolist() == [5] and not memory.places["term"][first].any()
    rows = memory.gather(first)
    goes_on = (rows.next_obs[:-1] == rows.obs[1:]).all(1)
    assert np.flatnonzero(~goes_on).tolist() == [5]             # every row but the last before the jump
    assert np.allclose(rows.obs[6], [0, 0, .1, 0])
    ahead, alive = memory.ahead(first[3:4], 5)
    assert alive[:, 0].tolist() == [True] * 3 + [False] * 2     # a return of n steps ends at the jump
    episodes = trainer.env.episodes["agent"]
    assert (episodes.length[0], episodes.ret[0], episodes.total) == (6, 6, 0)
    other = memory.aged(np.arange(12), 1)
    assert not memory.ends(other).any()                         # nothing happened there


def test_a_time_limit_begins_anew():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", env_settings=dict(max_episode_steps=5), epsilon=0.)
    trainer.until("step", 4)
    trainer.place(0)
    assert not trainer.until("step", 4).ended and trainer.until("step").ended[0].length == 5


@pytest.mark.parametrize("algo", ["sarsa", "sarsa_lambda", "stream_q", "monte_carlo"])
def test_whoever_counts_episodes_goes_on(algo):
    trainer = Trainer("rlbench/CliffWalk-v0", algo, env_settings=dict(max_episode_steps=30))
    for s in (36, 24, 0):
        trainer.until("step", 7)
        trainer.place(s)
    trainer.until("update", 20)


REFUSED = [
    ("Blackjack-v1", "qlearning", {}, dict(obs=(12, 3, 0)), "Give it a method place"),
    ("rlbench/CliffWalk-v0", "qlearning", {}, dict(obs=40), "nobody can stand in state 40"),
    ("rlbench/CliffWalk-v0", "qlearning", {}, dict(obs=47), "an episode is over in state 47"),
    ("rlbench/CliffWalk-v0", "qlearning", {}, dict(obs=48), "expected whole numbers from 0 to 47"),
    ("rlbench/Bandit-v0", "qlearning", dict(num_envs=2), dict(obs=0), "computes all its copies at once"),
    ("CartPole-v1", "dqn", {}, dict(obs=[0, 0]), "observation of shape"),
    ("CartPole-v1", "dqn", {}, dict(state=[0, 0]), "expected the 4 numbers position, velocity, angle"),
    ("CartPole-v1", "dqn", {}, {}, "give obs="),
]


@pytest.mark.parametrize("env, algo, settings, where, words", REFUSED)
def test_what_cannot_be_placed_says_why_and_nothing_moves(env, algo, settings, where, words):
    trainer = Trainer(env, algo, **settings)
    trainer.until("step", 3)
    before = trainer.snapshot()
    with pytest.raises((ValueError, EnvProblem), match=words):
        trainer.place(**where)
    assert same(trainer.snapshot(), before)


CHANGES = [
    ("CartPole-v1", dict(gravity=5., length=1.)),
    ("Pendulum-v1", dict(g=2., m=.5)),
    ("MountainCar-v0", dict(force=.002)),
    ("MountainCarContinuous-v0", dict(power=.003)),
    ("Acrobot-v1", dict(LINK_LENGTH_1=.5)),
    ("LunarLander-v3", dict(gravity=-3., enable_wind=True)),
    ("rlbench/FrozenLake-v0", dict(slip=0.)),
]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("env, state", [("CartPole-v1", [.5, 0., .05, 0.]), ("Pendulum-v1", [1., .5])])
def test_a_stack_of_frames_begins_in_a_state(env, state, native):
    algo = "dqn" if env == "CartPole-v1" else "ppo"
    trainer = Trainer(env, algo, seed=0, env_settings=dict(frame_stack=3), native=native).run(steps=40)
    trainer.place(state=state)
    frames = trainer.obs["agent"][0]
    np.testing.assert_allclose(state_behind(trainer.env.single, frames), state, atol=1e-6)
    assert (frames == frames[0]).all()
    trainer.until("step")
    newest = trainer.obs["agent"][0]
    assert (newest[:2] == frames[:2]).all() and (newest[2] != frames[2]).any()


@pytest.mark.parametrize("env, changes", CHANGES)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_parameters_change_when_an_episode_begins_and_go_back(env, changes, num_envs):
    vec = make(env, num_envs, max_episode_steps=6)
    act = np.zeros((num_envs, *vec.action_space.shape), vec.action_space.dtype)
    def values():
        raw = vec.env.unwrapped if hasattr(vec, "env") else vec.envs[0].unwrapped
        return {name: np.ravel(getattr(raw, name))[0] for name in changes}
    vec.reset(0)
    usual = values()
    start = snapshot(vec.state())
    vec.tune(**changes)
    vec.step(dict(agent=act))
    assert values() == usual
    kept = snapshot(vec.state())
    steps = [vec.step(dict(agent=act))["agent"] for _ in range(15)]
    assert values() == changes
    vec.restore(kept)
    assert same([vec.step(dict(agent=act))["agent"] for _ in range(15)], steps)
    vec.restore(start)
    assert values() == usual and vec.wanted == {}
    other = make(env, num_envs, max_episode_steps=6)
    other.reset(1)
    other.restore(kept)
    assert same([other.step(dict(agent=act))["agent"] for _ in range(15)], steps)
    vec.close()
    other.close()


def test_what_cannot_change_says_so():
    with pytest.raises(ConfigError, match="Blackjack-v1 has no parameters that can change between episodes"):
        Trainer("Blackjack-v1", "qlearning").set_env(decks=2)
    pole = Trainer("CartPole-v1", "dqn")
    for changes, words in ((dict(gravitty=1), "did you mean 'gravity'"), (dict(length=-1), "expected a number from"),
                           (dict(gravity=float("nan")), "expected a number")):
        with pytest.raises(ConfigError, match=words):
            pole.set_env(**changes)
    assert pole.env.wanted == {}


def test_evaluation_is_of_the_world_that_is_wanted():
    trainer = Trainer("CartPole-v1", "dqn", **SMALL).run(steps=40)
    usual = evaluate(trainer, episodes=3)
    trainer.set_env(force_mag=0.)
    assert evaluate(trainer, episodes=3).mean != usual.mean
    twin = trainer.fork()
    assert twin.env.wanted == dict(force_mag=0.) and twin.fresh().env.wanted == {}


def over_everything(wb):
    wb.step("step", 15).act(1).act("push left").step("step", 4)
    wb.place(state=[.1, 0, -.1, 0]).act(0).set_env(gravity=3., length=.7).step("step", 40)
    wb.place(row=3).step("update", 4)


@pytest.mark.parametrize("settings", [dict(num_envs=2), dict(num_envs=2, native=False), dict(num_envs=1, n_step=3)])
def test_rewinding_and_the_snippet_repeat_what_hands_did(bench, settings):              # noqa: F811
    wb = bench(algo="dqn", views=["buffer"], **SMALL, **settings)
    over_everything(wb)
    there = told(wb.trainer)
    assert "#" not in wb.snippet().replace("# 0 (push left)", "").replace("# 1 (push right)", "")
    assert same(told(repeated(wb)), there), wb.snippet()
    at = wb.player.timeline.at
    kept = wb.snapshot()
    wb.rewind(3)
    assert not wb.trainer.learner.by_hand and wb.trainer.env.wanted == {}
    wb.rewind(at)
    assert same(wb.snapshot(), kept)
    other = wb.fork()
    assert same(told(other.trainer), there)
    other.close()


# the picture of a state that a slider is held at

def shown_pole(wb):
    return wb.page.cards[0].view.image.html


def test_the_picture_follows_a_slider_and_the_run_does_not_notice(bench):       # noqa: F811
    wb = bench("CartPole-v1", "dqn", views=["frame"], **SMALL).step("step", 20)
    before = wb.trainer.snapshot()
    lines = wb.player.timeline.script()
    present = shown_pole(wb)
    sliders = wb.page.world.sliders
    seen = []
    for angle in (.05, .1, .2):
        move_slider(sliders, 2, angle, held=True)
        seen.append(shown_pole(wb))
    assert len({present, *seen}) == 4 and "so it would look" in wb.page.cards[0].words.html
    assert same(wb.trainer.snapshot(), before) and wb.player.timeline.script() == lines
    sliders._handle_custom_msg(dict(held=None), [])
    assert shown_pole(wb) == present and "so it would look" not in wb.page.cards[0].words.html
    move_slider(sliders, 2, .2)
    assert shown_pole(wb) == seen[-1] and wb.trainer.obs["agent"][0, 2] == np.float32(.2)


def test_only_the_newest_state_that_a_slider_was_held_at_is_drawn(bench):       # noqa: F811
    wb = bench("Pendulum-v1", "td3", views=["frame"], driver="thread", **SMALL).step("step")
    drawn = []
    world = wb.page.world
    world.imagine = drawn.append
    with wb.player.lock:                                                        # the owner is busy
        for angle in np.linspace(-1, 1, 30).tolist():
            move_slider(world.sliders, 0, angle, held=True)
    wb.player.look(lambda trainer: None).result(20)
    assert drawn[-1][0] == 1. and len(drawn) <= 2                               # one may have begun before


def test_a_slider_that_is_held_while_the_run_plays_shows_nothing(bench):        # noqa: F811
    wb = bench("CartPole-v1", "dqn", views=["frame"], **SMALL)
    wb.player.state = "playing"
    present = shown_pole(wb)
    wb.page.world.held.append([0., 0., .2, 0.])
    wb.page.world.show_held()
    assert shown_pole(wb) == present
    wb.player.state = "paused"


def test_a_state_that_is_refused_goes_back_on_its_slider(bench):                # noqa: F811
    wb = bench("Pendulum-v1", "td3", views=["frame"], **SMALL)
    sliders = wb.page.world.sliders
    before = sliders.state
    sliders._handle_custom_msg(dict(put=[1, float("nan")]), [])
    assert wb.page.complaint.widget.value and sliders.state == before


def sums_told(trainer):
    "(N,) discounted sums of rewards, as the algorithm has them"
    return next(part for part in trainer.learner.nets.modules() if isinstance(part, RewardScale)).sum.numpy()


SCALING = [("stream_q", {}), ("stream_ac", {}), ("stream_q", dict(num_envs=2)),
           ("ppo", dict(num_envs=2, n_steps=4, n_epochs=2, batch_size=4)), ("a2c", dict(num_envs=2, n_steps=4)),
           ("recurrent_ppo", dict(num_envs=2, n_steps=4, n_epochs=2, batch_size=8))]


@pytest.mark.parametrize("fresh", [False, True], ids=["placed", "fresh episodes"])
@pytest.mark.parametrize("algo, settings", SCALING, ids=str)
def test_sums_of_rewards_begin_anew_with_the_episode(algo, settings, fresh):
    "Wherever between two events an episode is left: in a rollout, before an update, after it"
    trainer = Trainer("CartPole-v1", algo, seed=0, normalize_reward=True, **settings)
    gamma = trainer.learner.algo.gamma
    sums = np.zeros(trainer.env.num_envs)
    begun = np.ones(len(sums), bool)            # a step was taken in the episode at hand
    for at in range(60):
        event = trainer.advance()
        if event.steps:
            step = event.steps["agent"]
            after = np.where(step.term | step.trunc, 0, gamma * sums + step.rew)
            sums = np.where(step.valid, after, sums)
            begun |= step.valid
        if not trainer.learner.todo and not trainer.learner.fresh.any():
            assert np.allclose(sums_told(trainer)[begun], sums[begun])
        if at % 7: continue
        if fresh: trainer.restore(trainer.snapshot(), fresh_episodes=True)
        else: trainer.place(state=[0, 0, .1, 0])
        left = slice(None) if fresh else 0
        sums[left] = begun[left] = 0
    trainer.close()


# ---- what was demonstrated is kept

def shown_by_hand(id="CartPole-v1"):
    "Thirty steps of the same action, in which some episodes end"
    shown = Demonstration(Trainer(id, "ppo", seed=0))
    for _ in range(30):
        shown.act(0)
    return shown


def test_the_environment_of_a_demonstration_is_made_again_from_minari(monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.warns(UserWarning):
        data = shown_by_hand().to_minari("by-hand/pole-v0")
    assert minari.load_dataset("by-hand/pole-v0").recover_environment().spec.id == "CartPole-v1" and len(data)


def test_what_was_saved_is_neither_written_over_nor_unreadable(tmp_path):
    shown = shown_by_hand()
    for name in ("a.rlb", "a.jsonl"):
        shown.save(tmp_path / name)
        assert len(read_memory(tmp_path / name)) == 30
        with pytest.raises(ConfigError, match="there is such a file"):
            shown.save(tmp_path / name)
    with pytest.raises(ConfigError, match="a name that ends in .rlb or .jsonl"):
        shown.save(tmp_path / "a.csv")


def test_the_page_says_where_a_demonstration_was_saved(bench, tmp_path):      # noqa: F811
    wb = bench("CartPole-v1", "ppo", seed=0)
    panel = wb.page.hand
    panel.look.value = True
    panel.record.value = True
    panel.press([0])
    panel.recording.path.value = str(tmp_path / "a.rlb")
    panel.order(panel.player.ask, lambda: panel.recording.ordered("keep"), True)
    assert "saved to" in panel.recording.said.value
    panel.press([0])
    assert "saved to" not in panel.recording.said.value and "2 steps" in panel.recording.said.value


def bar_of(html):
    "(beginning, length) of the bar of a value, per cent of its axis"
    return tuple(map(int, re.search(r"rl-value' style='margin-left:(\d+)%;width:(\d+)%", html).groups()))


@pytest.mark.parametrize("q, bars", [([5.69, 5.73], [(0, 99), (0, 100)]), ([-4., -2.], [(0, 100), (50, 50)]),
                                     ([-1., 3.], [(0, 25), (25, 75)]), ([0., 0.], [(0, 0), (0, 0)])])
def test_bars_of_advice_begin_at_zero(q, bars):
    one = Decision("", ["left", "right"])
    one.q = np.array(q)
    assert [bar_of(thought_html(one, i)) for i in (0, 1)] == bars


def test_who_plays_on_gives_the_agent_back_what_was_taken_over(bench):         # noqa: F811
    wb = bench(algo="dqn", **SMALL)
    hand = wb.page.hand
    for record in (False, True):
        wb.take_over()
        hand.record.value = record
        assert hand.look.value and hand.keys.taking
        wb.play().player.tick(.02)
        assert hand.look.value == record       # a recording goes on in an environment of its own
        wb.pause().give_back()
        assert not hand.look.value and not hand.keys.taking and not wb.page.complaint
