"""Data sets of known behaviour, for whoever learns from what is given: made on demand, the same rows every time.

    python benchmarks/datasets.py [NAME ...] [--folder FOLDER]

Rules of one line play, most of them with noise of their own, in environments side by side; each player fills the same
number of rows. Nothing large is kept here: a file is made in the folder that is named, and is read from there the next
time. What stands here is a hash of every column. The last bit of a sine differs between kinds of processors, so where
the hash is another one, the rows must at least tell the same: how many episodes, and what they returned.
"""
import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlbench.buffers.datasets import digest, load_ring, returns_in, save_ring
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.envs.find import make

HOME = Path.home() / ".cache" / "rlbench"
ALIKE = .05             # share by which returns may differ where the last bits do


# ---- rules: observations (N, ...) -> actions (N, ...)

def balance(obs):
    "Push right (1) where the pole leans, moves or drifts to the right: it never falls"
    place, speed, angle, turning = obs.T
    return (angle + .4 * turning + .05 * speed + .02 * place > 0).astype(np.int64)

def stumble(obs):
    "Push where the pole leans, however it moves: it falls after some forty steps"
    return (obs[:, 2] > 0).astype(np.int64)

def topple(obs):
    "Push away from where the pole leans: it falls at once"
    return 1 - stumble(obs)

def swing_up(obs):
    "Torque that feeds the swing until it reaches the top, and there holds it"
    cos, sin, speed = obs.T
    missing = 5 - (speed**2 / 6 + 5 * cos)                # energy, to stand at the top
    pump = np.sign(speed) * 2 * np.clip(2 * missing, -1, 1)
    hold = -16 * np.arctan2(sin, cos) - 4 * speed
    return np.where((cos > .8) & (sin > -.6) & (sin < .6), hold, pump).clip(-2, 2)[:, None]

def sag(obs):
    "Torque against all motion: it comes to rest where it hangs"
    return (-obs[:, 2:]).clip(-2, 2)

def rest(obs):
    "No torque"
    return np.zeros((len(obs), 1))


# ---- players and data sets

@dataclass(frozen=True)
class Player:
    "A rule, and how far it is not followed"
    rule: object        # observations -> actions
    noise: float = 0.   # probability of any action; of numbers: deviation of what is added


@dataclass(frozen=True)
class Recipe:
    "Who plays where, and for how long"
    env: str
    players: tuple      # one for each environment
    steps: int          # of each environment
    sha: str            # of the columns
    told: tuple         # episodes that ended, their mean return


def of_two(rng, chosen, noise):
    "Actions 0 or 1 with noise (N,), and log-probabilities"
    act = np.where(rng.random(len(chosen)) < noise, rng.integers(2, size=len(chosen)), chosen)
    return act, np.log(noise / 2 + (1 - noise) * (act == chosen), dtype=np.float32)


def torques(rng, chosen, noise):
    "Torques with noise (N,) inside their box"
    return (chosen + noise[:, None] * rng.standard_normal(chosen.shape)).clip(-2, 2).astype(np.float32)


def acted(rng, players, obs):
    "What each player does in its environment, as columns"
    chosen = np.concatenate([player.rule(obs[i:i + 1]) for i, player in enumerate(players)])
    noise = np.array([player.noise for player in players])
    if chosen.ndim > 1: return Batch(act=torques(rng, chosen, noise))
    act, logp = of_two(rng, chosen, noise)
    return Batch(act=act, logp=logp)


def played(recipe):
    "A Ring with all that the players saw and did"
    rng = np.random.default_rng(0)
    env = make(recipe.env, num_envs=len(recipe.players))
    obs = env.reset(0)["agent"]
    ring = Ring(recipe.steps, len(recipe.players))
    while ring.sizes.min() < recipe.steps:
        did = acted(rng, recipe.players, obs)
        step = env.step(dict(agent=did.act))["agent"]
        paid = dict(rew=step.rew, term=step.term, trunc=step.trunc, next_obs=step.next_obs)
        ring.add(Batch(obs=obs, **did, **paid), step.valid)
        obs = step.obs
    return ring


EXPERT = Player(balance)
CLUMSY = (Player(balance, .2), Player(balance, .4), Player(stumble, .1), Player(stumble, .3), Player(stumble, .1),
          Player(topple, .1), Player(topple, .3), Player(balance, 1.))
SWINGING = (Player(swing_up, .5), Player(sag, .5), Player(rest, 1.), Player(swing_up, 1.), Player(rest, 2.))
RECIPES = {
    "cartpole-expert": Recipe("CartPole-v1", 10 * (EXPERT,), 500, "f4f94c1f3dda50b3", (10, 500.0)),
    "cartpole-mixed": Recipe("CartPole-v1", CLUMSY, 2500, "b25185aeabf35fb4", (763, 24.59)),
    "cartpole-random": Recipe("CartPole-v1", 10 * (Player(balance, 1.),), 1000, "f1941422dfeecace", (459, 21.3)),
    "pendulum-expert": Recipe("Pendulum-v1", 10 * (Player(swing_up),), 1000, "93502a63af29cf61", (50, -161.87)),
    "pendulum-mixed": Recipe("Pendulum-v1", 2 * SWINGING, 2000, "5661a32911bf879e", (100, -928.07)),
    "pendulum-random": Recipe("Pendulum-v1", 10 * (Player(rest, 2.),), 1000, "6e884e3106f1252e", (50, -1244.43)),
}


# ---- the same every time

def episodes_told(ring):
    "(episodes held whole, their mean return)"
    ret = returns_in(ring)
    return len(ret), round(float(ret.mean()), 2)


def check_same(name, ring):
    "ValueError where the rows are not those that the hash was made of, nor as good"
    recipe = RECIPES[name]
    if digest(ring) == recipe.sha: return "the same bits"
    episodes, mean = episodes_told(ring)
    wanted, usual = recipe.told
    if math.isclose(episodes, wanted, rel_tol=ALIKE) and math.isclose(mean, usual, rel_tol=ALIKE):
        return "the same but for the last bits"
    raise ValueError(f"{name}: {episodes} episodes that return {mean}, expected {wanted} that return {usual}; "
                     "delete the file, or say why the rows are others")


def dataset(name, folder=HOME):
    "The path of a data set's file, made if it is not there"
    if name not in RECIPES:
        raise ValueError(f"no data set {name!r}; there are {', '.join(RECIPES)}")
    path = Path(folder) / f"{name}.rlb"
    if not path.exists():
        ring = played(RECIPES[name])
        check_same(name, ring)
        save_ring(path, ring)
    return path


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)} (default: all)")
    args.add_argument("--folder", default=HOME, help="where the files are")
    args = args.parse_args()
    for name in args.names or RECIPES:
        path = dataset(name, args.folder)
        ring = load_ring(path)
        print(f"{path}: {len(ring):,} rows, {digest(ring)}, {check_same(name, ring)}")


if __name__ == "__main__":
    main()
