"""rlbench: a workbench for reinforcement learning. Step it by hand in a notebook, or run the same code at full speed."""
__version__ = "0.1.0"

from rlbench.algos.algorithm import Algorithm, algorithms, register
from rlbench.core.batch import Batch, describe
from rlbench.core.state import FileProblem
from rlbench.envs import mazes, probes, problems, tabular, tasks, walks  # register their environments with gymnasium
from rlbench.envs.env import check_env, make
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load


def __getattr__(name):
    "Those that need more than the core are imported when they are asked for"
    if name == "Workbench":
        from rlbench.lab.workbench import Workbench
        return Workbench
    if name == "train":
        from rlbench.training.runs import train
        return train
    raise AttributeError(f"module 'rlbench' has no attribute {name!r}")
