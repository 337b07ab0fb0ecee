"The doctor looks at every algorithm, changes nothing, names what is wrong, and says nothing where nothing is"
import ast
import re
import time
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlbench
from benchmarks.doctor_cases import FAULTS, HEALTHY
from benchmarks.doctor_fresh import FRESH_FAULTS, FRESH_HEALTHY
from benchmarks.doctor_methods import METHOD_FAULTS, METHOD_HEALTHY
from benchmarks.doctor_more import MORE_FAULTS, MORE_HEALTHY
from benchmarks.doctor_others import OTHER_FAULTS, OTHER_HEALTHY
from benchmarks.doctor_sums import SUM_FAULTS, SUM_HEALTHY
from benchmarks.doctor_worlds import WORLD_FAULTS, WORLD_HEALTHY
from rlbench import Trainer
from rlbench.algos.impala import IMPALA
from rlbench.algos.r2d2 import R2D2
from rlbench.algos.stream_q import StreamQ
from rlbench.algos.td3 import TD3
from rlbench.core.batch import Batch
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.lab.pictures.colours import HERE, POLICY, VALUE
from rlbench.lab.pictures.components import is_revealed
from rlbench.lab.pictures.scene import width_of
from rlbench.lab.time.owner import promise
from rlbench.training.doctor.diagnosis import CHECKS, Diagnosis, Tried
from rlbench.training.doctor.drawn import SERIES_TONES, drawn_numbers, thinned
from rlbench.training.doctor.findings import Finding
from rlbench.training.learner import NotFinite
from rlbench.training.record import record
from tests.cases import ONE_EACH
from tests.test_player import eventually

QUICK = ["reward: always 0", "observation: one dimension large", "action: ignored, Box", "limit: reported as an end",
         "ent_coef: 5", "learning_starts: never", "loss cut off"]


def some(faults):
    "Every tenth of them; the others are for make proofs"
    return [pytest.param(name, marks=pytest.mark.long) if i % 10 else name for i, name in enumerate(faults)]


WORDS = re.compile(r'<text x="(\d+)"[^>]*text-anchor="(\w+)">([^<]*)</text>')


def looked_at(case):
    "What is found in a case, each finding with its own picture, on which all words have room"
    found = case.make().diagnose()
    for one in found:
        values = [np.asarray(numbers, float).ravel() for numbers in one.numbers.values()]
        assert any(np.isfinite(numbers).any() for numbers in values), one.name
        for x, side, words in WORDS.findall(drawn_numbers(one.numbers, one.limits)):
            room = 240 - int(x) if side == "start" else int(x)
            assert width_of(words, 10) <= room * (2 if side == "middle" else 1), (one.name, words)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_every_algorithm_can_be_looked_at_and_stays_where_it_is(case):
    run = case.begun()
    run.run(30)
    before = run.snapshot()
    found = run.diagnose(steps=120, seconds=.5)
    assert same(run.snapshot(), before)
    assert isinstance(repr(found), str) and isinstance(found._repr_html_(), str)
    assert not found.failed
    for finding in found:
        assert 0 <= finding.weight <= 1
        assert set(finding.changes) <= set(vars(run.learner.settings))
    run.close()


class BurstsLater(gym.RewardWrapper):
    "After some steps of its life a reward is too large for a float to be squared"
    left = 200

    def reward(self, reward):
        self.left -= 1
        return float(reward) if self.left > 0 else 1e30


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_broke_off_is_looked_at():
    run = Trainer(lambda: BurstsLater(gym.make("Pendulum-v1")), "sac", seed=0, learning_starts=50, lr=.3)
    with pytest.raises(NotFinite):
        run.run(1000)
    found = run.diagnose(steps=300, seconds=2.)
    assert "strange_rate" in found.names and not found.failed
    assert "broken off" in repr(found) and "broken off" in found._repr_html_()
    run.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_named(name):
    case = FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["reward: noise", "max_grad_norm: .0001", "end: at random", "advantages of other rows",
                                  "dqn does the worst", "policy that no gradient moves"])
def test_a_fault_of_the_second_set_is_named(name):
    case = MORE_FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(OTHER_FAULTS))
def test_a_fault_of_the_third_set_is_named(name):
    case = OTHER_FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(SUM_FAULTS))
def test_a_fault_of_the_fourth_set_is_named(name):
    case = SUM_FAULTS[name]
    assert set(looked_at(case).names[:2]) & set(case.named)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUM_HEALTHY)
def test_nothing_is_found_in_healthy_runs_of_the_fourth_set(name):
    assert SUM_HEALTHY[name].make().diagnose() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(FRESH_FAULTS))
def test_a_fault_of_the_fifth_set_is_named(name):
    case = FRESH_FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(FRESH_HEALTHY))
def test_nothing_is_found_in_healthy_runs_of_the_fifth_set(name):
    assert FRESH_HEALTHY[name].make().diagnose() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(WORLD_FAULTS))
def test_a_fault_of_the_sixth_set_is_named(name):
    case = WORLD_FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(WORLD_HEALTHY))
def test_nothing_is_found_in_healthy_runs_of_the_sixth_set(name):
    assert WORLD_HEALTHY[name].make().diagnose() == []


QUICK_METHODS = ["trpo: five times as far", "dqn: no weights for what is drawn often", "c51: the reward is discounted",
                 "sac: more entropy than there is", "td3: a tenth of the noise", "sarsa: three steps in full",
                 "r2d2: twice what is carried", "value iteration: the mean", "qlearning: never the last by chance",
                 "bc: makes it unlikely", "discrete cql: where it is", "own actor: entropy costs"]


def long_but(faults, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in faults]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", long_but(METHOD_FAULTS, QUICK_METHODS))
def test_a_fault_of_the_eighth_set_is_named(name):
    case = METHOD_FAULTS[name]
    found = looked_at(case)
    assert set(found.names[:2]) & set(case.named) and not found.failed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", long_but(METHOD_HEALTHY, ["own values", "own actor", "iql, finished"]))
def test_nothing_is_found_in_healthy_runs_of_the_eighth_set(name):
    assert METHOD_HEALTHY[name].make().diagnose() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["dqn, Acrobot, early", "pqn, Breakout", "sarsa, WindyGrid"])
def test_nothing_is_found_where_others_raised_an_alarm(name):
    assert OTHER_HEALTHY[name].make().diagnose() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ppo, CartPole, early", "qlearning, CliffWalk"])
def test_nothing_is_found_where_nothing_is_wrong(name):
    assert HEALTHY[name].make().diagnose() == []


def test_a_check_that_fails_says_so_and_the_others_look(monkeypatch):
    def fails(evidence):
        raise ValueError("an odd shape")
    monkeypatch.setattr("rlbench.training.doctor.diagnosis.CHECKS", [fails, *CHECKS])
    found = FAULTS["reward: always 0"].make().diagnose()
    assert set(found.names[:2]) & set(FAULTS["reward: always 0"].named)
    assert found.failed == ["fails (ValueError('an odd shape'))"] and "an odd shape" in repr(found)


@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_cannot_go_back_is_looked_at_all_the_same():
    case = MORE_FAULTS["reward: noise from elsewhere"]
    assert "noisy_reward" in case.make().diagnose().names[:2]


def test_names_are_those_of_the_checks():
    assert len(CHECKS) >= 20
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
    faults = [FAULTS, MORE_FAULTS, OTHER_FAULTS, SUM_FAULTS, FRESH_FAULTS, WORLD_FAULTS]
    sets = [*faults, HEALTHY, MORE_HEALTHY, OTHER_HEALTHY, SUM_HEALTHY, FRESH_HEALTHY, WORLD_HEALTHY]
    assert len({name for one in sets for name in one}) == sum(map(len, sets))
    named = {name for some_of_them in faults for case in some_of_them.values() for name in case.named}
    assert named <= {check.__name__ for check in CHECKS}


def test_several_behaviours_are_asked_for_by_name():
    run = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo")).run(200)
    with pytest.raises(ConfigError, match="which behaviour"):
        run.diagnose()
    assert isinstance(run.diagnose(who="runner", steps=100), Diagnosis)


def test_advice_is_tried_in_two_runs_and_this_one_stays():
    run = Trainer("CartPole-v1", "ppo", lr=.3).run(3000)
    diagnosis = run.diagnose(steps=300)
    before = run.snapshot()
    tried = diagnosis.try_it(steps=3000, afresh=True)
    assert same(run.snapshot(), before)
    assert tried.changes == dict(lr=1e-3) and tried.changed > tried.as_it_was


def test_a_critic_that_cannot_say_its_returns_is_offered_scaled_rewards():
    swing = Trainer("Pendulum-v1", "ppo", seed=100, normalize_reward=False)
    found = swing.run(40_000).diagnose()
    assert found.names[0] == "dead_units"
    assert found[0].changes == dict(normalize_reward=True)


def test_what_no_setting_mends_is_said():
    run = Trainer("CartPole-v1", "ppo").run(300)
    finding = Finding("it", "seen", "why", "look there", 1., {})
    with pytest.raises(ConfigError, match="no setting mends it: look there"):
        Diagnosis(run.diagnose(steps=50).evidence, [finding]).try_it()


def test_advice_is_asked_for_by_number_or_by_name():
    run = Trainer("CartPole-v1", "ppo").run(300)
    found = Diagnosis(run.diagnose(steps=50).evidence, [Finding("it", "seen", "why", "look there", 1., {})])
    with pytest.raises(ConfigError, match="no setting mends it"):
        found.try_it("it")
    for wrong in ("that", None, .5, True, 1):
        with pytest.raises(ConfigError, match="expected a number from 0 to 0 or a name of it"):
            found.try_it(wrong)


class Broken(gym.ObservationWrapper):
    "A sensor that says nothing now and then"
    count = 0

    def observation(self, obs):
        self.count += 1
        return obs * np.nan if self.count > 300 and self.count % 97 == 0 else obs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env, algo", [("CartPole-v1", "qr_dqn"), ("Pendulum-v1", "ppo")])
def test_observations_that_are_no_numbers_are_named_and_nothing_else(env, algo):
    run = Trainer(lambda: Broken(gym.make(env)), algo, check_env=False).run(90)
    found = run.diagnose()
    assert found.names == ["not_a_number"] and not found.failed


def test_training_says_that_an_observation_is_no_number():
    run = Trainer(lambda: Broken(gym.make("CartPole-v1")), "qr_dqn", check_env=False, learning_starts=100)
    with pytest.raises(NotFinite, match="is an observation not finite"):
        run.run(700)
    run.close()


def test_an_untrained_run_is_told_so():
    run = Trainer("CartPole-v1", "ppo")
    assert "no step has been taken" in run.diagnose(steps=50).warning
    run.close()


@pytest.mark.parametrize("effect, cause", [("against_values", "strange_rate"), ("against_values", "short_sight"),
                                           ("idle_actions", "lost_sight"), ("idle_actions", "twin_actions"),
                                           ("hidden_state", "twin_actions"), ("noisy_reward", "reward_of_before"),
                                           ("other_follower", "strange_setting")])
def test_what_explains_another_finding_stands_before_it(effect, cause):
    known = [Finding(name, "", "", "", weight, {}) for name, weight in ((effect, 1.), ("other", .5), (cause, .1))]
    assert Diagnosis(None, known).names == ["other", cause, effect]


def test_runs_with_other_seeds_show_what_was_luck():
    run = Trainer("CartPole-v1", "ppo", seed=3).run(400)
    before = run.snapshot()
    found = run.diagnose(steps=50, seconds=.2, seeds=2)
    assert list(found.evidence.others) == [4, 5] and same(run.snapshot(), before)
    again = run.diagnose(steps=50, seconds=.2, seeds=2).evidence.others
    assert same(again, found.evidence.others)
    with pytest.raises(ValueError, match="seeds"):
        run.diagnose(steps=50, seeds=-1)


def test_slow_environments_are_looked_at_for_a_while_only():
    class Slow(gym.Wrapper):
        def step(self, action):
            np.linalg.svd(np.random.default_rng(0).random((200, 200)))
            return self.env.step(action)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Trainer(lambda: Slow(gym.make("CartPole-v1")), "ppo", n_steps=16, num_envs=1, check_env=False).run(32)
    found = run.diagnose(steps=10_000, seconds=.3)
    assert 0 < len(found.evidence.exploring.rew) < 10_000
    assert set(found.evidence.cut) == {"exploring", "greedy", "chance"} and "give more seconds" in repr(found)


def test_a_thread_that_only_waits_is_stopped_by_the_clock():
    class Asleep(gym.Wrapper):
        def step(self, action):
            time.sleep(.02)
            return self.env.step(action)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Trainer(lambda: Asleep(gym.make("CartPole-v1")), "ppo", n_steps=16, num_envs=1, check_env=False).run(16)
    begun = time.perf_counter()
    assert run.diagnose(steps=10_000, seconds=.1).evidence.cut
    assert time.perf_counter() - begun < 20


def test_the_advice_goes_to_the_behaviour_that_was_looked_at():
    run = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0).run(200)
    run.set(**{"runner.lr": .5})
    diagnosis = run.diagnose(who="runner", steps=100)
    number = diagnosis.names.index("strange_rate")
    assert diagnosis.try_it(number, steps=60).changes == diagnosis[number].changes
    assert run.learners["runner"].settings.lr == .5


def test_a_fresh_run_with_changes_leaves_this_one_as_it_is():
    run = Trainer("CartPole-v1", "dqn", hidden=(8,), buffer_size=100).run(50)
    other = run.fresh(buffer_size=700, lr=.02)
    assert (other.learner.memory.capacity, other.learner.settings.lr, other.steps) == (700, .02, 0)
    assert (run.learner.memory.capacity, run.steps) == (100, 50)


def test_the_panel_shows_findings_and_what_came_of_the_advice(monkeypatch):
    monkeypatch.setattr("rlbench.lab.page.clinic.TRIED", 300)
    wb = rlbench.Workbench("CartPole-v1", "ppo", lr=.3, driver="sync")
    wb.step("step", 2000)
    before = wb.trainer.snapshot()
    assert wb.diagnose().names[0] == "strange_rate"
    panel = wb.page.doctor
    assert len(panel.list.children) == len(panel.diagnosis)
    words, places, outcome = panel.list.children[0].children
    assert "strange rate" in words.value and "<svg" in words.value
    for place in places.children: place.click()
    assert "with lr=0.001" in outcome.value and "without" in outcome.value and "<svg" in outcome.value
    assert same(wb.trainer.snapshot(), before)
    wb.close()


def test_trying_the_advice_says_so_and_can_be_stopped(monkeypatch):
    monkeypatch.setattr("rlbench.lab.page.clinic.TRIED", 10**9)
    wb = rlbench.Workbench("CartPole-v1", "ppo")
    asked = promise()
    finding = Finding("strange_rate", "seen", "why", "what", 1., dict(lr=.1))
    asked.set_result(Diagnosis(wb.trainer.diagnose(steps=50).evidence, [finding], early="Too early."))
    panel = wb.page.doctor
    panel.tell(asked)
    assert "after 0 steps: one thing. Too early." in panel.said.value
    _, places, outcome = panel.list.children[0].children
    places.children[0].click()
    assert "two runs of 1,000,000,000 steps" in outcome.value and is_revealed(panel.trials.stop)
    panel.trials.stop.click()
    eventually(lambda: "stopped before" in outcome.value)
    assert not is_revealed(panel.trials.stop)
    wb.close()


def test_the_panel_says_why_it_cannot_look():
    cast = dict(chaser="dqn", runner=Trainer("rlbench/Chase-v0", "ppo", n_steps=16).actors["runner"])
    wb = rlbench.Workbench("rlbench/Chase-v0", cast, driver="sync")
    wb.look_at("runner")
    wb.page.doctor.examine()
    assert "rl-problem" in wb.page.doctor.said.value and "runner" in wb.page.doctor.said.value
    wb.close()


def test_every_finding_that_a_check_can_make_has_a_drawn_numbers_its_own():
    files = sorted((Path(rlbench.__file__).parent / "training" / "doctor").glob("*.py"))
    calls = [(file.stem, node) for file in files for node in ast.walk(ast.parse(file.read_text()))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Finding", "Told")]
    told = {node.keywords[-1].value.value.id for _, node in calls if node.keywords and node.keywords[-1].arg is None}
    assert len(calls) >= len(CHECKS) and told <= {"told", "said"}       # these are of the class Told
    for where, node in calls:
        given = {word.arg: word.value for word in node.keywords}
        numbers = node.args[1] if node.func.id == "Told" else given.get("numbers", given.get(None))
        what = f"{where}, line {node.lineno}: what was seen, in numbers"
        assert numbers is not None and not (isinstance(numbers, ast.Dict) and not numbers.keys), what


def test_words_of_a_finding_that_are_told_elsewhere_bring_their_numbers():
    diagnosis = Trainer("CartPole-v1", "sac", target_entropy=5.).run(200).diagnose(steps=100)
    [finding] = [one for one in diagnosis if one.name == "strange_entropy"]
    assert finding.numbers["target_entropy"] == 5 and "the most" in finding.limits


def test_a_diagnosis_in_a_notebook_shows_each_finding_with_its_picture():
    run = Trainer("CartPole-v1", "ppo", lr=.3).run(3000)
    diagnosis = run.diagnose(steps=300)
    shown = diagnosis._repr_html_()
    assert shown.count("<svg") == shown.count("<li>") == len(diagnosis) > 1
    assert ">lr</text>" in shown and ">0.3</text>" in shown and ">times its default</text>" in shown
    assert "<svg" not in repr(diagnosis) and diagnosis[0].seen[1:] in repr(diagnosis)
    run.close()


def test_trying_reports_the_returns_of_both_runs_that_came_since():
    run = Trainer("CartPole-v1", "ppo", lr=.3).run(3000)
    tried = run.diagnose(steps=300).try_it("strange_rate", steps=300)
    assert len(tried.returns) == 2 and all(0 < ret.sum() <= 300 + 500 for ret in tried.returns.values())
    assert [tried.as_it_was, tried.changed] == [ret.mean() for ret in tried.returns.values()]
    assert "with lr=0.001 the mean return is" in tried.words and "after 300 steps, without" in tried.words
    assert tried._repr_html_().count("with the advice") == 1 and "<svg" in tried._repr_html_()
    run.close()


def test_a_trial_in_which_no_episode_ended_says_so():
    tried = Tried("strange_rate", dict(lr=.001), 5, 1., np.nan, np.nan, {"return, as it was": np.zeros(0)})
    assert tried.words.count("no episode ended") == 2 and "nan" not in tried._repr_html_()


def test_a_long_series_keeps_its_only_peak():
    values = np.zeros(9999)
    values[5000] = 7
    x, y = thinned(values)
    assert len(x) == len(y) <= 200 and y.max() == 7 and np.all(np.diff(x) >= 0)


def test_a_limit_stands_where_its_number_would():
    told = drawn_numbers({"kl": np.full(50, .02)}, {"usual": .02})
    _, line = re.findall(r'd="M\d+ ([\d.]+)L[^"]*" fill="none" stroke="#3b82c4"/>', told)
    _, limit = re.findall(r'd="M\d+ ([\d.]+)L[^"]*" fill="none" stroke="currentColor" stroke-dasharray', told)
    assert line == limit


def test_tones_are_those_of_the_page():
    assert SERIES_TONES == (POLICY, HERE, VALUE)


def test_a_finding_on_the_page_is_text():
    evil = "<img src=x>"
    told = Finding(evil, evil, "why", "what", 1., {}, {evil: np.ones(3)}, {evil: 1.})._repr_html_()
    assert "<img" not in told and told.count("&lt;img") == 4


def test_the_drawn_numbers_a_finding_says_nothing_about_the_rest_of_the_page():
    for numbers in (np.arange(3.), np.full(9, np.nan), np.zeros(0), np.zeros(9999)):
        told = drawn_numbers({"return": numbers, "reward": numbers}, {"limit": np.inf})
        assert "<svg" in told and ">return</text>" in told and "nan" not in told
        assert "<style" not in told and not re.search(r"\bid=", told)     # both hold for all pictures around it


class Unended(R2D2):
    "Counts what comes after an end"

    def target(self, batch, next_q, next_target):
        return super().target(Batch(batch, term=torch.zeros_like(batch.term)), next_q, next_target)


class Untold(IMPALA):
    "Stores how likely the other action was"

    def act(self, nets, obs, noise, carry):
        act, beside, carry = super().act(nets, obs, noise, carry)
        if noise is not None:
            beside = dict(logp=nets.behind[0](obs).logp(1 - act))
        return act, beside, carry


class Uncounted(StreamQ):
    "The same step by step"

    def target(self, nets, row):
        return nets.scale(row.rew) + self.gamma * self.scaled_values(nets, row.next_obs).amax(-1)


class OneOpinion(TD3):
    "Both critics are one"

    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        with torch.no_grad():
            for weight in (*nets.critic.parameters(), *nets.target.parameters()):
                weight[1:] = weight[:1]
        return nets


OWN = dict(
    stream_q=(Uncounted(), "CartPole-v1", 2000),
    r2d2=(Unended(), "rlbench/StatelessCartPole-v0", 1500),
    impala=(Untold(), "CartPole-v1", 2000),
    td3=(OneOpinion(learning_starts=50), "Pendulum-v1", 120),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some(OWN))
def test_what_an_own_algorithm_does_otherwise_than_its_parent_is_named(name):
    algo, env, steps = OWN[name]
    assert "unlike_its_kind" in Trainer(env, algo).run(steps).diagnose(steps=300).names[:2]
    settings = dict(learning_starts=50) if name == "td3" else {}
    healthy = Trainer(env, name, **settings).run(steps).diagnose(steps=300)
    assert not {"unlike_its_kind", "alike_critics"} & set(healthy.names)


@pytest.mark.filterwarnings("ignore")
def test_a_change_that_changes_no_number_is_no_finding():
    class Same(StreamQ):
        def target(self, nets, row):
            return super().target(nets, row).clone()

    assert "unlike_its_kind" not in Trainer("CartPole-v1", Same()).run(500).diagnose(steps=200).names


class Folded(gym.ActionWrapper):
    def action(self, act):
        return np.abs(act)


class Renumbered(gym.Wrapper):
    count = 0

    def reset(self, **how):
        self.count += 1
        self.order = np.random.default_rng(self.count).permutation(self.action_space.n)
        return self.env.reset(**how)

    def step(self, act):
        return self.env.step(int(self.order[act]))


class Fading(gym.Wrapper):
    count = 0

    def step(self, act):
        self.count += 1
        obs, rew, *rest = self.env.step(act)
        return obs, rew * .999**self.count, *rest


class Weakening(gym.Wrapper):
    episodes = 0

    def reset(self, **how):
        self.episodes += 1
        self.env.unwrapped.force_mag = 10 * .97**self.episodes
        return self.env.reset(**how)


class Shaken(gym.ActionWrapper):
    def action(self, act):
        return np.clip(act + self.unwrapped.np_random.normal(0, 4, act.shape), -3, 3).astype(np.float32)


class Upwards(gym.ActionWrapper):
    def action(self, act):
        return (act + 2) / 2


class BegunAnew(gym.Wrapper):
    def step(self, act):
        obs, rew, term, trunc, info = self.env.step(act)
        return self.env.reset()[0] if term or trunc else obs, rew, term, trunc, info


class CutShort(gym.Wrapper):
    def step(self, act):
        obs, rew, term, trunc, info = self.env.step(act)
        return obs, rew, False, term or trunc, info


class Stretched(gym.ObservationWrapper):
    def observation(self, obs):
        return obs * np.float32([1, 1, 5, 1])


SPOILT = dict(
    unsigned_actions=(Folded, "Pendulum-v1", "ppo"),
    turned_actions=(Renumbered, "LunarLander-v3", "dqn"),
    changing_reward=(Fading, "CartPole-v1", "ppo"),
    waning_actions=(Weakening, "CartPole-v1", "ppo"),
    shaken_actions=(Shaken, "InvertedPendulum-v5", "ppo"),
    changed_inside=(Upwards, "Pendulum-v1", "ppo"),
    torn_end=(BegunAnew, "CartPole-v1", "ppo"),
    outside_space=(Stretched, "CartPole-v1", "ppo"),
    end_as_limit=(CutShort, "CartPole-v1", "dqn"),
    swollen_unit=(gym.wrappers.NormalizeReward, "LunarLander-v3", "ppo"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("named", some(SPOILT))
def test_a_wrapper_that_spoils_a_world_is_named(named):
    wrap, env, algo = SPOILT[named]
    assert named in Trainer(lambda: wrap(gym.make(env)), algo).run(2500).diagnose().names[:2]
    assert named not in Trainer(env, algo).run(2500).diagnose().names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo, settings, named", [
    ("pqn", dict(epsilon="linear(1, .05, 100000000)"), "only_exploration"),
    ("stream_q", dict(kappa=500.), "strange_setting"),
    ("dqn", dict(epsilon="linear(1, .001, 20)"), "no_exploration"),
    ("dqn", dict(gradient_steps=60, learning_starts=3900), "strange_setting"),
    ("trpo", dict(cg_damping=100.), "strange_setting"),
])
def test_a_number_that_is_far_off_is_named(algo, settings, named):
    assert named in Trainer("CartPole-v1", algo, **settings).run(4000).diagnose(steps=200).names[:2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algo", some(["bc", "iql", "gail"]))
def test_data_that_are_not_of_this_world_are_named(algo):
    clever = Trainer("CartPole-v1", "ppo").run(15_000)
    for shuffled in (False, True):
        ring = record(clever, episodes=5)
        if shuffled: np.random.default_rng(0).shuffle(ring.places["act"])
        run = Trainer("CartPole-v1", algo, memory=ring)
        run.run(steps=3000) if algo == "gail" else run.run(updates=100)
        found = run.diagnose().names
        assert ("other_data" in found[:2]) == shuffled


class Ages(gym.Env):
    "Seven steps long, and shows how many of them are over in a picture"
    observation_space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def seen(self):
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[self.age, self.aim] = 255
        return picture

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        self.aim = int(self.np_random.integers(8))
        return self.seen(), {}

    def step(self, act):
        self.age += 1
        won = act == self.aim % 3
        return self.seen(), 1. if won else -1., self.age == 7, False, {}


class Drawn(gym.Env):
    "A sign that is drawn anew in each step is to be answered; each step may be the last"
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def seen(self):
        self.sign = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.sign

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, act):
        won = bool(act) == (self.sign[0] > 0)
        return self.seen(), float(won), bool(self.np_random.random() < .05), False, {}


class Corridor(gym.Env):
    "Six places in a row, the last one is the goal"
    observation_space = gym.spaces.Discrete(6)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.age = 0
        return self.at, {}

    def step(self, act):
        self.age += 1
        self.at = max(0, self.at + (1 if act else -1))
        won = self.at == 5
        return self.at, float(won), won, self.age >= 50 and not won, {}


class Follow(gym.Env):
    "A place that moves by and by is to be followed"
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def seen(self):
        return np.array([self.at, self.aim - self.at], np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        self.at, self.aim = self.np_random.uniform(-1, 1, 2)
        return self.seen(), {}

    def step(self, act):
        self.age += 1
        self.at += .2 * float(act[0])
        self.aim = float(np.clip(self.aim + .05 * self.np_random.normal(), -1.5, 1.5))
        return self.seen(), -abs(self.aim - self.at), False, self.age >= 100, {}


HEALTHY_YET = dict(
    ages=(Ages, "pqn", 2000),
    drawn=(Drawn, "ppo", 2500),
    count_bonus=("rlbench/FourRooms-v0", "count_bonus", 3000),
    rainbow=("CartPole-v1", "rainbow", 2000),
    linear_sarsa=("MountainCar-v0", "linear_sarsa", 3000),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", HEALTHY_YET)
def test_a_healthy_run_that_once_was_accused_gets_no_finding_but_of_chance(case):
    env, algo, steps = HEALTHY_YET[case]
    found = Trainer(env, algo, seed=7).run(steps).diagnose().names
    assert set(found) <= {"ends_by_chance"}               # true of signs that end at any moment


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [4, 8])
def test_where_all_is_won_entropy_may_weigh_more_than_advantages(seed):
    assert not Trainer(Corridor, "a2c", seed=seed).run(2048).diagnose().names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [7, 8])
def test_values_that_are_normalised_by_the_batch_may_tremble(seed):
    small = dict(critic_hidden=[128, 128], hidden=[64, 64], batch_size=64)
    assert "wrong_push" not in Trainer(Follow, "crossq", seed=seed, **small).run(2500).diagnose().names


@pytest.mark.filterwarnings("ignore")
def test_noisy_layers_that_change_nothing_are_named():
    run = Trainer("CartPole-v1", "dqn", seed=100, noisy=True, epsilon=0.).run(3000)
    assert run.diagnose().names[:1] == ["tries_nothing"]


@pytest.mark.filterwarnings("ignore")
def test_a_table_whose_values_are_still_alike_is_not_blind():
    assert not Trainer("rlbench/FourRooms-v0", "double_q").run(20_000).diagnose().names


EARLY = dict(
    categories=("FrozenLake-v1", "c51", 1000, {}),
    values=("rlbench/FourRooms-v0", "dqn", 1100, {}),
    soft=("MountainCarContinuous-v0", "crossq", 300, dict(critic_hidden=[64, 64], hidden=[64, 64], batch_size=64)),
    delayed=("MountainCarContinuous-v0", "crossq", 700, dict(critic_hidden=[64, 64], hidden=[64, 64], batch_size=64)),
    given=("CartPole-v1", "linear_td", 300, {}),
    undecided=("Acrobot-v1", "sac", 1000, {}),
    stream=("CartPole-v1", "stream_q", 1000, {}),
    rate=("FrozenLake-v1", "stream_ac", 300, {}),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", EARLY)
def test_a_healthy_run_is_not_accused_in_its_first_updates(case):
    env, algo, steps, settings = EARLY[case]
    assert not Trainer(env, algo, seed=31, **settings).run(steps).diagnose().names
