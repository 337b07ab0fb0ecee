"Pictures and the parts of the page, without a browser"
import io

import numpy as np
import pytest
from PIL import Image

from rlbench.lab.components import read_asset
from rlbench.lab.drawing import FACES, Sheet, compose, draw_bars, draw_histogram, encode_image


def test_the_page_asks_nobody_else():
    "The modules that are sent to the page name no other machine"
    for name in ("grid.js", "table.js", "keys.js", "lab.css"):
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
    assert len(sheet.image.getcolors()) > 1


def test_a_stored_picture_keeps_to_its_limit():
    noise = np.random.default_rng(0).integers(256, size=(236, 400, 3), dtype=np.uint8)
    smooth = Image.new("RGB", (400, 236), "#3b82c4")
    stored = compose([("noise", Image.fromarray(noise).reduce(4)), *[("smooth", smooth)] * 5], "six views")
    assert len(stored) <= 58_000 and Image.open(io.BytesIO(stored)).size[0] == 1200
