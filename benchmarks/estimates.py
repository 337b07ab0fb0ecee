"""Do the intervals of off-policy estimates hold the truth? Worlds that are solved exactly, a hundred memories of each.

    python benchmarks/estimates.py [--repeats 100] [--episodes 60] [--write]

Prints how often the 95 % interval of every method held the exact value, how far the estimates lay from it, and how many
episodes were worth something. --write keeps it in benchmarks/results/estimates.md.
"""
import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.envs.tabular import Tabular, evaluate_policy
from rlbench.training.estimate import METHODS, estimate

PAGE = Path(__file__).resolve().parent / "results" / "estimates.md"
GAMMA = .9


def walk():
    "Five places in a row; a step goes the other way one time in five; the last pays 1 and is the end"
    def towards(place, by):
        there = max(0, place + by)
        return there, float(there == 4), there == 4
    def outcomes(place, by):
        return [(.8, *towards(place, by)), (.2, *towards(place, -by))]
    table = [[outcomes(place, -1), outcomes(place, 1)] for place in range(4)]
    return Tabular([*table, [[(1., 4, 0., True)]] * 2], [1, 0, 0, 0, 0])


def garden():
    "Six states, three actions, chances and rewards drawn once; from everywhere there is a way to the end"
    rng = np.random.default_rng(0)
    table = []
    for _ in range(6):
        rows = []
        for _ in range(3):
            chances = rng.dirichlet(np.ones(6)) * .8
            rew = rng.normal(size=6)
            rows.append([(.2, 6, 0., True), *zip(chances, range(6), rew, [False] * 6)])
        table.append(rows)
    return Tabular([*table, [[(1., 6, 0., True)]] * 3], [.5, .5, 0, 0, 0, 0, 0])


def policies(world):
    "(behaviour, the policy in question), (S, A) probabilities"
    S, A = world.model().R.shape
    rng = np.random.default_rng(1)
    return np.full((S, A), 1 / A), .5 / A + .5 * rng.dirichlet(np.ones(A), size=S)


WORLDS = dict(walk=walk, garden=garden)


def watched(world, behaviour, episodes, rng):
    "A Ring with whole episodes of a policy (S, A), and how likely its actions were"
    rows = []
    for _ in range(episodes):
        obs, _ = world.reset(seed=int(rng.integers(2**31)))
        ended = False
        while not ended:
            act = int(rng.choice(behaviour.shape[1], p=behaviour[obs]))
            next_obs, rew, ended, _, _ = world.step(act)
            rows.append((obs, act, rew, ended, next_obs, np.log(behaviour[obs, act])))
            obs = next_obs
    obs, act, rew, term, next_obs, logp = (np.array(column)[:, None] for column in zip(*rows))
    ring = Ring(len(rows), 1)
    ring.extend(Batch(obs=obs, act=act, rew=rew, term=term, trunc=np.zeros_like(term), next_obs=next_obs, logp=logp))
    return ring


def coverage(name, episodes, repeats, methods=METHODS, resamples=200):
    "{method: (share of intervals that hold the truth, root mean square error, mean effective episodes)}, the truth"
    world = WORLDS[name]()
    behaviour, wanted = policies(world)
    truth = world.initial_state_distrib @ evaluate_policy(world.model(), wanted, GAMMA)
    found = {method: [] for method in methods}
    for repeat in range(repeats):
        memory = watched(world, behaviour, episodes, np.random.default_rng(repeat))
        for method in methods:
            one = estimate(lambda obs: wanted[obs], memory, method, GAMMA, resamples=resamples)
            found[method].append((one.low <= truth <= one.high, (one.value - truth)**2, one.effective))
    told = {method: np.mean(rows, axis=0) for method, rows in found.items()}
    return {method: (held, error**.5, worth) for method, (held, error, worth) in told.items()}, truth


def page(episodes, repeats):
    "The whole page"
    lines = ["# Off-policy estimates", "", "`python benchmarks/estimates.py --write`", "",
             f"{repeats} memories of {episodes} episodes of each world; how many of the 95 % intervals held the exact "
             "value, and the root mean square error.", "",
             "| world | exact | method | held | error | episodes that counted |", "|---|---|---|---|---|---|"]
    for name in WORLDS:
        found, truth = coverage(name, episodes, repeats)
        for method, (held, error, worth) in found.items():
            lines.append(f"| {name} | {truth:.3f} | {method} | {held:.2f} | {error:.3f} | {worth:.1f} |")
    return "\n".join([*lines, ""])


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--repeats", type=int, default=100)
    args.add_argument("--episodes", type=int, default=60)
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    text = page(args.episodes, args.repeats)
    print(text)
    if args.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
