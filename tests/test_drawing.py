"Pictures and the parts of the page, without a browser"
import io
import json
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image, ImageColor

from rlbench.lab.pictures.components import Pane, read_asset, send_together
from rlbench.lab.pictures.drawing import (BAR, compose, draw_bars, draw_colour_bar, draw_histogram,
                                          draw_horizontal_bars, encode_image)
from rlbench.lab.pictures.figures import Picture, cover
from rlbench.lab.pictures.scene import FACES, ROLES, SERIES, Box, Line, Sheet, Window, Words, width_of
from rlbench.lab.pictures.worlds import Layout, grid_image
from rlbench.lab.views.part_histories import draw_story


def test_the_page_asks_nobody_else():
    "The modules that are sent to the page name no other machine"
    for name in ("pane.js", "pane.css", "grid.js", "table.js", "keys.js", "lab.css"):
        text = read_asset(name).replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text and "import " not in text.replace("!important", "") and "fetch(" not in text
        assert len(text.splitlines()) < 300


@pytest.mark.parametrize("theme", FACES)
def test_a_sheet_has_the_colours_of_its_theme(theme):
    sheet = Sheet(theme=theme)
    corner = "#%02x%02x%02x" % sheet.image.getpixel((0, 0))
    assert corner == FACES[theme]["face"]


def test_a_still_picture_is_exact_and_a_moving_one_is_small():
    noise = np.random.default_rng(0).integers(256, size=(60, 80, 3), dtype=np.uint8)
    still, moving = (encode_image(noise, moving) for moving in (False, True))
    assert (np.asarray(Image.open(io.BytesIO(still))) == noise).all()
    assert len(moving) < len(still)


@pytest.mark.parametrize("values", [[np.nan, 1., -2.], [0.], [np.inf, np.nan]])
def test_what_is_not_finite_is_drawn_all_the_same(values):
    sheet = Sheet()
    draw_bars(sheet, (0, 0, 200, 200), np.array(values), -2., 1., [str(i) for i in range(len(values))])
    draw_histogram(sheet, (200, 0, 320, 200), "values", np.array(values))
    assert len(sheet.image.getcolors(10_000)) > 1 and ElementTree.fromstring(sheet.svg) is not None


def words_of(sheet):
    "Words and their places in a picture"
    marks = [mark for mark in sheet.marks if isinstance(mark, Words)]
    return {mark.words: (mark.x, mark.y) for mark in marks}


def test_bars_that_have_no_room_for_numbers_have_an_axis():
    sheet = Sheet()
    draw_bars(sheet, (10, 24, 390, 228), np.linspace(-4., -1., 24), -5., 0., [str(i) for i in range(24)])
    found = words_of(sheet)
    assert {"-5.00", "0.00"} <= set(found) and found["-5.00"][1] > found["0.00"][1]
    assert all(found[word][0] < found["0"][0] for word in ("-5.00", "0.00"))


def test_few_bars_use_the_width_of_their_box():
    sheet = Sheet()
    draw_bars(sheet, (10, 24, 390, 228), np.array([.7, .3]), 0., 1., ["push left", "push right"])
    bars = [mark for mark in sheet.marks if isinstance(mark, Box)]
    left, right = min(bar.left for bar in bars), max(bar.right for bar in bars)
    assert right - left > .6 * 380 and left - 10 == pytest.approx(390 - right)
    assert all(bar.right - bar.left < 100 for bar in bars)


@pytest.mark.parametrize("high, words", [(.006, {"0.0040", "0.0020"}), (1., {"0.00"})])
def test_the_number_of_a_bar_is_as_fine_as_its_axis(high, words):
    sheet = Sheet()
    draw_bars(sheet, (0, 0, 200, 200), np.array([.004, .002]), 0., high, ["a", "b"])
    assert words <= set(words_of(sheet))


@pytest.mark.parametrize("low, high", [(2.74e-9, 5.93e-4), (-9.55e-9, .0449), (-.929, 3.66), (-12345., 23456.)])
def test_the_ends_of_a_histogram_do_not_meet(low, high):
    sheet = Sheet()
    draw_histogram(sheet, (0, 0, 120, 94), "a", np.array([low, high]))
    assert sum(width_of(word, 13) for word in sheet.words[1:]) < 115        # as large as on a narrow page


def test_a_bar_begins_behind_its_name_and_ends_before_its_number_does():
    sheet = Sheet()
    draw_horizontal_bars(sheet, (8, 6, 396, 230), [.00794], ["policy.net.trunk.layers.0"], .00794)
    [bar] = [mark for mark in sheet.marks if isinstance(mark, Box)]
    name, number = sheet.words                                              # as large as on a narrow page
    assert 8 + width_of(name, 13) < bar.left and bar.right + 4 + width_of(number, 13) < 400


@pytest.mark.parametrize("shape, written", [((4, 12), True), ((2, 2), True), ((20, 20), False)])
def test_numbers_stay_within_their_cells_or_are_left_out(shape, written):
    states = math.prod(shape)
    sheet = grid_image(Layout(states, 4, shape), np.linspace(-19.5, .5, states))
    words = [mark for mark in sheet.marks if isinstance(mark, Words) and mark.most]
    side = min(338 // shape[1], 232 // shape[0])
    assert len(words) == written * states
    assert all(width_of(word.words, 10) * word.most / 10 < side and word.most >= 9 for word in words)


def test_a_story_has_its_range_beside_it_and_its_updates_below():
    sheet = Sheet()
    told = np.array([(10., 1., 2., 3.), (90., 2., 3., 4.)])
    draw_story(sheet, (8, 8, 392, 228), "loss", told, (.5, 4.5))
    found = words_of(sheet)
    assert found["10"][1] == found["90"][1] > found["0.5"][1] > found["4.5"][1]
    assert found["10"][0] < found["90"][0] < found["0.5"][0] == found["4.5"][0]


def test_a_stored_picture_keeps_to_its_limit():
    noise = np.random.default_rng(0).integers(256, size=(236, 400, 3), dtype=np.uint8)
    smooth = Image.new("RGB", (400, 236), "#3b82c4")
    stored = compose([("noise", Image.fromarray(noise).reduce(4)), *[("smooth", smooth)] * 5], "six views")
    assert len(stored) <= 58_000 and Image.open(io.BytesIO(stored)).size[0] == 1200


# one description, two painters

STRANGE = [0., -3.5, np.nan, np.inf, -np.inf, 1e300, 7.]
WORDS = ["plain", "<script>alert(1)</script>", "a & b", "", "π ∞ é", '"quoted"', "]]>"]


def strange_sheet(seed):
    "Every kind of mark at places that may be nowhere, with words that may be taken for marks"
    rng = np.random.default_rng(seed)
    def some(*shape):
        return rng.choice(STRANGE, shape) if rng.random() < .5 else rng.normal(50, 90, shape)
    sheet = Sheet(300, 200)
    sheet.text(*some(2), WORDS[seed % len(WORDS)], rng.choice(["la", "mm", "rb"]))
    sheet.pen.rectangle(some(4), "value", "text")
    sheet.pen.ellipse(np.sort(some(4)), None, "here", 2)
    sheet.pen.line(some(6, 2), "return", 1.5)
    sheet.pen.polygon(some(5, 2), "policy")
    sheet.pen.dots(some(9, 2), (1, 2, 3), 4, .5)
    sheet.marks.append(Line(some(6, 2), "text", 1, "dashed"))
    sheet.plane((0, 0, 40, 30), rng.integers(255, size=(3, 4, 3), dtype=np.uint8), smooth=bool(seed % 2))
    sheet.marks.append(Window(10, 10, 90, 90, (Line(some(4, 2), "error"), Words(20., 20., "inside"))))
    return sheet


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_numbers_the_page_gets_valid_marks_and_the_file_pixels(seed):
    sheet = strange_sheet(seed)
    tree = ElementTree.fromstring(sheet.svg)
    assert not re.search(r"\b(nan|inf)\b", re.sub(r">[^<]*<|href=\S+", "", sheet.svg))
    told = [node.text or "" for node in tree.iter() if node.tag.endswith("text")]
    assert sorted(told) == sorted([*sheet.words, "inside"])
    assert not any(node.tag.endswith("script") for node in tree.iter())
    assert sheet.image.size == (300, 200) and json.loads(json.dumps(sheet.svg)) == sheet.svg


def ink_box(image):
    "Left, top, right, bottom of all that is not the ground"
    ground = np.asarray(image)[-1, -1]
    rows, columns = np.nonzero((np.asarray(image) != ground).any(-1))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("draw, box", [
    (lambda sheet: sheet.pen.rectangle((20, 30, 60, 50), "value"), (20, 30, 60, 50)),
    (lambda sheet: sheet.pen.ellipse((20, 30, 60, 50), "value"), (20, 30, 60, 50)),
    (lambda sheet: sheet.pen.polygon([(20, 30), (60, 30), (60, 50)], "value"), (20, 30, 60, 50)),
    (lambda sheet: sheet.pen.line([(20, 40), (60, 40)], "value", 4), (20, 38, 60, 42)),
    (lambda sheet: sheet.pen.dots([(40, 40)], "value", 10), (35, 35, 45, 45)),
    (lambda sheet: sheet.plane((20, 30, 60, 50), np.zeros((2, 2, 3), np.uint8)), (20, 30, 60, 50)),
    (lambda sheet: sheet.marks.append(Window(20, 30, 60, 50, (Line(np.array([(0, 40), (90, 40)]), "value", 50),))),
     (20, 30, 60, 50)),
])
def test_the_painter_puts_a_mark_where_its_numbers_say(draw, box):
    sheet = Sheet(100, 80)
    draw(sheet)
    assert np.abs(np.subtract(ink_box(sheet.image), box)).max() <= 1


def test_roles_are_told_apart():
    "Colours of different meanings are not alike"
    codes = [np.array(ImageColor.getrgb(code)) for code in ROLES.values()]
    near = min(np.abs(one - other).sum() for i, one in enumerate(codes) for other in codes[:i])
    assert near > 60 and len(set(SERIES)) == len(SERIES)


def test_a_colour_bar_has_the_lowest_the_middle_and_the_highest_number():
    sheet = Sheet()
    draw_colour_bar(sheet, (0, 20, 300, 200), -2., 6., name="value")
    assert sheet.words == ["-2.00", "2.00", "6.00", "value"]
    assert max(mark.x for mark in sheet.marks if isinstance(mark, Words)) <= 300 + BAR


def test_curves_are_cut_off_at_their_axes_and_words_are_not():
    picture = Picture()
    ax = picture.axes(xlabel="step", ylabel="number")
    line = picture.add(ax.plot([0, 1, 2], [0, 1e9, np.nan])[0], ax)
    picture.limits(ax, (0, 2), cover(None, 0, 1))
    pixels = np.asarray(picture.draw().image)
    value = [int(ROLES["value"][i:i + 2], 16) for i in (1, 3, 5)]
    rows, _ = np.nonzero((pixels == value).all(-1))
    assert len(rows) and rows.min() >= ax.box[1]
    line.set_visible(False)
    assert not any(isinstance(mark, Window) for mark in picture.draw().marks)
    assert {"step", "number"} <= set(picture.draw().words)


def test_bars_of_any_height_stay_in_their_box():
    sheet = Sheet()
    draw_horizontal_bars(sheet, (10, 10, 300, 100), [1., np.inf, 0.], ["one", "two", "three"], 2.)
    bars = [mark for mark in sheet.marks if isinstance(mark, Box)]
    assert sheet.words[::2] == ["one", "two", "three"] and all(10 <= bar.left <= bar.right <= 300 for bar in bars)


class Recorded(Pane):
    "Remembers its messages"
    def __init__(self):
        self.told = []
        super().__init__()

    def send(self, content, buffers=None):
        self.told.append(content)

    def send_state(self, key=None):
        self.told.append("state")


def test_what_moves_is_one_message_and_rest_is_always_shown():
    panes = [Recorded() for _ in range(3)]
    for pane in panes: pane.told.clear()
    for i, pane in enumerate(panes): pane.show(f"<b>{i}</b>", moving=True)
    panes[2].show("<b>newer</b>", moving=True)
    send_together(panes)
    assert [len(pane.told) for pane in panes] == [1, 0, 0]
    assert list(panes[0].told[0].values()) == ["<b>0</b>", "<b>1</b>", "<b>newer</b>"]
    assert {pane.html for pane in panes} == {""}                    # nothing is kept of what moves
    send_together(panes)
    assert len(panes[0].told) == 1
    for pane in panes:
        pane.show("", moving=False)                  # as at the last rest, and not what the page shows
    assert all(pane.told[-1] == {pane.key: ""} for pane in panes)
    panes[0].show("<i>rest</i>")
    assert panes[0].html == panes[0].sent == "<i>rest</i>"


@pytest.mark.parametrize("n, wide", [(3, 1200), (7, 1600), (8, 1600), (9, 1200), (10, 1200)])
def test_the_stored_picture_has_as_few_empty_places_as_can_be(n, wide):
    stored = compose([(f"{i}", Image.new("RGB", (400, 236))) for i in range(n)], "views")
    assert Image.open(io.BytesIO(stored)).width == wide
