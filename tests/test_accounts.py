"What an account says of an update, against numbers worked by hand; for every algorithm, and with the run unharmed"
import html
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy import optimize as optimise

import rlbench
from rlbench.algos.r2d2 import q_along
from rlbench.core.batch import Batch
from rlbench.core.state import same
from rlbench.envs.env import EnvProblem
from rlbench.lab.time.accounts import cell_line, explain_next, explain_update, how_far
from rlbench.lab.views.backups import BackupView, draw_tree, trimmed
from rlbench.lab.views.part_histories import PartsHistory
from rlbench.lab.views.updates import TargetsView, UpdateView
from rlbench.lab.pictures.components import as_page, is_revealed
from rlbench.lab.pictures.drawing import Sheet
from rlbench.lab.time.timeline import Timeline
from rlbench.training.trainer import Trainer
from tests.cases import CASES, differs

WITHOUT_TARGETS = ("bc", "iql", "gradient_bandit", "reinforce")         # of single rows; a baseline gives the last some
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def check_looked_at(account):
    "Everything that can be asked of an account is answered"
    rows = len(account.rows.row)
    assert all(len(column) == rows for column in account.rows.values())
    assert {"moved", "followed"} & account.rows.keys(), "neither where values nor where probabilities went"
    assert "target" in account.rows or account.algo.name in WITHOUT_TARGETS
    assert str(account).count("\n") == 0
    assert str(account.table(account.columns[0])).count("\n") == min(rows, 10)
    for i in (0, rows - 1):
        assert account.line(i) and "nan" not in account.line(i)
        draw_tree(Sheet(), trimmed(account.diagram(i)))


@every_case
def test_every_algorithm_gives_an_account_and_the_run_does_not_notice(case):
    trainer = case.begun(num_envs=2)
    held = trainer.snapshot()
    account = explain_next(trainer)
    assert differs(trainer.snapshot(), held) == ""
    check_looked_at(account)
    trainer.until("update")
    last = trainer.learner.last
    assert account.number == trainer.learner.updates
    assert same(account.last.batch, last.batch) and same(account.last.parts, last.parts)      # the very same step


@every_case
def test_the_last_update_can_be_explained_after_it(case):
    trainer = case.trainer(num_envs=2)
    timeline = Timeline(trainer, share=.05)
    trainer.until("update", 4)
    held = trainer.snapshot()
    watchers = list(trainer.watchers)
    account = explain_update(timeline)
    assert differs(trainer.snapshot(), held) == "" and trainer.watchers == watchers
    assert same(account.last.parts, trainer.learner.last.parts)
    earlier = explain_update(timeline, trainer.learner.updates - 2)
    assert earlier.number == account.number - 2
    check_looked_at(earlier)


def test_q_learning_by_hand():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0, gamma=.9, lr=.1).run(steps=400)
    for _ in range(30):
        before = trainer.learner.nets.q.values.clone()
        account = explain_next(trainer)
        trainer.until("update")
        row = trainer.learner.last.batch[0]
        s = int(row.obs)
        a = int(row.act)
        after = trainer.learner.nets.q.values
        follows = before[int(row.next_obs)].max().item()
        target = float(row.rew) + .9 * follows * (not row.term)
        assert account.rows.target[0] == pytest.approx(target)
        assert account.rows.before[0] == before[s, a] and account.rows.after[0] == after[s, a]
        if target == before[s, a]: continue
        assert account.rows.moved[0] == pytest.approx(.1)
        assert account.line(0).startswith(f"q[{s}, {a}] += 0.1 · (−")
    assert account.layers.keys() == {"q"}
    assert account.layers["q"] == pytest.approx((after - before).norm().item())


def test_two_rows_of_one_cell_are_not_told_as_one():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0, num_envs=2, epsilon=0., initial=0.)
    trainer.learner.nets.q.values[36, 0] = 1.                           # both go up
    account = explain_next(trainer)
    assert account.rows.before.tolist() == [1, 1] and account.rows.estimate.tolist() == [1, 0]
    assert account.line(0).endswith("now −0.5, 0.75 of the error nearer")         # 1 - (1 - .5) ** 2


@pytest.mark.parametrize("settings", [dict(n_step=1), dict(n_step=3, prioritized_replay_alpha=.6), dict(double=False)])
def test_dqn_by_hand(settings):
    common = dict(learning_starts=40, batch_size=16, hidden=(8,), gamma=.9, lr=.01, num_envs=2)
    trainer = Trainer("CartPole-v1", "dqn", seed=0, **common, **settings).run(steps=120)
    account = explain_next(trainer)
    before = account.nets.q
    trainer.until("update")
    batch = trainer.learner.last.batch
    now = trainer.learner.nets.q
    here = batch.act[:, None]
    with torch.no_grad():
        follows = account.nets.target(batch.next_obs)
        chooser = before(batch.next_obs) if settings.get("double", True) else follows
        target = batch.ret + batch.disc * follows.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        was, is_now = (net(batch.obs).gather(1, here).squeeze(1) for net in (before, now))
    rows = account.rows
    for name, wanted in dict(target=target, before=was, after=is_now, estimate=was).items():
        assert np.allclose(rows[name], wanted.numpy(), atol=1e-6), name
    share = ((is_now - was) / (target - was)).numpy()
    assert np.allclose(rows.moved, share, rtol=.05, atol=1e-3)          # a quotient of small differences
    assert set(account.against) == set(np.flatnonzero(rows.moved < 0))
    paid = [np.dot(row, .9 ** np.arange(len(row))) for row in account.rewards or batch.ret[:, None].tolist()]
    assert np.allclose(paid, batch.ret)
    if "weight" in batch:
        assert np.allclose(rows.weight, batch.weight) and "weight" in account.columns


def test_ppo_by_hand():
    settings = dict(num_envs=2, n_steps=16, batch_size=16, hidden=(8,), lr=.1)
    trainer = Trainer("CartPole-v1", "ppo", seed=0, **settings)
    trainer.until("update", 6)
    account = explain_next(trainer)
    trainer.until("update")
    batch = trainer.learner.last.batch
    rows = account.rows
    with torch.no_grad():
        both = account.nets, trainer.learner.nets
        logp, logp_after = (nets.policy(batch.obs).logp(batch.act).numpy() for nets in both)
        val, val_after = (trainer.learner.algo.values(nets, batch.obs).numpy() for nets in both)
    ratio = np.exp(logp - batch.logp.numpy())
    adv = batch.adv.numpy()
    adv = (adv - adv.mean()) / adv.std(ddof=1)
    clipped = ((adv > 0) & (ratio > 1.2)) | ((adv < 0) & (ratio < .8))
    assert clipped.any() and (rows.clipped == clipped).all()
    wanted = dict(logp=logp, logp_after=logp_after, ratio=ratio, adv=adv, before=val, after=val_after, target=batch.ret)
    for name, numbers in wanted.items():
        assert np.allclose(rows[name], numbers, atol=1e-4), name
    followed = np.where(clipped, 0, np.sign(adv) * (logp_after - logp))
    assert np.allclose(rows.followed, followed, atol=1e-4)
    assert "clipped, nothing is asked of it" in account.line(int(np.flatnonzero(clipped)[0]))


def test_what_was_done_between_two_events_counts():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0, lr=.1)
    timeline = Timeline(trainer)
    trainer.until(lambda event: event.kind == "process")
    timeline.do(lambda trainer: trainer.learner.nets.q.values.fill_(3.))    # just before a step
    trainer.set(lr=.5)
    trainer.until("update", 10)
    account = explain_update(timeline, 1)
    assert account.rows.before[0] == 3 and account.rows.moved[0] == pytest.approx(.5)


def test_updates_before_a_branch_and_on_it():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0, lr=.1)
    timeline = Timeline(trainer, share=.5)
    trainer.until("update", 40)
    wanted = explain_update(timeline, 15).line(0)
    timeline.rewind("update", -20)
    trainer.set(lr=.5)
    trainer.until("update", 15)
    assert explain_update(timeline, 15).line(0) == wanted
    number = trainer.learner.updates
    assert [explain_update(timeline, n).rows.moved[0] for n in (20, number - 14, number)] == pytest.approx([.1, .5, .5])
    with pytest.raises(ValueError, match=f"has made {number} updates so far; .*, got {number + 1}"):
        explain_update(timeline, number + 1)


def test_what_came_before_the_timeline_is_said_to():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0)
    trainer.until("update", 5)
    timeline = Timeline(trainer)
    with pytest.raises(ValueError, match="has made 5 updates so far; expected the number of one of them, got 6"):
        explain_update(timeline, 6)
    with pytest.raises(ValueError, match="update 5 of agent was made before this timeline began"):
        explain_update(timeline)
    trainer.until("update", 3)
    assert explain_update(timeline, 6).number == 6


def test_several_learners_have_updates_of_their_own():
    trainer = Trainer("rlbench/Pennies-v0", "ppo", seed=0, n_steps=8, batch_size=8, n_epochs=2, hidden=(8,))
    timeline = Timeline(trainer)
    lasts = {who: {} for who in trainer.learners}
    for _ in range(37):
        trainer.until("update")
        for who, learner in trainer.learners.items():
            if learner.last:
                lasts[who].setdefault(learner.updates, learner.last.parts)
    for who, made in lasts.items():
        for number in (1, len(made) // 2, len(made)):
            account = explain_update(timeline, number, who)
            assert account.who == who and same(account.last.parts, made[number])


def test_who_learns_nothing_is_told_so():
    trainer = Trainer("CartPole-v1", "dqn", learning_starts=50)
    with pytest.raises(ValueError, match="has made 0 updates"):
        explain_update(Timeline(trainer))
    trainer.learning = False
    with pytest.raises(ValueError, match="learning is switched off"):
        explain_next(trainer)


def test_losses_that_name_nothing_are_said_to():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20, batch_size=4, hidden=(4,))
    account = explain_next(trainer)
    bare = replace(account, rows=Batch(row=account.rows.row))
    assert "name neither targets" in bare.line(0) and "name neither targets" in str(bare) and not len(bare.against)


class Moody(gym.Env):
    "Its rewards cannot be had again"
    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    drawn = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, act):
        self.t += 1
        return np.full(1, self.t, np.float32), float(self.drawn.random()), self.t == 9, False, {}


@pytest.mark.filterwarnings("ignore")
def test_a_step_that_cannot_be_taken_again_is_not_told_as_if_it_could():
    trainer = Trainer(Moody, "ppo", n_steps=8, batch_size=8, hidden=(4,), check_env=False)
    timeline = Timeline(trainer, share=1e-9)
    trainer.until("update", 3)
    with pytest.raises((ValueError, EnvProblem), match="come back|put back"):
        explain_update(timeline)


# on the page

def test_the_workbench_explains_the_last_update_and_any_before_it():
    wb = rlbench.Workbench("CartPole-v1", "dqn", driver="sync", learning_starts=50, batch_size=16, hidden=(16,), seed=0)
    wb.step("update", 20)
    held = wb.trainer.snapshot()
    event = wb.player.timeline.at
    assert [wb.explain_update(number).number for number in (None, 3)] == [20, 3]
    panel = wb.page.account
    panel.look.click()
    assert same(wb.trainer.snapshot(), held) and wb.player.timeline.at == event
    assert panel.account.number == 20 and is_revealed(panel.widget)
    as_page(panel.table, order="moved", down=False)
    assert panel.table.ids[0] == np.nanargmin(panel.account.rows.moved)
    as_page(panel.table, start=8)
    assert panel.table.total == 16 and len(panel.table.ids) == 8
    as_page(panel.table, selected=panel.table.ids[0], opened=1)
    assert panel.account.line(panel.table.ids[0])[:20] in html.unescape(panel.line.value) and panel.picture.html
    wb.close()


@pytest.mark.parametrize("leave", [
    lambda wb: wb.reset(),
    lambda wb: wb.rewind("update", -2),
    lambda wb: wb.rewind(0),
    lambda wb: wb.page.account.widget.children[-1].click(),
    lambda wb: wb.load("run.rlb"),
], ids=["reset", "back", "to the start", "by the button", "another run"])
def test_what_is_explained_says_of_which_update_and_goes_with_its_run(leave, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wb = rlbench.Workbench("FrozenLake-v1", "qlearning", driver="sync", seed=0, views=["curve"])
    wb.step("update", 3).save("run.rlb").step("update")
    panel = wb.page.account
    panel.look.click()
    assert "The last update" in panel.widget.children[0].value
    assert "update 4 of agent by qlearning: 1 row;" in panel.said.value and "Account(" not in panel.said.value
    wb.step("update", 2)
    assert "Update 4, row by row" in panel.widget.children[0].value and "6 were made by now" in panel.said.value
    assert panel.account.number == 4 and panel.table.total == 1
    wb.rewind("update", -1)
    assert panel.account.number == 4                                    # it is still behind us
    leave(wb)
    assert (panel.account, panel.table.total, is_revealed(panel.widget)) == (None, 0, False)
    wb.step("update", 5)
    assert not is_revealed(panel.widget)
    wb.close()


def test_the_panel_says_why_there_is_nothing_to_explain():
    wb = rlbench.Workbench("CartPole-v1", "dqn", driver="sync")
    wb.page.account.look.click()
    assert "rl-problem" in wb.page.account.said.value and "has made 0 updates" in wb.page.account.said.value
    with pytest.raises(ValueError, match="has made 0 updates"):
        wb.explain_update()
    wb.close()


def test_it_explains_while_another_thread_plays():
    wb = rlbench.Workbench("CartPole-v1", "ppo", driver="thread", n_steps=16, batch_size=16, hidden=(8,), seed=0)
    wb.step("update", 5).play()
    account = wb.explain_update()
    wb.pause()
    assert account.number >= 5 and wb.trainer.learner.updates >= account.number
    wb.close()


def own(base, change, name="own"):
    "An algorithm whose parts are others: change(the parts of a loss or an update)"
    class Own(base):
        def losses(self, nets, batch):
            for group, loss, parts in base.losses(self, nets, batch):
                yield group, loss, change(parts)

        def update(self, nets, batch):
            return change(base.update(self, nets, batch))

    if base.update is None: del Own.update
    Own.name = f"own_{name}"
    return Own


ODD_PARTS = dict(
    nested=lambda parts: dict(all=dict(parts)),
    means=lambda parts: {name: part.mean() for name, part in parts.items()},
    short=lambda parts: {name: part[:1] for name, part in parts.items()},
    empty=lambda parts: {name: part[:0] for name, part in parts.items()},
    wide=lambda parts: {name: torch.as_tensor(part)[:, None].expand(-1, 3) for name, part in parts.items()},
    nothing=lambda parts: {},
    half=lambda parts: {name: parts[name] for name in list(parts)[::2]},
    other_half=lambda parts: {name: parts[name] for name in list(parts)[1::2]},
)
FAMILIES = dict(
    ppo=("CartPole-v1", dict(n_steps=16, batch_size=16, n_epochs=2, hidden=(8,))),
    dqn=("CartPole-v1", dict(learning_starts=20, batch_size=16, n_step=2, hidden=(8,))),
    qlearning=("rlbench/CliffWalk-v0", {}),
)


@pytest.mark.parametrize("parts", ODD_PARTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_of_any_form_are_explained_as_far_as_they_tell(family, parts):
    env, settings = FAMILIES[family]
    algo = own(rlbench.algos.algorithm.get(family), ODD_PARTS[parts])
    trainer = Trainer(env, algo(**settings), seed=0, num_envs=2, log_every=20)
    views = [view(trainer, "agent") for view in (UpdateView, TargetsView, PartsHistory)]
    views += [view(trainer, "agent") for view in (BackupView,) if view.fits(trainer, "agent")]
    trainer.watchers.append(lambda run, event: [view.note(run, event) for view in views if view.note])
    timeline = Timeline(trainer)
    trainer.until("update", 5)
    account = explain_update(timeline)
    assert str(account) and str(account.table()) and account.line(0) and "nan" not in account.line(0)
    draw_tree(Sheet(), trimmed(account.diagram(0)))
    if parts in ("means", "short", "nothing"):
        assert not {"ratio", "clipped", "pushed"} & account.rows.keys()      # the policy is asked itself
    for view in views:
        view.draw(trainer, moving=False)
        assert view.text()
    trainer.run(steps=100)
    row = trainer.metrics.rows[-1]
    assert any(name.startswith("all.") for name in row) == (parts == "nested")
    Trainer(env, algo(**settings), num_envs=2).restore(trainer.snapshot())


class Sketch(rlbench.algos.algorithm.get("reinforce")):
    "REINFORCE that says of its rows how likely their actions are"
    name = "sketch"

    def losses(self, nets, batch):
        for group, loss, _ in super().losses(nets, Batch(batch, adv=batch.gain, ret=batch.gain)):
            yield group, loss, dict(logp=nets.policy(batch.obs).logp(batch.act), adv=batch.gain.mean())

    def targets(self, nets, rows, noise):
        data, todo = super().targets(nets, rows, noise)
        return Batch(obs=data.obs, act=data.act, gain=data.ret), todo


def test_how_likely_an_action_is_can_be_told_without_what_was_wished():
    trainer = Trainer("CartPole-v1", Sketch(), seed=0)
    trainer.until("update")
    account = explain_next(trainer)
    assert {"logp", "logp_after"} <= account.rows.keys() and "followed" not in account.rows
    assert "do not name all that tells" in str(account)
    assert "log-probability" in account.line(0) and "likely;" not in account.line(0)


SHORT = dict(seed=0, num_envs=2, n_steps=16, batch_size=8, n_epochs=2, hidden=(8,),
             gae_lambda=0., normalize_reward=False)


def worth_next(account):
    "What follows each row of PPO's targets without λ, by the critic of when they were made"
    batch = account.last.batch
    return account.rows.discount, account.rows.follows, (batch.ret - batch.rew).numpy()


def check_discount(account, gamma):
    "The sums are of this discount"
    discount, follows, rest = worth_next(account)
    goes_on = ~account.last.batch.term.numpy()
    assert discount[goes_on] == pytest.approx(gamma)
    assert follows[goes_on] == pytest.approx(rest[goes_on] / gamma, rel=1e-4)
    assert f" + {gamma:g} · " in account.line(int(np.flatnonzero(goes_on)[0]))


def test_sums_keep_the_discount_of_when_their_targets_were_made(tmp_path):
    trainer = Trainer("CartPole-v1", "ppo", **SHORT)
    timeline = Timeline(trainer)
    view = TargetsView(trainer, "agent")
    trainer.until("update")
    trainer.set(gamma=.5)
    trainer.until("update")
    check_discount(explain_update(timeline), .99)
    check_discount(explain_next(trainer), .99)
    view.draw(trainer, moving=False)
    assert "0.99 ×" in view.text()
    trainer.save(tmp_path / "owed.rlb")
    loaded = rlbench.load(tmp_path / "owed.rlb")
    assert loaded.digest() == trainer.digest()
    check_discount(explain_next(loaded), .99)
    check_discount(explain_next(loaded.fork(gamma=.7)), .99)
    held = trainer.snapshot()
    trainer.until("iteration")
    trainer.until(lambda event: event.kind == "process")
    view.draw(trainer, moving=False)
    assert "0.99 ×" in view.text()                        # the last step is that of the rollout before
    view.draw(trainer.fork(), moving=False)
    assert "0.99 ×" in view.text()
    trainer.until("update")
    check_discount(explain_update(timeline), .5)
    assert "by_hand" not in trainer.state() and "by_hand" in held
    trainer.restore(held)
    check_discount(explain_next(trainer), .99)
    del held["by_hand"]                                   # as older files are
    trainer.restore(held)
    check_discount(explain_next(trainer), .5)


def test_targets_of_a_step_have_the_discount_of_the_step():
    settings = dict(seed=0, learning_starts=32, batch_size=16, hidden=(16,), gradient_steps=4, train_freq=4)
    trainer = Trainer("Pendulum-v1", "sac", **settings)
    trainer.until("update", 2)
    view = TargetsView(trainer, "agent")
    trainer.set(gamma=.5)
    view.draw(trainer, moving=False)
    assert "0.99 ×" in view.text()                        # it was taken before
    assert explain_next(trainer).rows.discount == pytest.approx(.5)
    trainer.until("update")
    view.draw(trainer, moving=False)
    assert "0.5 ×" in view.text()


def test_two_discounts_in_one_list_are_not_told_as_one():
    trainer = Trainer("CartPole-v1", "ppo", **SHORT)
    trainer.until("update")
    trainer.set(gamma=.5)
    trainer.learner.owe(2)
    account = explain_next(trainer)
    assert "paid" not in account.rows and "target" in account.rows
    loaded = trainer.fork()
    assert "paid" not in explain_next(loaded).rows


def test_rewards_are_told_where_they_are_those_of_the_target():
    settings = dict(seed=0, num_envs=1, n_step=3, learning_starts=20, batch_size=8, hidden=(8,))
    trainer = Trainer("CartPole-v1", "dqn", **settings)
    trainer.until(lambda event: event.kind == "process")
    trainer.set(gamma=.5)
    assert "1 + 0.99 · 1 + 0.9801 · 1 + 0.9703 · " in explain_next(trainer).line(0)
    trainer.set(n_step=1)
    assert "target 2.97 + 0.9703 · " in explain_next(trainer).line(0)


@pytest.mark.parametrize("asked, words", [
    (lambda account: account.table("movd"), "unknown column 'movd'; did you mean 'moved'"),
    (lambda account: account.table(["moved"]), "unknown column ['moved']"),
    (lambda account: account.table(most=-1), "table: most = -1: expected a whole number"),
    (lambda account: account.table(most="x"), "table: most = 'x': expected a whole number"),
    (lambda account: account.texts(99), "row 99: the update had 8 rows, numbered from 0"),
    (lambda account: account.place(-1), "row -1: the update had 8 rows, numbered from 0"),
    (lambda account: account.line(1.5), "row 1.5: the update had 8 rows, numbered from 0"),
])
def test_what_an_account_does_not_have_is_named(asked, words):
    account = explain_next(Trainer("CartPole-v1", "dqn", learning_starts=20, batch_size=8, hidden=(8,)))
    with pytest.raises(ValueError) as refused: asked(account)
    assert words in str(refused.value)
    assert str(account.table("row", down=False, most=2)).split()[-1] and len(account.texts(np.int64(0))) > 3


@pytest.mark.parametrize("algo", ["ppo", "impala", "trpo", "recurrent_ppo", "stream_ac", "stream_q"])
def test_what_rewards_are_counted_in_is_not_taken_for_the_gradient(algo):
    trainer = Trainer("CartPole-v1", algo, seed=0)
    timeline = Timeline(trainer)
    trainer.until("iteration", 6 if "stream" in algo else 2)
    account = explain_update(timeline)
    was, now = float(account.nets.scale.unit), float(trainer.learner.nets.scale.unit)
    assert now > 1.01 * was
    assert f"rewards count in units of {now:.4g}, in those of {was:.4g} before" in str(account)
    if "rec" not in algo and "q" not in algo:
        with torch.no_grad():
            after = trainer.learner.algo.values(trainer.learner.nets, account.last.batch.obs)
        assert np.allclose(account.rows.after, after.numpy() / now * was, rtol=1e-4)
    assert not {"scale", "usual.0"} & {layer for layer in account.layers}


@every_case
def test_the_layers_of_an_account_are_those_that_learn(case):
    trainer = case.begun(num_envs=2)
    trainer.until("update", 2)
    who = next(iter(trainer.learners))
    counted = {"scale", "usual", "norm", "visits", "traces", "policy_traces", "value_traces", "tally", "pulls", "queue"}
    assert not counted & {layer.split(".")[0] for layer in explain_next(trainer, who).layers}


def test_a_target_of_several_steps_says_how_its_episode_ended():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, env_settings=dict(max_episode_steps=6), learning_starts=50,
                      batch_size=64, hidden=(16,), n_step=3)
    trainer.until("update", 3)
    account = explain_next(trainer)
    memory = trainer.learner.memory
    rows, alive = memory.ahead(account.last.batch.index.numpy(), 3)
    seen = set()
    for i in range(64):
        last = memory.gather(rows[alive[:, i], i])[-1:]
        steps = int(alive[:, i].sum())
        how = "ended" * bool(last.term[0]) + "cut" * bool(last.trunc[0])
        assert account.texts(i)[2] == (f"{how} after {steps} steps" if how and steps > 1 else how)
        seen.add((how, steps))
    assert {("cut", 2), ("cut", 3)} <= seen


def next_account(algo, env, updates, **settings):
    trainer = Trainer(env, algo, seed=0, **settings)
    trainer.until("update", updates)
    return explain_next(trainer), trainer


def test_where_a_policy_went_is_told_where_losses_name_nothing_of_it():
    account, trainer = next_account("trpo", "CartPole-v1", 15, n_steps=16, n_epochs=2, batch_size=16, hidden=(8,))
    trainer.until("update")
    assert trainer.learner.last.left == 0
    batch = account.last.batch
    with torch.no_grad():
        logp = [nets.policy(batch.obs).logp(batch.act).numpy() for nets in (account.nets, trainer.learner.nets)]
    assert np.allclose([account.rows.logp, account.rows.logp_after], logp, atol=1e-6)
    centred = batch.adv.numpy() - account.last.data.adv.numpy().mean()
    assert np.allclose(account.rows.followed, np.sign(centred) * (logp[1] - logp[0]), atol=1e-6)
    account, _ = next_account("trpo", "CartPole-v1", 14, n_steps=16, n_epochs=2, batch_size=16, hidden=(8,))
    assert "logp" not in account.rows and "its policy is not moved in this one" in str(account)

    account, _ = next_account("stream_ac", "CartPole-v1", 8)
    assert np.array_equal(account.rows.pushed, np.sign(account.rows.error)) and "log-probability" in account.line(0)

    boxed = dict(learning_starts=20, batch_size=8, hidden=(8,))
    account, _ = next_account("sac", "Pendulum-v1", 4, **boxed)
    assert "logp_after" in account.rows and "followed" not in account.rows
    assert "its policy climbs the critic" in str(account)
    account, trainer = next_account("td3", "Pendulum-v1", 3, **boxed)
    trainer.until("update")
    with torch.no_grad():
        was, now = (nets.policy(account.last.batch.obs).mode() for nets in (account.nets, trainer.learner.nets))
    assert np.allclose(account.rows["shift"], (now - was).abs()[:, 0].numpy(), atol=1e-6)
    assert account.rows["shift"].any()
    assert "own action here moved by" in account.line(0)


def test_who_remembers_has_values_before_and_after():
    account, _ = next_account("recurrent_ppo", "CartPole-v1", 2, n_steps=16, hidden=(8,), memory_size=8)
    rows = account.rows
    assert np.allclose(rows.before[:4], rows.estimate[:4], atol=.5) and {"after", "moved"} <= rows.keys()
    assert "of the error" in account.line(0)


@pytest.mark.parametrize("n_step, burn_in", [(1, 0), (3, 4)])
def test_r2d2_by_hand(n_step, burn_in):
    how = dict(n_step=n_step, burn_in=burn_in, sequence_length=6, gamma=.9, learning_starts=100, batch_size=4)
    account, learner = next_account("r2d2", "CartPole-v1", 3, hidden=(8,), **how)
    batch, rows = account.last.batch, account.rows
    obs = torch.cat([batch.obs[:1], batch.next_obs])
    with torch.no_grad():
        chosen, judged = (q_along(account.nets[name], obs, batch.carry[0], burn_in, batch.burn.any(0))[1:]
                          for name in ("q", "target"))
    best = judged.gather(-1, chosen.argmax(-1, keepdim=True)).squeeze(-1)
    longest = 0
    for i, row in enumerate(rows.row):
        t, b = divmod(int(row), batch.rew.shape[1])
        paid = []
        while True:
            paid.append(float(batch.rew[t, b]))
            over = bool(batch.term[t, b] | batch.trunc[t, b])
            if over or len(paid) == n_step or t + 1 == len(batch.rew) or not batch.valid[t + 1, b]:
                break
            t += 1
        y = float(best[t, b])           # on the scale that is learned: h(x) = sign(x) (sqrt(|x| + 1) - 1) + .001 x
        plain = optimise.brentq(lambda x: np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + .001 * x - y, -1e4, 1e4)
        left = 0. if batch.term[t, b] else .9 ** len(paid)
        whole = sum(.9**k * rew for k, rew in enumerate(paid)) + left * plain
        assert rows.paid[i] == pytest.approx(sum(.9**k * rew for k, rew in enumerate(paid)))
        assert rows.discount[i] == pytest.approx(left, abs=1e-6) and account.rewards[i] == paid
        assert not left or rows.follows[i] == pytest.approx(plain, abs=1e-3)
        assert rows.target[i] == pytest.approx(np.sign(whole) * (np.sqrt(abs(whole) + 1) - 1) + .001 * whole, abs=1e-5)
        longest = max(longest, len(paid))
    assert longest == n_step and "has the target h(1" in account.line(0)
    assert "its targets are on a scale of their own, h(x)" in str(account) and "r " in account.diagram(0).edges[0][0]


def test_nothing_is_told_as_minus_0():
    assert how_far(-0.) == "0 of the error nearer"
    row = dict(before=1., after=1., moved=-0., paid=2., discount=0.)
    assert cell_line(row, "q[3, 1]", "2") == "q[3, 1] += 0 · (2 − 1) = 0"
