"""Where defaults are tried, for how long, and which settings are tried beside them.

Planning is not here, for it ends at the exact values whatever it is set to; nor are bandits and predictions, whose step
sizes are measured in textbook.py.
"""
WORLDS = {                                         # what chance returns, and what is good
    "CartPole-v1": (22, 500),
    "Acrobot-v1": (-500, -80),
    "LunarLander-v3": (-170, 250),
    "Pendulum-v1": (-1240, -150),
    "MountainCarContinuous-v0": (-33, 94),
    "InvertedPendulum-v5": (5, 1000),
    "InvertedDoublePendulum-v5": (47, 9300),
    "Reacher-v5": (-44, -5),
    "LunarLanderContinuous-v3": (-170, 250),
    "MinAtar/Breakout-v1": (.4, 10),
    "MinAtar/SpaceInvaders-v1": (4, 30),
    "MinAtar/Asterix-v1": (.3, 4),
    "MountainCar-v0": (-200, -110),
    "rlbench/StatelessCartPole-v0": (22, 500),
    "rlbench/RepeatAfterMe-v0": (0, 31),
    "rlbench/CliffWalk-v0": (-500, -13),
    "rlbench/WindyGrid-v0": (-1000, -15),
    "rlbench/FourRooms-v0": (0, 1),
    "FrozenLake-v1": (.01, .74),
    "FrozenLake8x8-v1": (0, .86),
    "Taxi-v4": (-200, 7.9),
}
CHOICES = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MinAtar/Breakout-v1")
BOXES = ("Pendulum-v1", "MountainCarContinuous-v0")
BOTH = CHOICES + BOXES
ROLLOUTS = dict(zip(BOTH, (40_000, 40_000, 150_000, 60_000, 40_000, 20_000)))
SHORT = dict(zip(BOTH, (40_000, 40_000, 80_000, 20_000, 40_000, 20_000)))
PIXELS = ("MinAtar/SpaceInvaders-v1", "MinAtar/Asterix-v1")
REPLAYS = dict(zip(CHOICES, (20_000, 20_000, 50_000, 30_000))) | dict.fromkeys(PIXELS, 30_000)
SLOW = dict(zip(CHOICES, (20_000, 20_000, 30_000, 10_000))) | dict.fromkeys(PIXELS, 10_000)
PUSHES = ("InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Reacher-v5")
ACTIONS = dict.fromkeys((*BOXES, *PUSHES), 5_000) | {"LunarLanderContinuous-v3": 10_000}
STREAMS = dict.fromkeys(CHOICES[:3], 20_000) | dict.fromkeys((CHOICES[3], *PIXELS), 5_000)
REMEMBERED = dict.fromkeys(("rlbench/StatelessCartPole-v0", "rlbench/RepeatAfterMe-v0"), 40_000)
COUNTED = dict.fromkeys((
    "rlbench/CliffWalk-v0",
    "rlbench/WindyGrid-v0",
    "rlbench/FourRooms-v0",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
), 40_000)
PLANNED = dict.fromkeys(COUNTED, 10_000)           # each is learned from many times
SETS = {                                           # names of data sets begin with
    "CartPole-v1": "cartpole",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountaincar",
    "LunarLander-v3": "lander",
    "Pendulum-v1": "pendulum",
    "MountainCarContinuous-v0": "mountaincar-continuous",
    "LunarLanderContinuous-v3": "lander-continuous",
    "MinAtar/Breakout-v1": "breakout",
    "rlbench/CliffWalk-v0": "cliff",
    "InvertedPendulum-v5": "inverted-pendulum",
    "InvertedDoublePendulum-v5": "double-pendulum",
    "Reacher-v5": "reacher",
}
GIVEN = dict.fromkeys(list(SETS)[:7], 0)           # all that is learned from is there
CHOSEN = dict.fromkeys((*list(SETS)[:4], "MinAtar/Breakout-v1", "rlbench/CliffWalk-v0"), 0)
PUSHED = dict.fromkeys((*list(SETS)[4:7], *PUSHES), 0)
KINDS = dict.fromkeys(("bc", "gail"), "expert")
KINDS |= dict.fromkeys(("awr", "iql", "discrete_cql", "cql", "td3_bc"), "mixed")
STEPS = dict(                                      # of the environment, at most 6 CPU minutes a candidate
    ppo=ROLLOUTS,
    a2c=SHORT,
    trpo=SHORT,
    impala=SHORT,
    reinforce=SHORT,
    pqn=dict(zip(CHOICES, (80_000, 80_000, 150_000, 60_000))) | dict.fromkeys(PIXELS, 60_000),
    dqn=REPLAYS,
    c51=SLOW,
    qr_dqn=SLOW,
    iqn=SLOW,
    rainbow=SLOW,
    stream_q=STREAMS,
    stream_ac=dict.fromkeys(CHOICES[:3], 20_000) | {CHOICES[3]: 5_000} | dict.fromkeys(BOXES, 20_000),
    sac=dict.fromkeys(BOXES, 5_000) | dict.fromkeys(CHOICES, 4_000),
    td3=ACTIONS,
    ddpg=ACTIONS,
    tqc=ACTIONS,
    crossq=ACTIONS,
    ppo_kl=SHORT,
    recurrent_ppo=REMEMBERED | dict.fromkeys(("CartPole-v1", "Acrobot-v1", *BOXES), 40_000),
    r2d2=REMEMBERED | dict.fromkeys(CHOICES[:3], 40_000) | {CHOICES[3]: 20_000},
    bc=GIVEN,
    awr=GIVEN,
    iql=GIVEN,
    discrete_cql=CHOSEN,
    cql=PUSHED,
    td3_bc=PUSHED,
    gail=dict.fromkeys(GIVEN, 40_000),
    qlearning=COUNTED,
    count_bonus=COUNTED,
    sarsa=COUNTED,
    double_q=COUNTED,
    tree_backup=COUNTED,
    sarsa_lambda=COUNTED,
    monte_carlo=COUNTED,
    dyna=PLANNED,
    prioritised_sweeping=PLANNED,
    linear_sarsa=COUNTED | {"MountainCar-v0": 20_000},
)
SB3_DQN = dict(n_step=1, lr=1e-4, train_freq=4, gradient_steps=1, target_update_interval=10_000)
SMALL = dict(hidden=[64, 64], batch_size=128)
UNSCALED = dict(normalize_reward=False)
AS_A2C = dict(n_steps=5, lr=7e-4, **UNSCALED)
PAPER = dict(policy_delay=2)
SLOW_JUDGE = dict(judge_lr=3e-4)
SCALED = dict(normalize_reward=True)
# "settling" ends where these runs end, which no default can know: it tells what a schedule would bring
COUNTING = {
    "slow": dict(lr=.1),
    "rarely": dict(epsilon=.03),
    "settling": dict(lr="linear(0.5, 0.05, 40000)"),
}
ZEROS = dict(initial=0.)
OPTIMISTIC = {"optimistic": dict(initial=1.)}
FRESH = dict(exploration="gaussian", exploration_noise=.1)
CANDIDATES = dict(                                 # beside the defaults as they stand
    ppo={
        "short": dict(n_steps=128, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0., **UNSCALED),
        "CleanRL": dict(n_steps=128, n_epochs=4, batch_size=256, lr=1e-3, gae_lambda=.95, ent_coef=.01, **UNSCALED),
        "SB3": dict(n_steps=256, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0., **UNSCALED),
        "middle": dict(n_steps=256, n_epochs=10, batch_size=128, lr=6e-4, gae_lambda=.95, ent_coef=.01, **UNSCALED),
        "long": dict(n_steps=512, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.98, ent_coef=.01, **UNSCALED),
        "unscaled": UNSCALED,
    },
    a2c={
        "no entropy": dict(ent_coef=0.),
        "long": dict(n_steps=16, gae_lambda=.95),
        "scaled": dict(normalize_reward=True),
        "even": dict(normalize_advantage=True),
        "even, scaled": dict(normalize_advantage=True, normalize_reward=True),
        "even, long, scaled": dict(n_steps=16, gae_lambda=.95, normalize_advantage=True, normalize_reward=True),
    },
    trpo={
        "SB3": dict(n_steps=256, **UNSCALED),
        "bold": dict(n_steps=128, target_kl=.02, **UNSCALED),
        "unscaled": UNSCALED,
        "SB3, scaled": dict(n_steps=256),
    },
    impala={
        "short": AS_A2C,
        "short, no entropy": AS_A2C | dict(ent_coef=0.),
        "unscaled": UNSCALED,
        "middle, unscaled": dict(n_steps=20, lr=7e-4, **UNSCALED),
        "short, scaled": AS_A2C | dict(normalize_reward=True),
        "short, even, scaled": AS_A2C | dict(normalize_advantage=True, normalize_reward=True),
    },
    reinforce={
        "steep": dict(lr=.01),
        "few": dict(n_episodes=2),
    },
    pqn={
        "CleanRL": dict(num_envs=4, n_steps=128, lr=2.5e-4, batch_size=128),
        "steep": dict(lr=1e-3),
    },
    dqn={"SB3": SB3_DQN},
    c51={"CleanRL": dict(n_step=1, lr=2.5e-4, train_freq=10, gradient_steps=1, target_update_interval=500)},
    qr_dqn={"SB3": SB3_DQN | dict(lr=5e-5, quantiles=200)},
    iqn={"many": dict(samples=32)},
    rainbow={"without noise": dict(noisy=False)},
    stream_q={"intentional": dict(step_rule="intentional")},
    stream_ac={"bounded": dict(step_rule="obgd")},
    sac={
        "small": dict(lr=3e-4, critic_lr=1e-3, **SMALL),
        "quick": dict(lr=1e-3, critic_lr=1e-3, tau=.01, batch_size=256, hidden=[256, 256]),
    },
    td3={
        "paper": PAPER,
        "paper, fresh": PAPER | FRESH,
        "paper, small": PAPER | SMALL | FRESH,
        "paper, noisy": PAPER | FRESH | dict(exploration_noise=.3),
        "paper, twice": PAPER | dict(gradient_steps=2),
    },
    ddpg={
        "fresh": FRESH,
        "small": SMALL | FRESH,
    },
    tqc={
        "small": SMALL,
        "steep": dict(lr=1e-3),
        "twice": dict(gradient_steps=2, policy_delay=2),
    },
    crossq={
        "small": SMALL | dict(critic_hidden=[128, 128]),
        "steep": dict(lr=1e-3),
    },
    ppo_kl={
        "unscaled": UNSCALED,
        "bold": dict(kl_target=.02),
    },
    recurrent_ppo={
        "unscaled": UNSCALED,
        "critic counts less": dict(vf_coef=.025),
    },
    r2d2={
        "uniform": dict(prioritized_replay_alpha=0.),
        "slow": dict(lr="linear(0.0005, 0.0001, 200000)"),
        "steep": dict(lr="linear(0.001, 0.0001, 100000)"),
        "calm": dict(train_freq=16),
        "calm, uniform": dict(train_freq=16, prioritized_replay_alpha=0.),
        "calm, no burn-in": dict(train_freq=16, burn_in=0),
    },
    bc={
        "short": dict(n_epochs=5),
        "calm": dict(lr=3e-4),
    },
    awr={
        "short": dict(n_epochs=20),
        "short, greedy": dict(n_epochs=20, beta=5.),
        "short, whole returns": dict(n_epochs=20, gae_lambda=1.),
        "whole returns": dict(gae_lambda=1.),
    },
    iql={
        "mild": dict(expectile=.7),
        "greedy": dict(beta=10.),
        "slow": dict(tau=.005),
    },
    discrete_cql={
        "light": dict(cql_alpha=.1),
        "light, long": dict(cql_alpha=.1, n_epochs=50),
        "heavy": dict(cql_alpha=1.),
        "heavy, long": dict(cql_alpha=1., n_epochs=50),
    },
    cql={
        "lighter": dict(cql_alpha=1.),
        "light": dict(cql_alpha=.1),
    },
    td3_bc={
        "short": dict(n_epochs=50),
        "paper": dict(bc_alpha=2.5),
        "paper, short": dict(bc_alpha=2.5, n_epochs=50),
        "paper, short, slow": dict(bc_alpha=2.5, n_epochs=50, tau=.005),
    },
    gail={
        "slow judge": SLOW_JUDGE,
        "slow judge, scaled": SLOW_JUDGE | SCALED,
        "slow judge, airl": SLOW_JUDGE | dict(verdict="airl"),
    },
    qlearning={"from zeros": ZEROS} | {f"{name}, from zeros": one | ZEROS for name, one in COUNTING.items()},
    count_bonus={
        "slow": dict(lr=.1),
        "curious": dict(bonus_coef=1.),
    },
    sarsa=COUNTING | OPTIMISTIC | {"three steps": dict(n_step=3)},
    double_q=COUNTING | OPTIMISTIC | {"middle": dict(lr=.2)},
    tree_backup=COUNTING | OPTIMISTIC | {"one step": dict(n_step=1)},
    sarsa_lambda={
        "rarely": dict(epsilon=.05),
        "quick": dict(lr=.5),
        "long": dict(td_lambda=.9),
        "long, rarely": dict(td_lambda=.9, epsilon=.05),
        "long, slow": dict(td_lambda=.9, lr=.1),
        "long, quick": dict(td_lambda=.9, lr=.5),
        "long, quick, rarely": dict(td_lambda=.9, lr=.5, epsilon=.03),
        "long, quick, optimistic": dict(td_lambda=.9, lr=.5, initial=1.),
        "long, settling": dict(td_lambda=.9, lr="linear(0.5, 0.05, 40000)"),
    },
    monte_carlo={
        "forgetting": dict(lr=.1),
        "rarely": dict(epsilon=.05),
    },
    dyna={
        "slow": dict(lr=.1),
        "slow, more planning": dict(lr=.1, planning_steps=20),
    },
    prioritised_sweeping={
        "more planning": dict(planning_steps=20),
        "small errors too": dict(theta=1e-6),
    },
    linear_sarsa={
        "exploring": dict(epsilon=.1),
        "fine": dict(tiles=16),
    },
)
