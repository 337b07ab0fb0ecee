"Pictures in a real browser: words that are words, and the browser's painting beside pillow's"
import io

import numpy as np
import pytest
from PIL import Image

from rlbench.lab.pictures.components import read_asset
from rlbench.lab.pictures.scene import Line, Sheet, Window, painted
from tests.browser.test_workbench import CARTPOLE, paused, start


def marks(theme):
    "A sheet with every kind of mark but words, whose type is the browser's own"
    sheet = Sheet(300, 120, theme)
    x = np.linspace(0, 80, 50)
    wave = np.stack([110 + x, 40 + 25 * np.sin(x / 9)], 1)
    sheet.plane((10, 10, 90, 60), np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 4, smooth=False)
    sheet.pen.line(wave, "value", 2)
    sheet.pen.dots(wave[::5] + [0, 40], "error", 6)
    sheet.pen.rectangle((210, 10, 250, 60), "empty", "text", 2)
    sheet.pen.ellipse((255, 10, 295, 60), "policy")
    sheet.pen.polygon([(210, 110), (250, 70), (290, 110)], "return")
    sheet.marks.append(Window(10, 70, 60, 110, (Line(np.array([(0, 90), (99, 90)]), "here", 12),)))
    return sheet


def seen_by(browser, sheet, style="", scale=1):
    "A sheet as a browser shows it, at so many device pixels for one of the page"
    width, height = sheet.size
    page = browser.new_page(viewport=dict(width=width, height=height), device_scale_factor=scale)
    page.set_content(f"<body style='margin:0;{style}'>{sheet.svg}</body>")
    seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return seen


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_browser_and_pillow_paint_the_same(browser, theme):
    sheet = marks(theme)
    face = {"light": "", "dark": "--rl-text:#cfcfcf;--rl-empty:#2f2f2f;background:#212121;"}[theme]
    seen = seen_by(browser, sheet, face)
    apart = np.abs(np.asarray(seen, float) - np.asarray(painted(sheet, theme), float)).mean(-1)
    assert apart.mean() < 4 and (apart > 60).mean() < .03       # edges are smoothed in two ways, and no more
    inside = [(50, 30), (230, 30), (275, 35), (250, 100), (30, 90)]
    assert max(apart[y, x] for x, y in inside) < 12


def test_with_two_device_pixels_to_one_a_picture_is_sharp(browser):
    "Words have details that twice as large pixels cannot show"
    sheet = Sheet(120, 40)
    sheet.text(60, 20, "illumination", "mm", 11)
    once, twice = (np.asarray(seen_by(browser, sheet, scale=scale), float).mean(-1) for scale in (1, 2))
    blown_up = once.repeat(2, 0).repeat(2, 1)
    assert twice.shape == blown_up.shape == (80, 240)
    steps = [np.abs(np.diff(picture, axis=1)).max(0) for picture in (twice, blown_up)]
    assert (steps[0] > 60).sum() > 1.3 * (steps[1] > 60).sum() > 0


PANE = """async ([source, frames]) => {
  const pane = (await import(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})))).default;
  const heard = {}, el = document.createElement('div'), signal = new AbortController().signal;
  const model = {get: name => name === 'key' ? 'one' : '', on: (name, hear) => { heard[name] = hear; }, off: () => {}};
  pane.initialize({model});
  pane.render({model, el, signal});
  const seen = [];
  for (const frame of frames) {
    heard['msg:custom']({one: frame});
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    seen.push(el.innerHTML);
  }
  return seen; }"""


def test_a_picture_becomes_the_next_one_whatever_marks_there_were(browser):
    rng = np.random.default_rng(0)
    marks = ["<text>a</text>", "<text>b</text>", "<rect></rect>", "<path></path>", "<g><text>c</text><rect></rect></g>"]
    frames = [f"<svg>{''.join(rng.choice(marks, rng.integers(0, 7)))}</svg>" for _ in range(200)]
    page = browser.new_page()
    assert page.evaluate(PANE, [read_asset("pane.js"), frames]) == frames
    page.close()


SHARP = """() => { const svg = document.querySelector('.rl-image-curve svg'), box = svg.getBoundingClientRect();
  const words = [...svg.querySelectorAll('text')].map(text => text.textContent);
  return [box.width, svg.querySelectorAll('image, canvas').length, words]; }"""


def test_words_in_a_picture_are_words_and_the_theme_needs_no_new_one(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-iteration").click()
    paused(page)
    width, pixels, words = page.evaluate(SHARP)
    assert width > 200 and pixels == 0 and {"environment steps", "return of the episode"} <= set(words)
    before = page.locator(".rl-image-update").inner_html()
    ink = "getComputedStyle(document.querySelector('.rl-image-update svg text')).fill"
    light = page.evaluate(ink)
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_function(f"light => {ink} !== light", arg=light)
    assert page.locator(".rl-image-update").inner_html() == before
