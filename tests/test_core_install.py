"With the core install alone: everything but pictures works, and what is missing is named"
import subprocess
import sys

import pytest

BARE = """
import sys
for name in ("pygame", "Box2D", "tensorboard", "torch.utils.tensorboard", "minari", "h5py", "rlax", "jax", "jupyterlab",
             "scipy", "pandas", "nbdev", "fastcore", "nbformat", "nbclient", "nbconvert", "playwright"):
    sys.modules[name] = None
import rlbench
small = dict(n_steps=16, hidden=(8,), num_envs=2)
"""
JOBS = dict(
    workbench="""
wb = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", **small)
wb.step("iteration")
cards = {card.view.name: card for card in wb.page.cards}
assert not [name for name, card in cards.items() if card.broken]
assert cards["frame"].view.text() == "no picture: what draws it is not installed, pip install 'rlbench[render]'"
assert wb.image()[:4] == b"\\x89PNG"
wb.close()
""",
    train="""
trainer = rlbench.train("CartPole-v1", "ppo", run_id="a", steps=100, progress=False, eval_every=50, eval_episodes=2,
                        **small)
trainer = rlbench.train("CartPole-v1", "ppo", run_id="a", steps=200, progress=False, resume=True)
print(rlbench.evaluate(trainer, 2), rlbench.evaluate(rlbench.load("runs/a/best.rlb"), 2))
""",
    play="""
from rlbench.launch.cli import main
rlbench.Trainer("CartPole-v1", "ppo", **small).save("a.rlb")
assert main(["play", "a.rlb", "--output", "a.gif"]) == 2
""",
    own_pictures="""
from rlbench.launch.cli import main
rlbench.Trainer("rlbench/CliffWalk-v0", "qlearning").run(steps=50).save("a.rlb")
assert main(["play", "a.rlb", "--output", "a.gif", "--max-steps", "5"]) == 0
""",
    lists="""
from rlbench.launch.cli import main
assert main(["algorithms"]) == 0 and main(["explain", "ppo"]) == 0
""",
)


@pytest.mark.parametrize("job", JOBS)
def test_without_any_optional_package(tmp_path, job):
    done = subprocess.run([sys.executable, "-c", BARE + JOBS[job]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if job == "play":
        assert "no picture" in done.stderr and "rlbench[render]" in done.stderr
