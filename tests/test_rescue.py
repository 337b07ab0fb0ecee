"What is left of a run that nobody saved"
from types import SimpleNamespace

import pytest

import rlbench
from rlbench.core.state import FileProblem
from rlbench.lab.page.fork_views import parted_html
from rlbench.lab.time import rescue
from rlbench.lab.time.player import Player
from rlbench.lab.time.rescue import EVERY, Rescue, forks_kept, newest_copy, page_key
from rlbench.training.trainer import Trainer

SHORT = dict(seed=0, num_envs=2, n_steps=16, batch_size=16)


@pytest.fixture
def player():
    made = Player(Trainer("CartPole-v1", "ppo", **SHORT), driver="sync")
    yield made
    made.close()


def owner(player, state):
    return SimpleNamespace(trainer=player.trainer, state=state)


def test_a_copy_is_made_after_some_seconds_of_motion_and_then_of_what_is_new(player, tmp_path, monkeypatch):
    now = [0.]
    monkeypatch.setattr(rescue, "perf_counter", lambda: now[0])
    kept = Rescue(player, tmp_path)
    player.step("step", 20)
    made = []
    for _ in range(60):
        now[0] += 1
        kept.follow(owner(player, "playing"))
        made.append(kept.path.exists())
    assert made.index(True) == EVERY                    # the first second is seen at its end
    assert rlbench.load(kept.path).digest() == player.trainer.digest()
    written = kept.path.stat().st_mtime_ns
    now[0] += 100
    kept.follow(owner(player, "playing"))
    assert kept.path.stat().st_mtime_ns == written      # nothing is new
    player.step("step", 4)
    now[0] += 100
    kept.follow(owner(player, "paused"))
    assert rlbench.load(kept.path).digest() == player.trainer.digest()


def test_time_at_rest_is_not_time_in_motion(player, tmp_path, monkeypatch):
    now = [0.]
    monkeypatch.setattr(rescue, "perf_counter", lambda: now[0])
    kept = Rescue(player, tmp_path)
    player.step("step", 20)
    for _ in range(60):
        now[0] += 1
        kept.follow(owner(player, "paused"))
    assert kept.moved == 0 and not kept.path.exists()


def test_the_same_kind_of_page_is_offered_it_and_no_other(player, tmp_path):
    kept = Rescue(player, tmp_path)
    kept.moved = EVERY
    player.step("step", 20)
    kept.end()
    twin = Player(Trainer("CartPole-v1", "ppo", **SHORT), driver="sync")
    other = Player(Trainer("CartPole-v1", "dqn", seed=0), driver="sync")
    assert newest_copy(Rescue(twin, tmp_path)) == kept.path
    with pytest.raises(FileProblem, match="no copy of an earlier run"):
        newest_copy(Rescue(other, tmp_path))
    for one in (twin, other): one.close()


def test_a_page_is_known_by_its_folder(player, tmp_path, monkeypatch):
    before = page_key(player.trainer)
    monkeypatch.chdir(tmp_path)
    assert page_key(player.trainer) != before


def test_a_copy_that_another_kernel_took_away_meanwhile_is_not_offered(player, tmp_path):
    kept = Rescue(player, tmp_path)
    (tmp_path / f"{kept.key}-1-0.rlb").symlink_to(tmp_path / "gone")
    assert kept.earlier == []
    kept.moved = EVERY
    player.step("step", 20)
    kept.end()
    assert kept.earlier == [kept.path] and not kept.why_not


def test_large_memories_are_not_copied(player, tmp_path, monkeypatch):
    monkeypatch.setattr(rescue, "LARGEST_COPY", 10)
    kept = Rescue(player, tmp_path)
    kept.moved = EVERY
    player.step("step", 20)
    kept.end()
    assert not kept.path.exists()


def test_where_nothing_can_be_written_the_run_goes_on_and_the_reason_is_known(player, tmp_path):
    (tmp_path / "file").write_text("")
    kept = Rescue(player, tmp_path / "file" / "below")
    kept.moved = EVERY
    player.step("step", 20)
    with pytest.warns(UserWarning, match="no copy of this run is kept"):
        kept.keep(player.trainer)
    assert "file" in kept.why_not
    assert player.step("step", 1).result()


def test_a_workbench_without_a_notebook_copies_nothing_and_can_recover(tmp_path, monkeypatch):
    monkeypatch.setenv("RLBENCH_CONFIG_DIR", str(tmp_path))
    wb = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", views=["curve"], **SHORT)
    wb.step("step", 40)
    with pytest.raises(FileProblem, match="no copy"): wb.recover()
    wb.page.earlier.rescue.moved = EVERY
    digest = wb.trainer.digest()
    wb.close()
    again = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", views=["curve"], **SHORT)
    assert again.recover().trainer.digest() == digest
    again.close()


def test_forks_are_kept_beside_the_run_and_go_on_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RLBENCH_CONFIG_DIR", str(tmp_path))
    sizes = dict(driver="sync", views=["curve"], **SHORT)
    wb = rlbench.Workbench("CartPole-v1", "ppo", **sizes)
    wb.step("step", 20).beside("a/b: lr=.01", lr=.01)
    wb.beside(gamma=.5)
    wb.step("step", 40)
    wb.page.earlier.rescue.moved = EVERY
    digests = {run.name: run.trainer.digest() for run in [wb.forks[name] for name in wb.forks.known]}
    wb.close()
    again = rlbench.Workbench("CartPole-v1", "ppo", **sizes).recover()
    assert {name: again.forks[name].trainer.digest() for name in again.forks.known} == digests
    told = repr(again.forks)
    assert "a/b: lr=.01" in told and "not compared" in told and "left after" not in told
    assert "agent.gamma is 0.99 in hand, 0.5 here" in told and "agent.lr is 0.001 in hand, 0.01 here" in told
    assert told.count("their weights are up to") == 2
    assert "weights are up to" in parted_html(again.forks.rival.pair)
    again.step("step", 3).rewind("step", -2)
    assert not any(run.problem for run in again.forks.others)
    names = list(again.forks.known)
    again.go_on(names[1]).step("step", 2).go_on(names[0])
    scope = {}
    exec(again.script(), scope)
    assert {name: run.digest() for name, run in scope["runs"].items()}.keys() >= digests.keys()
    lost = [run.trainer for run in again.forks.others]
    again.close()
    assert len(lost) == 2


def test_forks_that_are_gone_leave_no_copy(player, tmp_path):
    kept = Rescue(player, tmp_path)
    kept.moved = EVERY
    player.step("step", 20)
    player.beside("other", lr=.1).result()
    player.step("step", 2)
    kept.keep(player.trainer)
    assert list(forks_kept(kept.path)) == ["other"]
    player.drop("other").result()
    player.step("step", 2)
    kept.keep(player.trainer)
    assert not forks_kept(kept.path)


def test_forks_that_are_too_large_do_not_keep_the_run_from_being_copied(player, tmp_path, monkeypatch):
    kept = Rescue(player, tmp_path)
    kept.moved = EVERY
    player.step("step", 20)
    player.beside("other", lr=.1).result()
    monkeypatch.setattr(rescue, "LARGEST_COPY", rescue.held_bytes(player.trainer) * 1.5)
    kept.keep(player.trainer)
    assert kept.path.exists() and not forks_kept(kept.path)
