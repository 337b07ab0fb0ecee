"""Data sets of known behaviour, for whoever learns from what is given: made on demand, the same rows every time.

    python benchmarks/datasets.py [NAME ...] [--folder FOLDER]

Agents play at three stages of their training (dataset_agents.py), and where there are none, rules of a few lines
(dataset_rules.py), most of them with noise of their own, in environments side by side; each player fills the same
number of rows. Nothing large is kept here: a file is made in the folder that is named, and is read from there the
next time. What stands here is a hash of every column. The last bit of a sine differs between kinds of processors, so
where the hash is another one, the rows must at least tell the same: how many episodes, and what they returned.
"""
import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import dataset_rules as rules
from benchmarks.dataset_agents import agent
from rlbench.buffers.datasets import digest, load_ring, returns_in, save_ring
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.words import unknown
from rlbench.envs.find import make

HOME = Path.home() / ".cache" / "rlbench"
ALIKE = .05             # share by which returns may differ where the last bits do


# ---- players and data sets

@dataclass(frozen=True)
class Player:
    "A rule or an agent, and how far it is not followed"
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


def choices(rng, chosen, noise, count):
    "Actions out of so many, any of them with probability noise (N,), and log-probabilities"
    act = np.where(rng.random(len(chosen)) < noise, rng.integers(count, size=len(chosen)), chosen)
    return act, np.log(noise / count + (1 - noise) * (act == chosen), dtype=np.float32)


def numbers(rng, chosen, noise, box):
    "Actions with noise (N,) inside their box"
    noisy = chosen + noise[:, None] * rng.standard_normal(chosen.shape)
    return noisy.clip(box.low, box.high).astype(np.float32)


def acted(rng, players, space, obs):
    "What each player does in its environment, as columns"
    chosen = np.concatenate([player.rule(obs[i:i + 1]) for i, player in enumerate(players)])
    noise = np.array([player.noise for player in players])
    if isinstance(space, Box):
        return Batch(act=numbers(rng, chosen, noise, space))
    act, logp = choices(rng, chosen, noise, space.n)
    return Batch(act=act, logp=logp)


def played(recipe):
    "A Ring with all that the players saw and did"
    rng = np.random.default_rng(0)
    env = make(recipe.env, num_envs=len(recipe.players))
    obs = env.reset(0)["agent"]
    ring = Ring(recipe.steps, len(recipe.players))
    while ring.sizes.min() < recipe.steps:
        did = acted(rng, recipe.players, env.single.action_space, obs)
        step = env.step(dict(agent=did.act))["agent"]
        paid = dict(rew=step.rew, term=step.term, trunc=step.trunc, next_obs=step.next_obs)
        ring.add(Batch(obs=obs, **did, **paid), step.valid)
        obs = step.obs
    return ring


def by(rule, *noise):
    "Players of one rule, each with noise of its own"
    return tuple(Player(rule, share) for share in noise)


CARTPOLE = {stage: agent("CartPole-v1", stage) for stage in ("first", "early", "expert")}
PENDULUM = {stage: agent("Pendulum-v1", stage) for stage in ("first", "early", "expert")}
ACROBOT = {stage: agent("Acrobot-v1", stage) for stage in ("first", "early", "expert")}
CLUMSY = by(CARTPOLE["expert"], .2, .4, 1.) + by(CARTPOLE["early"], .1, .3, .1) + by(CARTPOLE["first"], .1, .3)
SWINGING = by(PENDULUM["expert"], .5, 1.) + by(PENDULUM["early"], .5, 1.) + by(PENDULUM["first"], 2.)
PUMPING = by(ACROBOT["expert"], .2, .5, .8, 1., 1.) + by(ACROBOT["early"], .3, .6) + by(ACROBOT["first"], .3)
ROCKING = by(rules.rock, .1, .3, .5, .8, 1.) + by(rules.coast, .2, .5, 1.)
PUSHING = by(rules.rock_hard, .5, 1., 2., 3.) + by(rules.rest, .5, 1., 2., 3.)
FLYING = by(rules.land, .1, .3, .5, .8, 1.) + by(rules.drop, .2, .5, .8)
GLIDING = by(rules.land_softly, .2, .5, 1., 2.) + by(rules.drop_softly, .3, .6, 1., 2.)
CARTING = by(rules.upright, .5, 1., 2., 3.) + by(rules.rest, .5, 1., 2., 3.)
STACKING = by(rules.both_upright, 0., .05, .1, .3) + by(rules.rest, .1, .3, .6, 1.)
REACHING = by(rules.reach, .1, .3, .6, 1.) + by(rules.drop_softly, .1, .3, .6, 1.)
PADDLING = by(rules.follow_the_ball, .1, .2, .4, .7, 1., 1., 1., 1.)
WALKING = by(rules.walk_the_edge, .1, .3, .5, .7, 1., 1., 1., 1.)
EXACT = 10 * (0.,)      # no noise, ten times
RECIPES = {
    "cartpole-expert": Recipe("CartPole-v1", by(CARTPOLE["expert"], *EXACT), 500, "fc76a1312562d502", (10, 500.0)),
    "cartpole-mixed": Recipe("CartPole-v1", CLUMSY, 2500, "24cb410be65c0951", (809, 23.44)),
    "cartpole-random": Recipe("CartPole-v1", 10 * by(CARTPOLE["first"], 1.), 1000, "f1941422dfeecace", (459, 21.3)),
    "pendulum-expert": Recipe("Pendulum-v1", by(PENDULUM["expert"], *EXACT), 1000, "8ba46681734576c9", (50, -157.95)),
    "pendulum-mixed": Recipe("Pendulum-v1", 2 * SWINGING, 2000, "e77fc0b455c0abb9", (100, -734.39)),
    "pendulum-random": Recipe("Pendulum-v1", 10 * by(PENDULUM["first"], 2.), 1000, "e225b020beb02f36", (50, -1233.92)),
    "acrobot-expert": Recipe("Acrobot-v1", by(ACROBOT["expert"], *EXACT), 500, "30de896ca41dbc41", (60, -76.88)),
    "acrobot-mixed": Recipe("Acrobot-v1", PUMPING, 2500, "5df6f29770ae05a6", (77, -245.36)),
    "mountaincar-expert": Recipe("MountainCar-v0", by(rules.rock, *EXACT), 500, "4f8e318c1eb7be17", (40, -119.97)),
    "mountaincar-mixed": Recipe("MountainCar-v0", ROCKING, 2500, "7dcf863b5b2747b4", (106, -181.01)),
    "lander-expert": Recipe("LunarLander-v3", by(rules.land, *EXACT), 500, "5ba455843cfa949f", (19, 243.51)),
    "lander-mixed": Recipe("LunarLander-v3", FLYING, 2500, "63aaa783798784ec", (192, -97.56)),
    "mountaincar-continuous-expert": Recipe("MountainCarContinuous-v0", by(rules.rock_hard, *EXACT),
                                            500, "44f2b94ee7a2259c", (40, 89.38)),
    "mountaincar-continuous-mixed": Recipe("MountainCarContinuous-v0", PUSHING, 2500, "3c51121714a6c3a4", (73, 72.67)),
    "lander-continuous-expert": Recipe("LunarLanderContinuous-v3", by(rules.land_softly, *EXACT),
                                       500, "00f7710a75a41b90", (20, 283.68)),
    "lander-continuous-mixed": Recipe("LunarLanderContinuous-v3", GLIDING, 2500, "ee1fd9377ed2374f", (123, -160.08)),
    "inverted-pendulum-mixed": Recipe("InvertedPendulum-v5", CARTING, 2500, "e57119c954ffa5b2", (1672, 10.86)),
    "double-pendulum-mixed": Recipe("InvertedDoublePendulum-v5", STACKING, 2500, "3aabbfc43b3af5c7", (1474, 105.09)),
    "reacher-mixed": Recipe("Reacher-v5", REACHING, 2500, "4b8f9e81b2cf882f", (400, -31.99)),
    "breakout-mixed": Recipe("MinAtar/Breakout-v1", PADDLING, 2500, "b78269b5063c0016", (1679, .58)),
    "cliff-mixed": Recipe("rlbench/CliffWalk-v0", WALKING, 2500, "c043cc54adb14563", (357, -409.63)),
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
    if name not in RECIPES: raise ValueError(unknown("data set", name, RECIPES))
    recipe = RECIPES[name]
    path = Path(folder) / f"{name}-{recipe.sha[:8]}.rlb"        # a file of other rows has another name
    if not path.exists():
        ring = played(recipe)
        check_same(name, ring)
        save_ring(path, ring)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)} (default: all)")
    parser.add_argument("--folder", default=HOME, help="where the files are")
    args = parser.parse_args()
    for name in args.names:
        if name not in RECIPES: parser.error(unknown("data set", name, RECIPES))
    for name in args.names or RECIPES:
        path = dataset(name, args.folder)
        ring = load_ring(path)
        print(f"{path}: {len(ring):,} rows, {digest(ring)}, {check_same(name, ring)}")


if __name__ == "__main__":
    main()
