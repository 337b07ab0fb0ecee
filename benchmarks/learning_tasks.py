"What is trained where, for how long, and what is expected: a line of the learning table each"
import json
from dataclasses import asdict, dataclass, field

from rlbench.training.presets import GAMES_REMEMBERED, preset_for

SOLVED = "solved, as registered by gymnasium"
ZOO_DQN = SOLVED + "; rl-zoo3's DQN: 500 within 50,000 steps, one run"
ZOO_PPO = SOLVED + "; rl-zoo3's PPO: 500 within 100,000 steps, one run"
NO_PEER = SOLVED + "; no library publishes one"
RLLIB_PG = "RLlib's policy gradient, within 100,000 steps"


def whole(algo, settings):
    "Every setting of an algorithm, its defaults with these instead"
    from rlbench.algos.algorithm import get
    cls = get(algo)
    found = dict(num_envs=cls.num_envs) | asdict(cls()) | settings
    return json.loads(json.dumps(found, default=str))     # as a row has them that was read


@dataclass(frozen=True)
class Task:
    "What is trained where, for how long, and what is expected"
    env: str
    algo: str
    steps: int                                     # of the environment; 0: from given data alone
    level: float | None                            # that the median seed must reach; None: the optimum
    source: str                                    # of the level
    settings: dict = field(default_factory=dict)   # everything else is at its default
    preset: str | None = None
    memory: str | None = None                      # name of the data set that is given, see datasets.py
    long: bool = False                             # run only when asked for by name, or by --long; all of MuJoCo
    note: str = ""                                 # what was tried, where it is not reached

    def trainer(self, seed):
        from rlbench import Trainer
        from benchmarks.datasets import dataset
        from rlbench.buffers.datasets import load_ring
        memory = self.memory and load_ring(dataset(self.memory))
        return Trainer(self.env, self.algo, seed=seed, memory=memory, preset=self.preset, traced=True, **self.settings)

    @property
    def chosen(self):
        "The settings that are not left at their defaults"
        found = preset_for(self.preset, self.env, self.algo).settings if self.preset else {}
        return found | self.settings

    @property
    def whole(self):
        "Every setting, the defaults too"
        return whole(self.algo, self.chosen)

    @property
    def told(self):
        "What is trained where and how, in words; everything else is at its default"
        chosen = [f"{name}={value!r}" for name, value in self.chosen.items()]
        given = [f"from {self.memory}"] if self.memory else []
        return ", ".join([self.env, self.algo, f"{self.steps:,} steps", *given, *chosen])


def tuned(env, algo, level, source, **more):
    "The task that proves a preset"
    return Task(env, algo, preset_for("tuned", env, algo).steps, level, source, preset="tuned", **more)


BLINES = {"Breakout": 28, "Asterix": 15, "SpaceInvaders": 131}      # one checkpoint of PPO each


def minatar(game, algo, steps, level, **more):
    "A game of MinAtar; the level is our own, to be calibrated"
    source = f"a calibration; gymnax-blines' PPO: {BLINES[game]} within 10,000,000 steps"
    return Task(f"MinAtar/{game}-v1", algo, steps, level, source, long=True, **more)


DQN = dict(
    n_step=3,
    lr="linear(0.001, 0, 50000)",
    batch_size=128,
    train_freq=4,
    gradient_steps=2,
    target_update_interval=200,
    epsilon="linear(1, 0.01, 6000)",
    hidden=[128, 128],
)
CLIFF = dict(gamma=1., lr=.5, epsilon=.1)
STEPS_COST = dict(env_settings=dict(step=-1.))
SHORTEST = "optimal path, by dynamic programming"
WINDY = "17 steps an episode while it explores (Sutton & Barto, example 6.5); the best is -15"
ARMS = "95 % of what the best arm pays in 1000 pulls"
CLEANRL = "by CleanRL, 3 seeds, v4, rewards normalised, within 1,000,000 steps"
FAMILIES = {
    "tables": {
        "qlearning-cliff": tuned(
            "rlbench/CliffWalk-v0", "qlearning", -13, "optimal path (Sutton & Barto, example 6.6)"),
        "qlearning-rooms": Task(
            "rlbench/FourRooms-v0", "qlearning", 40_000, None, SHORTEST, CLIFF | STEPS_COST),
        "count-bonus-lake": Task(
            "FrozenLake-v1", "count_bonus", 8_000, 1, "the goal is reached",
            dict(env_settings=dict(map_name="8x8", is_slippery=False))),
        "bandit-arms": Task("rlbench/Bandit-v0", "bandit", 1000, 1239, ARMS),
        "gradient-bandit-arms": Task("rlbench/Bandit-v0", "gradient_bandit", 1000, 1239, ARMS),
        "value-iteration-rooms": Task(
            "rlbench/FourRooms-v0", "value_iteration", 0, -18, SHORTEST, dict(gamma=1.) | STEPS_COST),
        "policy-iteration-rooms": Task(
            "rlbench/FourRooms-v0", "policy_iteration", 0, -18, SHORTEST, dict(gamma=1.) | STEPS_COST),
        "monte-carlo-rooms": Task("rlbench/FourRooms-v0", "monte_carlo", 40_000, 1, "the goal is reached"),
        "sarsa-windy": Task("rlbench/WindyGrid-v0", "sarsa", 40_000, -17, WINDY),
        "double-q-windy": Task("rlbench/WindyGrid-v0", "double_q", 40_000, -17, WINDY),
        "tree-backup-windy": Task("rlbench/WindyGrid-v0", "tree_backup", 40_000, -17, WINDY),
        "sarsa-lambda-windy": Task("rlbench/WindyGrid-v0", "sarsa_lambda", 40_000, -17, WINDY),
        "dyna-cliff": Task("rlbench/CliffWalk-v0", "dyna", 10_000, -13, SHORTEST),
        "prioritised-sweeping-cliff": Task(
            "rlbench/CliffWalk-v0", "prioritised_sweeping", 10_000, -13, SHORTEST),
        "linear-sarsa-mountain-car": Task(
            "MountainCar-v0", "linear_sarsa", 60_000, -120, "about 120 steps an episode (Sutton & Barto, figure 10.2)"),
    },
    "streaming": {
        "stream-q-cartpole": tuned(
            "CartPole-v1", "stream_q", 475, NO_PEER + "; the worst seed at 400"),
        "stream-q-intentional": Task(
            "CartPole-v1", "stream_q", 50_000, 475, NO_PEER,
            dict(step_rule="intentional", eta="linear(0.25, 0.01, 50000)")),
        "stream-q-acrobot": Task(
            "Acrobot-v1", "stream_q", 400_000, -100, NO_PEER,
            dict(step_rule="intentional", eta="linear(0.25, 0.01, 400000)", epsilon="linear(1, 0.01, 75000)"),
            note="after 150,000 steps -108, with η to 0.01 by then"),
        "stream-ac-cartpole": tuned("CartPole-v1", "stream_ac", 475, NO_PEER),
        "stream-ac-acrobot": tuned("Acrobot-v1", "stream_ac", -100, NO_PEER),
        "stream-ac-pendulum": tuned("Pendulum-v1", "stream_ac", -250, "RLlib's SAC, in ten times the steps"),
        "stream-ac-inverted": tuned("InvertedPendulum-v5", "stream_ac", 950, NO_PEER, long=True),
    },
    "values": {
        "dqn-defaults": tuned("CartPole-v1", "dqn", 475, ZOO_DQN),
        "dqn-defaults-acrobot": tuned(
            "Acrobot-v1", "dqn", -100, SOLVED + "; rl-zoo3's DQN: -77 within 100,000 steps"),
        "dqn-prioritised": Task(
            "CartPole-v1", "dqn", 50_000, 475, ZOO_DQN,
            DQN | dict(prioritized_replay_alpha=.4, prioritized_replay_beta="linear(0.4, 1, 50000)")),
        "dqn-boltzmann": Task(
            "CartPole-v1", "dqn", 50_000, 475, ZOO_DQN,
            DQN | dict(exploration="boltzmann", temperature="linear(1, 0.05, 10000)")),
        "dqn-weight-noise": Task("CartPole-v1", "dqn", 50_000, 475, ZOO_DQN, DQN | dict(exploration="weights")),
        "dqn-dueling": Task("CartPole-v1", "dqn", 50_000, 475, ZOO_DQN, dict(dueling=True)),
        "dqn-noisy": Task("CartPole-v1", "dqn", 100_000, 475, ZOO_DQN, dict(noisy=True)),
        "c51-cartpole": tuned("CartPole-v1", "c51", 475, SOLVED + "; CleanRL's C51: 481 within 500,000 steps"),
        "qr-dqn-cartpole": tuned("CartPole-v1", "qr_dqn", 475, SOLVED + "; rl-zoo3's QR-DQN: 500, one run"),
        "iqn-cartpole": tuned("CartPole-v1", "iqn", 475, NO_PEER),
        "rainbow-cartpole": tuned("CartPole-v1", "rainbow", 475, NO_PEER),
        "dqn-mountain-car": tuned(
            "MountainCar-v0", "dqn", -110, SOLVED + "; rl-zoo3's DQN: -101 within as many steps"),
        "qr-dqn-mountain-car": tuned(
            "MountainCar-v0", "qr_dqn", -110, SOLVED + "; rl-zoo3's QR-DQN: -106 within as many steps"),
        "qr-dqn-acrobot": tuned(
            "Acrobot-v1", "qr_dqn", -80, "rl-zoo3's QR-DQN: -69 within as many steps"),
        "dqn-lunar-lander": tuned(
            "LunarLander-v3", "dqn", 250, "SLM-Lab's double DQN with priorities: 266 within as many steps", long=True),
        "dqn-minatar-breakout": minatar("Breakout", "dqn", 300_000, 10, preset="tuned"),
        "dqn-minatar-asterix": minatar("Asterix", "dqn", 500_000, 3, preset="tuned"),
        "dqn-minatar-space-invaders": minatar("SpaceInvaders", "dqn", 300_000, 20, preset="tuned"),
        "dqn-minatar-stacked": minatar(
            "Breakout", "dqn", 300_000, 10,
            settings=GAMES_REMEMBERED | dict(env_settings=dict(frame_stack=4))),
        "r2d2-cartpole": tuned(
            "rlbench/StatelessCartPole-v0", "r2d2", 350, "RLlib's DQN with LSTM, within as many steps"),
    },
    "values from rollouts": {
        "pqn-cartpole": tuned("CartPole-v1", "pqn", 490, "CleanRL's PQN, 495.1 within as many steps"),
        "pqn-acrobot": tuned("Acrobot-v1", "pqn", -95, "CleanRL's PQN, -95.6 within as many steps"),
        "pqn-minatar-breakout": minatar("Breakout", "pqn", 1_000_192, 20, preset="tuned"),
        "pqn-minatar-asterix": minatar("Asterix", "pqn", 1_000_192, 20, preset="tuned"),
        "pqn-minatar-space-invaders": minatar("SpaceInvaders", "pqn", 1_000_192, 30, preset="tuned"),
    },
    "policies, on-policy": {
        "reinforce-cartpole": tuned("CartPole-v1", "reinforce", 150, RLLIB_PG),
        "reinforce-no-baseline": Task("CartPole-v1", "reinforce", 50_000, 150, RLLIB_PG, dict(lr=.01, baseline=False)),
        "ppo-defaults": Task("CartPole-v1", "ppo", 100_352, 475, ZOO_PPO),
        "ppo-defaults-acrobot": Task(
            "Acrobot-v1", "ppo", 100_352, -100, SOLVED + "; rl-zoo3's PPO: -74 within 1,000,000 steps"),
        "ppo-cartpole": tuned("CartPole-v1", "ppo", 475, ZOO_PPO),
        "ppo-pendulum": tuned("Pendulum-v1", "ppo", -250, "threshold used by Tianshou's tests"),
        "ppo-pendulum-gsde": Task(
            "Pendulum-v1", "ppo", 98_304, -180, "-172 by rl-zoo3, one run, within 100,000 steps",
            dict(num_envs=4, n_steps=1024, batch_size=64, gamma=.9, ent_coef=0., distribution="gsde",
                 normalize_reward=False),
            note="-189 with scaled rewards, five seeds; -194 with lr falling to a tenth, one seed"),
        "ppo-acrobot": tuned("Acrobot-v1", "ppo", -80, "-73.5 by rl-zoo3, one run, within as many steps"),
        "ppo-kl-cartpole": tuned(
            "CartPole-v1", "ppo_kl", 475, SOLVED + "; RLlib's PPO: 450 within 300,000 steps"),
        "ppo-lunar-lander": tuned("LunarLander-v3", "ppo", 242, "242 by rl-zoo3, one run, v2", long=True),
        "ppo-lunar-lander-continuous": tuned(
            "LunarLanderContinuous-v3", "ppo", 260, "271 by rl-zoo3, one run, v2", long=True),
        "ppo-bipedal-walker": tuned("BipedalWalker-v3", "ppo", 280, "288 by rl-zoo3, one run", long=True),
        "ppo-hopper": tuned("Hopper-v5", "ppo", 2383, f"2383 {CLEANRL}", long=True),
        "ppo-half-cheetah": tuned("HalfCheetah-v5", "ppo", 1443, f"1443 {CLEANRL}", long=True),
        "ppo-walker2d": tuned("Walker2d-v5", "ppo", 2288, f"2288 {CLEANRL}", long=True),
        "a2c-defaults": tuned("CartPole-v1", "a2c", 495, "rl-zoo3's A2C: 500 within as many steps"),
        "a2c-defaults-acrobot": tuned(
            "Acrobot-v1", "a2c", -100, SOLVED + "; rl-zoo3's A2C: -83 within 500,000 steps"),
        "trpo-defaults": tuned("CartPole-v1", "trpo", 495, "rl-zoo3's TRPO: 500 within 100,000 steps"),
        "trpo-defaults-acrobot": tuned(
            "Acrobot-v1", "trpo", -85, "rl-zoo3's TRPO: -83 within 100,000 steps"),
        "trpo-mountaincar-continuous": tuned(
            "MountainCarContinuous-v0", "trpo", 92, "rl-zoo3's TRPO: 92.5 within 50,000 steps"),
        "impala-cartpole": tuned(
            "CartPole-v1", "impala", 450, "RLlib's IMPALA, within 2,000,000 steps; 4 updates behind"),
        "masked-ppo": tuned("rlbench/Forbidden-v0", "ppo", 25.7, "95 % of the optimum, 27.09 by counting the masks"),
        "hybrid-ppo": tuned(
            "rlbench/SideAndForce-v0", "ppo", 7.2,
            "90 % of the best, as ML-Agents asks of hybrid PPO within 20,000 steps; the best is 8"),
        "recurrent-cartpole": tuned(
            "rlbench/StatelessCartPole-v0", "recurrent_ppo", 350,
            "RLlib's PPO with LSTM, within 2,000,000 steps; its R2D2: 100 within 50,000"),
        "recurrent-repeat-defaults": tuned(
            "rlbench/RepeatAfterMe-v0", "recurrent_ppo", 29, "the best is 31; no library publishes one"),
        "recurrent-repeat": Task(
            "rlbench/RepeatAfterMe-v0", "recurrent_ppo", 25_600, 50,
            "RLlib's PPO with LSTM, within 100,000 steps; the best is 98",
            dict(env_settings=dict(delay=2, length=100), gamma=.9, lr=3e-3, ent_coef=0., n_steps=64,
                 n_epochs=8, batch_size=128, vf_coef=.025)),
    },
    "policies, off-policy": {
        "sac-pendulum": tuned("Pendulum-v1", "sac", -170, "Stable-Baselines3's SAC, within as many steps"),
        "td3-pendulum": tuned("Pendulum-v1", "td3", -170, "-152 by rl-zoo3, one run"),
        "td3-mountain-car": tuned(
            "MountainCarContinuous-v0", "td3", 92, "93.5 by rl-zoo3, one run, within 300,000 steps"),
        "ddpg-pendulum": tuned("Pendulum-v1", "ddpg", -170, "-152 by rl-zoo3, one run"),
        "tqc-pendulum": tuned("Pendulum-v1", "tqc", -170, "-151 by rl-zoo3, one run"),
        "crossq-pendulum": tuned("Pendulum-v1", "crossq", -170, "-146 by SLM-Lab, within 300,000 steps"),
        "droq-pendulum": Task(
            "Pendulum-v1", "sac", 3_000, -170, "Stable-Baselines3's SAC, within 20,000 steps",
            dict(dropout=.01, critic_norm="layer", gradient_steps=5, policy_delay=5, tau=.01, batch_size=128,
                 hidden=[64, 64])),
        "redq-pendulum": Task(
            "Pendulum-v1", "sac", 5_000, -170, "Stable-Baselines3's SAC, within 20,000 steps",
            dict(n_critics=10, critics_in_target=2, gradient_steps=5, policy_delay=5, tau=.01, batch_size=128,
                 hidden=[64, 64])),
        "crossq-lunar-lander": tuned(
            "LunarLanderContinuous-v3", "crossq", 260, "SLM-Lab's CrossQ: 269 within as many steps", long=True),
        "td3-inverted-pendulum": tuned("InvertedPendulum-v5", "td3", 1000, "the authors' curve, v1", long=True),
        "td3-double-pendulum": tuned(
            "InvertedDoublePendulum-v5", "td3", 9300, "9320 by the authors' code", long=True,
            note="with noise of .1, as the authors have it, 9267: one or two episodes of a hundred end early"),
        "sac-double-pendulum": tuned("InvertedDoublePendulum-v5", "sac", 9300, "9320 by the authors' TD3", long=True),
        "td3-reacher": tuned("Reacher-v5", "td3", -5, "-4.6 by the authors' code", long=True),
        "td3-half-cheetah": tuned("HalfCheetah-v5", "td3", 5500, "5683 by the authors' code, v4", long=True),
        "sac-cartpole": tuned("CartPole-v1", "sac", 450, "406 by SLM-Lab, within 200,000 steps"),
        "sac-hybrid": tuned("rlbench/SideAndForce-v0", "sac", 7.2, "90 % of the best, as ML-Agents asks of hybrid SAC"),
        "sac-masked": tuned(
            "rlbench/Forbidden-v0", "sac", 25.7, "95 % of the optimum, 27.09 by counting the masks"),
    },
    "from given data": {
        "bc-cartpole": tuned(
            "CartPole-v1", "bc", 475, SOLVED + "; from ten episodes of an expert", memory="cartpole-expert"),
        "bc-mixed": Task(
            "CartPole-v1", "bc", 0, 23.4, "what the data return; others are held against it",
            memory="cartpole-mixed"),
        "awr-mixed": tuned(
            "CartPole-v1", "awr", 475, SOLVED + "; 50 more than bc-mixed is asked for", memory="cartpole-mixed"),
        "marwil-mixed": Task(
            "CartPole-v1", "awr", 0, 475, SOLVED, dict(gae_lambda=1., max_weight=None), memory="cartpole-mixed"),
        "discrete-cql-mixed": tuned(
            "CartPole-v1", "discrete_cql", 262, "half-way from the data (23) to the expert (500)",
            memory="cartpole-mixed"),
        "iql-pendulum": tuned(
            "Pendulum-v1", "iql", -200, "RLlib's IQL; the data return -734", memory="pendulum-mixed"),
        "td3-bc-pendulum": tuned(
            "Pendulum-v1", "td3_bc", -200, "as asked of IQL; the data return -734", memory="pendulum-mixed"),
        "cql-pendulum": tuned(
            "Pendulum-v1", "cql", -446, "half-way from the data (-734) to the expert (-158); RLlib's CQL: -700",
            memory="pendulum-mixed"),
        "gail-cartpole": tuned(
            "CartPole-v1", "gail", 450, "nine tenths of the expert; from ten of his episodes, without a reward",
            memory="cartpole-expert"),
        "airl-acrobot": Task(
            "Acrobot-v1", "gail", 40_960, -100, SOLVED + "; from 60 episodes of an expert (-77), without a reward",
            dict(verdict="airl", judge_lr=3e-4), memory="acrobot-expert"),
    },
}
TASKS = {name: task for tasks in FAMILIES.values() for name, task in tasks.items()}
FAMILY = {name: family for family, tasks in FAMILIES.items() for name in tasks}


def otherwise(row):
    "{setting: (then, now)} where its task has others today than a row was made with; one that came later: its default"
    task = TASKS[row["name"]]
    then = whole(task.algo, row["settings"])
    now = task.whole
    return {name: (then.get(name), now.get(name)) for name in then | now if then.get(name) != now.get(name)}


def why_stale(row):
    "Why a row has to be made again, in words; nothing where it stands"
    if "settings" not in row: return "made with settings that nobody wrote down"
    if row["task"] != TASKS[row["name"]].told: return f"made as {row['task']}"
    changes = [f"{name}={then!r}, now {now!r}" for name, (then, now) in otherwise(row).items()]
    return f"made with {'; '.join(changes)}" if changes else ""
