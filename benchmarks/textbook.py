"""The figures of Sutton & Barto (2nd edition), in their own sizes, from our code.

    python benchmarks/textbook.py [--only NAME ...] [--write]

Prints a table of our numbers beside the book's; --write keeps it in benchmarks/results/textbook.md, with the curves in textbook.png. The tests hold smaller forms of the same
experiments against these numbers.
"""
import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import rlbench

RESULTS = Path(__file__).resolve().parent / "results"


def copies(world, runs, algo, settings=None, **more):
    "Many runs in one trainer: every environment has rows of its own in the table"
    return rlbench.Trainer("rlbench/Copies-v0", algo, num_envs=runs, env_settings=dict(world=world, copies=runs, settings=settings), capacity=64, **more)


def walk_errors(runs=100, episodes=10, **how):
    "Mean error of the 19 states over the first episodes and over all runs"
    trainer = copies("rlbench/Walk-v0", runs, "td", gamma=1., **how)
    true, table = np.linspace(-1, 1, 21)[1:-1], trainer.learner.nets.v.q
    count, total, before = np.zeros(runs, int), np.zeros(runs), np.zeros(runs, bool)
    while (count < episodes).any():
        ended = trainer.until("step").data.term                             # what the step before taught is learned by now
        late = before & (count < episodes)
        val = table.detach().numpy().reshape(runs, -1)[:, 1:-1]
        total[late] += np.sqrt(((val[late] - true)**2).mean(1))
        count[before] += 1
        before = ended
    return total.mean() / episodes


def figure_7_2(ax):
    "n-step TD on the random walk"
    best = {}
    for n in (1, 2, 4, 8, 16):
        alphas = [a for a in (.1, .2, .4, .6, .8, 1.) if a * n <= 4]
        found = [walk_errors(n=n, alpha=a) for a in alphas]
        ax.plot(alphas, found, ".-", label=f"n = {n}")
        best[n] = min(found), alphas[int(np.argmin(found))]
    ax.set(title="n-step TD, 19 states (7.2)", xlabel="α", ylabel="error, first 10 episodes", ylim=(.2, .6))
    return [("7.2", f"lowest error with n = {n}, at α = {a}", f"{error:.3f}", book)
            for (n, (error, a)), book in zip(best.items(), ("about .35", "about .28", "about .27, the lowest of all", "about .28", "about .32"))]


def figure_12_6(ax):
    "Off-line λ-return by waiting, and TD(λ) by traces"
    best = {}
    for lam in (0., .4, .8, .9, .95):
        alphas = [a for a in (.05, .1, .2, .3, .4, .6, .8) if a <= 2.5 * (1 - lam) + .1]
        found = [walk_errors(trace="accumulating", lam=lam, alpha=a) for a in alphas]
        ax.plot(alphas, found, ".-", label=f"λ = {lam}")
        best[lam] = min(found), alphas[int(np.argmin(found))]
    ax.set(title="TD(λ), 19 states (12.6)", xlabel="α", ylim=(.2, .6))
    return [("12.6", f"lowest error with λ = {lam}, at α = {a}", f"{error:.3f}", "the lowest between λ = .8 and .9") for lam, (error, a) in best.items()]


def figure_6_6(ax):
    "The cliff, online"
    rows = []
    for target, book in (("sarsa", "about -25"), ("q", "about -50"), ("expected", "above both")):
        trainer = copies("rlbench/CliffWalk-v0", 50, "sarsa", dict(max_episode_steps=-1), target=target, alpha=.5, eps=.1, gamma=1.)
        total, found, done = np.zeros(50), np.full((50, 500), np.nan), np.zeros(50, int)
        while (done < 500).any():
            row = trainer.until("step").data
            total += row.rew
            ended = np.flatnonzero(row.term & (done < 500))
            found[ended, done[ended]] = total[ended]
            done[ended] += 1
            total[row.term] = 0
        mean = found.mean(0)
        ax.plot(np.convolve(mean, np.ones(20) / 20, "valid"), label=target)
        rows.append(("6.6", f"{target}: mean return of episodes 401 to 500, 50 runs", f"{mean[400:].mean():.1f}", book))
    ax.set(title="cliff walk, ε = .1 (6.6)", xlabel="episode", ylim=(-100, 0))
    return rows


def figure_8_2(ax):
    "The Dyna maze"
    rows = []
    for n, book in ((0, "about 25 episodes to the optimum"), (5, "about 5"), (50, "about 3")):
        lengths = []
        for seed in range(30):
            trainer = rlbench.Trainer("rlbench/DynaMaze-v0", "dyna", seed=seed, n=n, alpha=.1, eps=.1, gamma=.95, capacity=64)
            lengths.append([trainer.until("episode").ended[0][2] for _ in range(10 if n else 30)])
        mean = np.mean(lengths, 0)
        ax.plot(range(2, len(mean) + 1), mean[1:], label=f"n = {n}")
        rows.append(("8.2", f"n = {n}: steps of episodes 2, 5, {len(mean)}, 30 runs (14 is the shortest)", ", ".join(f"{mean[i]:.0f}" for i in (1, 4, -1)), book))
    ax.set(title="Dyna maze (8.2)", xlabel="episode", ylabel="steps", ylim=(0, 800))
    return rows


def changing(ax, world, title, steps, change, kappa, figure, book):
    rows, runs = [], 20
    for name, bonus in (("Dyna-Q+", kappa), ("Dyna-Q", 0.)):
        trainer = rlbench.Trainer(world, "dyna", num_envs=runs, env_settings=dict(copies=runs), n=10, alpha=.5, eps=.1, gamma=.95, kappa=bonus, capacity=64)
        reward = np.cumsum([trainer.until("step").data.rew for _ in range(steps)], 0)
        ax.plot(reward.mean(1), label=name)
        after = reward[-1] - reward[change - 1]
        rows.append((figure, f"{name}: reward after the change, of {runs} runs", f"{after.mean():.0f} ± {after.std() / np.sqrt(runs):.0f}", book))
    ax.axvline(change, color="grey", lw=.6)
    ax.set(title=title, xlabel="step", ylabel="reward so far")
    return rows


def figure_8_4(ax): "The wall moves"; return changing(ax, "rlbench/BlockingMaze-v0", "blocking maze (8.4)", 3000, 1000, 1e-3, "8.4", "Dyna-Q+ is ahead")
def figure_8_5(ax): "A shortcut opens"; return changing(ax, "rlbench/ShortcutMaze-v0", "shortcut maze (8.5)", 6000, 3000, 1e-3, "8.5", "only Dyna-Q+ finds the shortcut")


def figure_10_1(ax):
    "Mountain car with tiles, without a limit on the steps of an episode"
    lengths = []
    for seed in range(4):
        trainer = rlbench.Trainer("MountainCar-v0", "linear_sarsa", seed=seed, env_settings=dict(max_episode_steps=-1), alpha=.5, eps=0., gamma=1., capacity=64)
        lengths.append([trainer.until("episode").ended[0][2] for _ in range(300)])
    mean = np.mean(lengths, 0)
    ax.plot(mean)
    ax.set(title="mountain car, α = .5 (10.2)", xlabel="episode", ylabel="steps", yscale="log")
    return [("10.2", "mean steps of episodes 1, 50 to 100, 250 to 300; 4 runs", f"{mean[0]:.0f}, {mean[50:100].mean():.0f}, {mean[250:].mean():.0f}", "many hundred; about 150; about 120")]


FIGURES = dict(n_step=figure_7_2, lambda_=figure_12_6, cliff=figure_6_6, dyna=figure_8_2, blocking=figure_8_4, shortcut=figure_8_5, car=figure_10_1)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    args.add_argument("--write", action="store_true")
    args = args.parse_args()
    fig, axes = plt.subplots(-(-len(args.only) // 4), min(4, len(args.only)), figsize=(3.6 * min(4, len(args.only)), 2.9 * -(-len(args.only) // 4)), squeeze=False)
    rows = []
    for name, ax in zip(args.only, axes.flat):
        rows += FIGURES[name](ax)
        if len(ax.lines) > 1: ax.legend(frameon=False, fontsize=7)
        print(*rows[-1], sep="  ", flush=True)
    for ax in axes.flat[len(args.only):]: ax.axis("off")
    fig.tight_layout()
    lines = ["| figure | what | ours | book |", "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    text = "\n".join(["# The textbook", "", "`python benchmarks/textbook.py --write`", "", "Read off the book's plots where it prints no number.", "", *lines, "", "![curves](textbook.png)", ""])
    print(text)
    if args.write:
        (RESULTS / "textbook.md").write_text(text)
        fig.savefig(RESULTS / "textbook.png", dpi=70)


if __name__ == "__main__":
    main()
