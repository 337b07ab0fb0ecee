"A page that was written to a file, as a reader opens it: narrow, in the dark, on paper, with nothing from outside"
import pytest

from rlbench.lab.page.workbench import Workbench

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    wb = Workbench("CartPole-v1", "dqn", driver="sync", views=["curve", "actions", "buffer"], seed=0,
                   learning_starts=20, batch_size=8)
    wb.step("step", 40).beside(NASTY, gamma=.5)
    wb.step("step", 5).export(path)
    wb.close()
    return path


def test_a_written_page_reads_everywhere_and_asks_for_nothing(browser, written):
    with browser.new_context(color_scheme="dark", viewport=dict(width=400, height=800)) as context:
        page = context.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(written.as_uri())
        assert all(url.startswith(("file:", "data:")) for url in asked)
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        ink = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ink)
        assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)")
        shown = page.evaluate("document.images[0].currentSrc")
        assert page.locator("h3", has_text=NASTY).count() == 1
        assert not page.get_by_text("runs = {}").is_visible()
        page.emulate_media(media="print")
        assert page.evaluate(ink) != dark and page.get_by_text("runs = {}").is_visible()
        page.emulate_media(media="screen", color_scheme="light")
        page.wait_for_function("before => document.images[0].currentSrc !== before", arg=shown)
