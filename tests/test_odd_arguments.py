"What timelines, forks, breakpoints and players are asked past the verbs is done, or refused in words"
from concurrent.futures import Future
from functools import reduce

import pytest

from rlbench.core.state import FileProblem
from rlbench.lab.hands.hands import Hands
from rlbench.lab.time.player import Player
from rlbench.training.learner import MOST_OWED
from tests.test_any_arguments import WRONG, is_clear
from tests.test_any_deeds import run_of

ASKED = {                                                 # what is called, and the arguments that it needs
    "timeline.where": dict(to=3), "timeline.path_to": dict(to=3), "timeline.rewind": dict(to=3),
    "timeline.fork": {}, "timeline.script": {}, "timeline.twin": dict(path=None), "timeline.flag": dict(words="here"),
    "timeline.do": dict(act=lambda trainer: None), "forks.take": {}, "forks.drop": {}, "stops.drop": dict(number=0),
    "step": {}, "until": {}, "call": {}, "look": {}, "change": {}, "switch": {}, "learn": {}, "speed": {}, "wait": {},
    "tick": {}, "rewind": dict(to=3), "beside": {}, "go_on": {}, "drop": {}, "save": dict(path="kept"), "load": {},
    "go_back": {},
}
VARIED = {
    "timeline.where": ["to", "n", "branch"], "timeline.path_to": ["to", "n", "branch"],
    "timeline.fork": ["n", "branch"],
    "timeline.rewind": ["to", "n", "branch"], "timeline.script": ["path"], "timeline.twin": ["path"],
    "timeline.flag": ["kind"], "timeline.do": ["act"], "forks.take": ["name"], "forks.drop": ["name"],
    "stops.drop": ["number"], "step": ["what", "n"], "until": ["predicate"], "call": ["function"], "look": ["function"],
    "change": ["changes"], "switch": ["collecting", "learning"], "learn": ["n", "who"], "speed": ["pace"],
    "wait": ["seconds"], "tick": ["seconds"], "rewind": ["to", "n", "branch"], "beside": ["name", "gamma"],
    "go_on": ["name"], "drop": ["name"], "save": ["path", "name"], "load": ["path"], "go_back": ["tree"],
}
ENDLESS = {"step", "tick", "wait"}


def state_of(player):
    return player.trainer.digest(), player.timeline.script(), repr(player.forks), repr(player.stops), player.state


def asked(player, name, given):
    answer = reduce(getattr, name.split("."), player)(**given)
    return answer.result(10) if isinstance(answer, Future) else answer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ASKED)
def test_what_is_odd_is_taken_or_refused_in_words(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    player = Player(run_of("rlbench/FrozenLake-v0", "qlearning")(), "sync")
    hands = Hands(player).step("event", 12)
    hands.beside("other", gamma=.5)
    hands.step("event", 3).break_when("rew > 5")
    found = []
    for argument in VARIED[name]:
        for wrong in WRONG:
            huge = isinstance(wrong, (int, float)) and wrong > 1e6
            if huge and name in ENDLESS: continue
            before = state_of(player)
            try: asked(player, name, ASKED[name] | {argument: wrong})
            except Exception as problem:
                if is_clear(problem) and state_of(player) == before: continue
                found.append((argument, wrong, repr(problem)))
    player.close()
    assert not found, "\n".join(map(str, found))


def test_what_was_not_asked_by_a_name_is_not_left_out_in_silence():
    player = Player(run_of("rlbench/FrozenLake-v0", "qlearning")(), "sync")
    one = Hands(player).step("event", 9)
    other = Hands(Player(run_of("rlbench/FrozenLake-v0", "qlearning")(), "sync")).step("event", 9)
    for given in dict(n=-1), dict(branch=7), dict(branch=1), dict(to=3, branch=other.timeline.branch):
        with pytest.raises(ValueError, match="rewind: "):
            one.timeline.fork(**given)
    for hands in one, other: hands.player.close()


def test_so_many_updates_that_nobody_would_wait_for_them_are_not_drawn():
    hands = Hands(Player(run_of("CartPole-v1", "dqn")(), "sync")).step("event", 30)
    learner = hands.trainer.learner
    owed = len(learner.todo)
    before = hands.trainer.digest()
    with pytest.raises(ValueError, match="from 1 to 10,000"):
        hands.learn(MOST_OWED + 1)
    assert (len(learner.todo), hands.trainer.digest()) == (owed, before)
    learner.owe(MOST_OWED)                                # the whole list at once, in a second or two
    assert len(learner.todo) == owed + MOST_OWED
    hands.player.close()


def test_a_run_that_plays_goes_on_where_the_way_back_was_refused():
    hands = Hands(Player(run_of("CartPole-v1", "dqn")(), "thread")).step("event", 30).play()
    for wrong in "nowhere", 10**12, {}:
        with pytest.raises((ValueError, FileProblem)):
            hands.rewind(wrong)
        assert hands.player.state == "playing" and hands.player.goals
    hands.rewind(3)
    assert (hands.player.state, hands.timeline.at) == ("idle", 3)
    hands.player.close()
