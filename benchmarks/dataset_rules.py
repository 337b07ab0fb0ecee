"Rules of one line or a few that play well or badly: observations (N, ...) -> actions (N, ...)"
import numpy as np


# ---- None at all

def rest(obs):
    "No force, by numbers"
    return np.zeros((len(obs), 1))


# ---- MountainCar

def coast(obs):
    "Neither left nor right"
    return np.ones(len(obs), np.int64)


def rock(obs):
    "Push the way the car rolls"
    return np.where(obs[:, 1] < 0, 0, 2)


def rock_hard(obs):
    "The same, with all the force there is"
    return np.where(obs[:, 1:] < 0, -1., 1.)


# ---- LunarLander, with the gains of the controller that gymnasium has for it

def flown(obs):
    "How much the craft ought to rise, and how much to turn, (N,) each: down onto the middle, upright and slowly"
    x, y, x_speed, y_speed, lean, turning, left, right = obs.T
    landed = left + right > 0
    upright = np.clip(.5 * x + x_speed, -.4, .4)            # it leans against its way
    high = .55 * np.abs(x)                                  # the farther from the middle, the higher
    turn = .5 * (upright - lean) - turning
    rise = .5 * (high - y) - .5 * y_speed
    return np.where(landed, -.5 * y_speed, rise), np.where(landed, 0, turn)


def land(obs):
    "The engine that is missed most: none, left, main, right"
    rise, turn = flown(obs)
    side = np.where(turn > .05, 1, np.where(turn < -.05, 3, 0))
    return np.where((rise > np.abs(turn)) & (rise > .05), 2, side)


def land_softly(obs):
    "The same, by as much as is missed"
    rise, turn = flown(obs)
    return np.stack([20 * rise - 1, -20 * turn], -1).clip(-1, 1)


def drop(obs):
    "No engine"
    return np.zeros(len(obs), np.int64)


def drop_softly(obs):
    "No engine, by numbers"
    return np.zeros((len(obs), 2))


# ---- MuJoCo: poles on a cart by the gains of a linear regulator, and an arm of two links

def upright(obs):
    "Push the cart under the pole"
    return obs @ np.array([[0.], [2.8], [1.], [2.6]])


def both_upright(obs):
    "The same for a pole upon a pole"
    place, sin, sin_upper, cos, cos_upper, speed, turning, turning_upper, _ = obs.T
    state = [place, np.arctan2(sin, cos), np.arctan2(sin_upper, cos_upper), speed, turning, turning_upper]
    return -(np.array([.22, 1.69, 5.26, .31, .85, .81]) @ state)[:, None]


def reach(obs):
    "Torques that pull the tip of the arm to the target, and slow both joints down"
    cos, cos_lower, sin, sin_lower, _, _, turning, turning_lower, x, y = obs.T
    across = .11 * (sin * cos_lower + cos * sin_lower)      # of the lower link
    along = .11 * (cos * cos_lower - sin * sin_lower)
    lower = y * along - x * across
    upper = lower + .1 * (y * cos - x * sin)
    return np.stack([-15 * upper - .06 * turning, -15 * lower - .06 * turning_lower], -1)


# ---- Breakout and the cliff

def follow_the_ball(obs):
    "Stay below the ball: 0 not at all, 1 left, 2 right"
    paddle, ball = (obs[..., channel].any(1).argmax(-1) for channel in (0, 1))
    return np.where(paddle > ball, 1, np.where(paddle < ball, 2, 0))


def walk_the_edge(obs):
    "Up from the start, along the cliff, and down to the goal, in 4 rows of 12 cells: 0 up, 1 right, 2 down"
    return np.where(obs == 36, 0, np.where(obs % 12 == 11, 2, 1))
