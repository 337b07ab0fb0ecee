"With the core install alone: everything but pictures works, and what is missing is named"
import subprocess
import sys

BARE = """
import sys
for name in ("pygame", "Box2D", "mujoco", "tensorboard", "torch.utils.tensorboard", "minari", "h5py", "rlax", "jax",
             "jupyterlab", "scipy", "pandas", "nbdev", "fastcore", "nbformat", "nbclient", "nbconvert", "playwright"):
    sys.modules[name] = None
import rlbench
small = dict(n_steps=16, hidden=(8,), num_envs=2)
"""
PYTHON = """
wb = rlbench.Workbench("CartPole-v1", "ppo", driver="sync", **small)
wb.step("iteration")
cards = {card.view.name: card for card in wb.page.cards}
assert not [name for name, card in cards.items() if card.broken]
assert cards["frame"].view.text().startswith("cart position")      # it is drawn from its state
assert wb.image()[1:4] == b"PNG"
wb.close()

wb = rlbench.Workbench("FrozenLake-v1", "qlearning", driver="sync", views=["frame"])
wb.step("step")
(card,) = wb.page.cards
assert card.view.text() == "no picture: what draws it is not installed, pip install 'rlbench[render]'"
wb.close()

often = dict(progress=False, eval_every=50, eval_episodes=2)
trainer = rlbench.train("CartPole-v1", "ppo", run_id="a", steps=100, **often, **small)
trainer = rlbench.train("CartPole-v1", "ppo", run_id="a", steps=200, progress=False, resume=True)
print(rlbench.evaluate(trainer, 2), rlbench.evaluate(rlbench.load("runs/a/best.rlb"), 2))
"""
COMMANDS = """
from rlbench.launch.cli import main
assert main(["algorithms"]) == 0 and main(["explain", "ppo"]) == 0
rlbench.Trainer("rlbench/CliffWalk-v0", "qlearning").run(steps=50).save("cliff.rlb")
assert main(["play", "cliff.rlb", "--output", "a.gif", "--max-steps", "5"]) == 0
rlbench.Trainer("CartPole-v1", "ppo", **small).save("pole.rlb")
assert main(["play", "pole.rlb", "--output", "a.gif"]) == 2
"""


def alone(code, folder):
    "What a program says on stderr, in a process without any optional package"
    done = subprocess.run([sys.executable, "-c", BARE + code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_in_python_and_on_the_command_line(tmp_path):
    said = alone(PYTHON + COMMANDS, tmp_path)
    assert "no picture" in said and "rlbench[render]" in said
