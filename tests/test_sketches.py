"Environments that are drawn from their state look as gymnasium paints them."
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image, ImageColor

from rlbench.envs.find import make
from rlbench.envs.place import picture
from rlbench.lab.pictures.scene import Sheet
from rlbench.lab.pictures.sketches import RED, TEAL, WOOD, look_html, look_of, sketch
from rlbench.lab.views.views import sheet_with


def middle(image, colour):
    "(x, y) of what has a colour in a picture (H, W, 3), as shares of its width, and their covariance"
    near = np.abs(np.asarray(image, int) - colour).max(2) < 12
    assert near.sum() > 30, "nothing has that colour"
    y, x = np.nonzero(near)
    return np.array([x.mean(), y.mean()]) / image.shape[1], np.cov(x, y)


def leaning(spread):
    "Degrees of the long axis of what has a covariance, in [0, 180)"
    _, axes = np.linalg.eigh(spread)
    return np.degrees(np.arctan2(*axes[:, 1])) % 180


def both(id, obs):
    "(H, W, 3) as gymnasium paints a state, and as it is sketched"
    env = make(id, 1)
    single = env.showing(np.asarray(obs, np.float32))
    pair = np.asarray(picture(single)), np.asarray(sketch(single).image)
    env.close()
    return pair


@pytest.mark.parametrize("x,angle", [(0, 0), (1.5, .2), (-1.2, -.15), (.4, .8)])
def test_the_pole_leans_as_gymnasium_has_it(x, angle):
    painted, ours = both("CartPole-v1", [x, 0, angle, 0])
    there, spread = middle(painted, (202, 152, 101))
    here, lean = middle(ours, ImageColor.getrgb(WOOD))
    assert abs(leaning(spread) - leaning(lean)) < 3 or abs(leaning(spread) - leaning(lean)) > 177
    assert abs(there[0] - here[0]) < .03                     # both show the same stretch of the track


@pytest.mark.parametrize("angle", [0, .6, 2., 3.1, -1.2])
def test_the_pendulum_hangs_as_gymnasium_has_it(angle):
    painted, ours = both("Pendulum-v1", [np.cos(angle), np.sin(angle), 0])
    there, _ = middle(painted, (204, 77, 77))
    here, _ = middle(ours, ImageColor.getrgb(RED))
    apart = there - .5, here - (.5, 118 / 400)               # from the joint
    ways = [np.arctan2(*place) for place in apart]
    assert abs((ways[0] - ways[1] + np.pi) % (2 * np.pi) - np.pi) < .1


@pytest.mark.parametrize("first,second", [(0, 0), (.5, 1.), (-2., .7), (3., -1.5)])
def test_the_rods_hang_as_gymnasium_has_them(first, second):
    painted, ours = both("Acrobot-v1", [np.cos(first), np.sin(first), np.cos(second), np.sin(second), 0, 0])
    there, _ = middle(painted, (0, 204, 204))
    here, _ = middle(ours, ImageColor.getrgb(TEAL))
    apart = (there - .5) * 4.4, (here - (.5, 118 / 400)) * 400 / 53.3     # in metres, from the joint
    np.testing.assert_allclose(*apart, atol=.12)


@pytest.mark.parametrize("id", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_the_car_goes_over_the_hill(id):
    env = make(id, 1)
    here, there = [np.asarray(sketch(env.showing(np.array([x, 0], np.float32))).image, int) for x in (-1., .2)]
    _, columns = np.nonzero(np.abs(here - there).max(2) > 60)
    expected = [200 + 190 * (x + .3) for x in (-1., .2)]     # the middle of the land, -.3, is that of the picture
    away = np.abs(columns[:, None] - expected).min(1)
    assert len(columns) > 60 and away.max() < 20
    env.close()


def test_copies_and_parameters_are_drawn_as_they_are():
    env = make("CartPole-v1", 3)
    env.reset(0)
    env.put(np.array([1., 0, .1, 0], np.float32))
    long, short = [], []
    for length, words in ((.5, short), (1., long)):
        env.tune(length=length)
        words.append(look_of(env.first).svg)
    assert long != short and "<path" in long[0]
    env.close()


def test_what_draws_itself_in_its_own_way_is_seen_that_way():
    class Mine(type(gym.make("CartPole-v1").unwrapped)):
        "A class of somebody's"

    class Over(gym.Wrapper):
        def render(self):
            return np.zeros((4, 5, 3), np.uint8)

    plain = gym.make("CartPole-v1", render_mode="rgb_array")
    plain.reset(seed=0)
    mine = Mine(render_mode="rgb_array")
    mine.reset(seed=0)
    assert isinstance(look_of(plain), Sheet) and sketch(mine) is None
    assert look_of(Over(plain)).shape == (4, 5, 3)
    assert sketch(gym.make("CartPole-v1")) is None           # nothing was reset: there is no state yet


@pytest.mark.parametrize("name", ["CliffWalk", "WindyGrid", "FourRooms", "DynaMaze", "BlockingMaze"])
def test_grid_worlds_are_drawn_as_they_draw_themselves(name):
    env = make(f"rlbench/{name}-v0", 2)
    env.reset(3)
    single = env.first
    ours = look_of(single)
    painted = Image.fromarray(picture(single))
    assert isinstance(ours, Sheet) and abs(np.subtract(*(one.size[0] / one.size[1] for one in (ours, painted)))) < .02
    pair = [np.asarray(one.resize((160, 100)), int) for one in (ours.image, painted)]
    assert np.abs(np.subtract(*pair)).mean() < 6
    env.close()


def test_walls_that_move_are_drawn_where_they_are():
    env = make("rlbench/BlockingMaze-v0", 1).single.unwrapped
    before = look_of(env).svg
    env.arrange(1)
    assert look_of(env).svg != before
    env.arrange(0)
    assert look_of(env).svg == before


@pytest.mark.parametrize("moving", [True, False])
def test_few_pixels_stay_squares(moving):
    few, many = (np.zeros((side, side, 3), np.uint8) for side in (64, 400))
    assert "image/png" in look_html(few, moving) and "pixelated" in look_html(few, moving)
    assert ("image/jpeg" in look_html(many, moving)) == moving and "pixelated" not in look_html(many, moving)
    assert "pixelated" in sheet_with(few).svg and "pixelated" not in sheet_with(many).svg


DRAW = """
import os
import gymnasium as gym
from rlbench.envs.place import picture
env = gym.make("HalfCheetah-v5", render_mode="rgb_array")
env.reset(seed=0)
try: print(picture(env).shape)
except Exception as problem: print(f"no picture: {problem!r}")      # where there is no EGL
print(os.environ["MUJOCO_GL"])
"""


def test_without_a_display_mujoco_is_not_left_waiting_for_one():
    pytest.importorskip("mujoco")
    without = {name: value for name, value in os.environ.items()
               if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", DRAW], env=without, capture_output=True, text=True,
                          timeout=300)
    *_, said, told = made.stdout.splitlines()
    assert said == "(480, 480, 3)" or said.startswith("no picture")
    assert told == "egl"
