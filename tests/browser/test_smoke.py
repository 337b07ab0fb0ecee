"""The fixtures themselves: a widget answers a click, pictures can be compared, themes change, trouble is noticed."""
import pytest

BUTTON = """import ipywidgets as widgets, numpy as np
from io import BytesIO
from PIL import Image
def picture(seed):
    file, pixels = BytesIO(), np.random.default_rng(seed).integers(0, 200, (40, 60, 3), "uint8")
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()
button, view, label = widgets.Button(description="step"), widgets.Image(value=picture(0)), widgets.Label("steps 0")
button.add_class("rl-step"); view.add_class("rl-view"); label.add_class("rl-status")
def step(_):
    n = int(label.value.split()[1]) + 1
    view.value, label.value = picture(n), f"steps {n}"
button.on_click(step)
widgets.VBox([button, view, label])"""


def test_a_click_changes_the_picture_and_the_text(lab):
    lab.open_notebook([BUTTON])
    lab.run_all()
    before = lab.pixels("img.rl-view")
    lab.page.locator("button.rl-step").click()
    lab.page.locator(".rl-status", has_text="steps 1").wait_for()
    after = lab.pixels("img.rl-view")
    assert after["hash"] != before["hash"] and after["ink"] > 500 and (after["width"], after["height"]) == (60, 40)


def test_dark_theme_and_the_package_in_the_kernel(lab):
    lab.open_notebook(["import rlbench; rlbench.__version__"], theme="JupyterLab Dark")
    lab.run_all()
    dark = lab.page.evaluate("getComputedStyle(document.body).getPropertyValue('--jp-layout-color1').trim()")
    assert dark == "#212121"
    assert lab.save().cells[0].outputs[0].data["text/plain"].startswith("'")


def test_a_cell_that_raises_is_reported(lab):
    lab.open_notebook(["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError"): lab.run_all()


def test_a_request_to_another_host_is_noticed(lab):
    lab.open_notebook(["1"])
    lab.page.route("http://elsewhere.invalid/**", lambda route: route.abort())     # it must not leave the machine
    assert lab.trouble == []
    lab.page.evaluate("fetch('http://elsewhere.invalid/').catch(() => 0)")
    lab.page.evaluate("setTimeout(() => { throw new Error('on purpose') })")
    lab.page.wait_for_timeout(200)
    noticed, lab.trouble[:] = " ".join(lab.trouble), []
    assert "asked another host: http://elsewhere.invalid/" in noticed
    assert "request failed" in noticed and "page error" in noticed
