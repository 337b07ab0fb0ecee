"Cards on a real page: rows without holes, dragging, sizing, closing, and what a reload keeps"
import pytest

from tests.browser.test_workbench import BENCH, CARTPOLE, CLIFF, paused, shot, start

GEOMETRY = """() => {
  const views = document.querySelector('.rl-views');
  const root = views.getBoundingClientRect();
  const cards = [...views.querySelectorAll(':scope > .rl-card:not(.rl-away)')].map(card => {
    const box = card.getBoundingClientRect();
    return {name: [...card.classList].find(one => one.startsWith('rl-view-')).slice(8), left: box.left - root.left,
            right: box.right - root.left, top: box.top - root.top, bottom: box.bottom - root.top}; });
  return {width: root.width, cards}; }"""
CLIPPED = """() => [...document.querySelectorAll(
    '.rl-root :is(.rl-text, .rl-card-title, .rl-status, .rl-title, button, label)')]
  .filter(part => part.offsetParent && part.clientWidth && part.scrollWidth > part.clientWidth + 1)
  .map(part => part.className + ': ' + part.innerText.slice(0, 40))"""
CUT = """() => [...document.querySelectorAll('.rl-card.rl-fixed')].filter(card => {
    const box = part => card.querySelector(part).getBoundingClientRect();
    return box('svg').bottom > box('.rl-text').top + 1; }).map(card => card.className)"""
GRID = "() => document.querySelector('.rl-image-frame svg').getBoundingClientRect().height"
SIDE = """() => { const box = part => document.querySelector(part).getBoundingClientRect();
  const side = box('.rl-side'), views = box('.rl-views');
  return {shown: side.width > 0, above: side.bottom <= views.top, left: side.left - views.left,
          spill: side.bottom - views.bottom, wide: views.width}; }"""
WORDS = """() => [...document.querySelectorAll('.rl-views > .rl-card:not(.rl-away) .rl-pane text')]
  .filter(text => text.getClientRects().length && Number(text.getAttribute('font-size')) >= 10
                  && Number(text.getAttribute('font-size')) < 13)
  .map(text => { const matrix = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.b, matrix.d); })"""
OUTSIDE = """() => [...document.querySelectorAll('.rl-views > .rl-card:not(.rl-away) .rl-pane text')].filter(text => {
    const box = text.getBoundingClientRect(), card = text.closest('.rl-card').getBoundingClientRect();
    return box.width && (box.left < card.left + 2 || box.right > card.right - 2); }).map(text => text.textContent)"""
NOTHING_KEPT = "() => !Object.keys(localStorage).some(key => key.startsWith('rlbench '))"
TURN = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 250))))"""


def geometry(page):
    page.evaluate(TURN)
    return page.evaluate(GEOMETRY)


def rows_of(cards):
    "Cards by their upper edge, in reading order"
    rows = {}
    for card in cards: rows.setdefault(round(card["top"]), []).append(card)
    return [sorted(row, key=lambda card: card["left"]) for _, row in sorted(rows.items())]


def names(page):
    return [card["name"] for row in rows_of(geometry(page)["cards"]) for card in row]


def check_no_holes(page, gap=10):
    "Rows are as wide as the grid, and as high in all their cards; one begins where the one before ends"
    found = geometry(page)
    above = -gap
    for row in rows_of(found["cards"]):
        edges = [-gap / 2, *[edge for card in row for edge in (card["left"], card["right"])], found["width"] + gap / 2]
        spaces = [after - before for before, after in zip(edges[::2], edges[1::2])]
        assert all(abs(space - gap) < 1.5 for space in spaces), row
        assert max(card["bottom"] for card in row) - min(card["bottom"] for card in row) < 1.5
        assert abs(row[0]["top"] - above - gap) < 1.5
        above = row[0]["bottom"]


def side_box(page):
    page.evaluate(TURN)
    return page.evaluate(SIDE)


def forget(page):
    page.evaluate("() => localStorage.clear()")


@pytest.mark.parametrize("code", [CARTPOLE, CLIFF], ids=["cartpole", "cliff"])
def test_rows_are_full_at_any_width_and_nothing_is_clipped(lab, code):
    page = start(lab, code)
    page.locator(".rl-step-episode").click()
    paused(page)
    for look in ("explore", "debug", "teach"):
        lab.ask(f"wb.look({look!r})")
        for width in (900, 1280, 1920, 2560):
            page.set_viewport_size(dict(width=width, height=1000))
            check_no_holes(page)
            assert page.evaluate(CLIPPED) == [], (look, width)
    shot(page, "teach-light")


def test_words_in_pictures_are_of_one_size_however_wide_the_card(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-iteration").click()
    paused(page)
    for look, size in (("explore", 1), ("teach", 1.3)):
        lab.ask(f"wb.look({look!r})")
        for width in (900, 1280, 1920, 2560):
            page.set_viewport_size(dict(width=width, height=1000))
            page.evaluate(TURN)
            words = page.evaluate(WORDS)
            assert len(words) > 10 and 10.4 * size < min(words) and max(words) < 12.3 * size, (look, width)
            assert page.evaluate(OUTSIDE) == [], (look, width)


def test_rows_have_neither_too_many_cards_nor_too_few(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-iteration").click()
    paused(page)
    page.set_viewport_size(dict(width=2560, height=1000))
    assert max(len(row) for row in rows_of(geometry(page)["cards"])) <= 5
    lab.ask("wb.look('teach')")
    for width in (1280, 1440):
        page.set_viewport_size(dict(width=width, height=1000))
        assert [len(row) for row in rows_of(geometry(page)["cards"])] == [2, 2]


LONE = """() => { const card = document.querySelector('.rl-card.rl-lone');
  const box = part => card.querySelector(part).getBoundingClientRect();
  const all = card.getBoundingClientRect(), picture = box('.rl-pane svg');
  const words = box('.rl-text'), title = box('.rl-card-title');
  return {high: all.height, share: picture.width / all.width, beside: words.left - picture.right,
          below: all.bottom - picture.bottom, above: picture.top - title.bottom}; }"""


@pytest.mark.parametrize("width", [900, 1280])
def test_a_card_alone_in_its_row_has_its_words_beside_its_picture(lab, width):
    page = start(lab, CARTPOLE)
    page.set_viewport_size(dict(width=width, height=1000))
    page.locator(".rl-card.rl-lone").first.wait_for()
    page.evaluate(TURN)
    lone = page.evaluate(LONE)
    assert lone["high"] < 350 and .55 < lone["share"] < .7 and lone["beside"] > 0, lone
    assert 0 <= lone["below"] < 20 and 0 <= lone["above"] < 12, lone


FLAT = """() => { const box = part => document.querySelector(part).getBoundingClientRect();
  const card = box('.rl-view-frame.rl-lone'), picture = box('.rl-view-frame .rl-image-frame > :is(svg, img)');
  return [card.bottom - picture.bottom, picture.top - box('.rl-view-frame .rl-card-title').bottom, picture.width]; }"""


@pytest.mark.parametrize("env", ["rlbench/CliffWalk-v0", "CliffWalking-v1"])
def test_a_flat_world_alone_in_its_row_leaves_no_room(lab, env):
    page = start(lab, BENCH.format(env=env, algo="qlearning", more=""))
    forget(page)
    page.set_viewport_size(dict(width=1280, height=1000))
    lab.ask("wb.step('episode')")
    page.locator(".rl-view-frame.rl-lone").wait_for()
    page.evaluate(TURN)
    below, above, wide = page.evaluate(FLAT)
    assert 0 <= below < 20 and 0 <= above < 12 and wide > 400


WHOLE = """() => { const side = document.querySelector('.rl-side'), box = side.getBoundingClientRect();
  const parts = [...side.children].map(part => part.getBoundingClientRect()).filter(part => part.width);
  return [side.scrollHeight - side.clientHeight, Math.max(...parts.map(part => part.right)) - box.right,
          new Set(parts.map(part => Math.round(part.left))).size]; }"""


def test_the_side_of_a_narrow_page_is_seen_whole(lab):
    page = start(lab, CARTPOLE)
    forget(page)
    page.set_viewport_size(dict(width=900, height=1000))
    lab.ask("wb.arrange(side='open')")
    page.locator(".rl-side").wait_for(state="visible")
    page.evaluate(TURN)
    hidden, beyond, columns = page.evaluate(WHOLE)
    assert hidden <= 1 and beyond < 2 and columns == 2
    forget(page)


def test_a_wide_card_lets_two_narrow_ones_share_a_row_unless_their_order_was_said(lab):
    page = start(lab, BENCH.format(env="rlbench/DynaMaze-v0", algo="dyna", more=""))
    forget(page)
    page.set_viewport_size(dict(width=1280, height=1000))
    lab.ask("wb.step('episode')")
    page.locator(".rl-view-buffer").wait_for()
    assert names(page)[2:5] == ["values", "frame", "visits"] and page.locator(".rl-lone").count() == 0
    check_no_holes(page)
    said = ["curve", "lengths", "frame", "values"]
    lab.ask(f"wb.arrange(cards={said})")
    assert names(page)[:4] == said
    forget(page)


CELLS = """() => { const box = part => part.getBoundingClientRect();
  const grids = [...document.querySelectorAll('.rl-views .rl-grid')].flatMap(grid => {
    const wide = box(grid.querySelector('.rl-cell > rect')).width;
    return [...grid.querySelectorAll('.rl-cell text')].map(text => [text, wide]); });
  const visits = document.querySelector('.rl-image-visits svg');
  const side = Math.min(...[...visits.querySelectorAll('rect')].map(rect => box(rect).width));
  const words = [...grids, ...[...visits.querySelectorAll('text[style]')].map(text => [text, side])];
  return words.map(([text, room]) => {
    const matrix = text.getScreenCTM();
    const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.b, matrix.d);
    return [size, box(text).width / room]; }); }"""


def test_numbers_in_cells_can_be_read_and_stay_within_them(lab):
    page = start(lab, CLIFF)
    lab.ask("wb.step('episode', 3)")
    page.locator(".rl-image-visits svg").wait_for()
    for width in (900, 1280, 1920, 2560):
        page.set_viewport_size(dict(width=width, height=1000))
        page.evaluate(TURN)
        sizes, shares = zip(*page.evaluate(CELLS))
        assert len(sizes) > 100 and min(sizes) > 9 and max(sizes) < 12.5 and max(shares) <= 1.02, width


def test_the_side_is_no_longer_than_the_cards_and_above_them_where_there_is_no_room(lab):
    page = start(lab, CARTPOLE)
    for look in ("explore", "debug", "compare"):
        lab.ask(f"wb.look({look!r})")
        page.set_viewport_size(dict(width=1920, height=1600))
        assert side_box(page)["spill"] < 5, look
        page.set_viewport_size(dict(width=900, height=1000))
        side = side_box(page)
        assert side["wide"] > 600 and (not side["shown"] or side["above"] and side["left"] < 20), look
    forget(page)


def test_a_card_is_dragged_sized_and_closed_and_a_reload_keeps_it(lab):
    page = start(lab, CARTPOLE)
    forget(page)
    page.locator(".rl-step-step").click()
    page.locator(".rl-view-buffer").wait_for()
    before = names(page)
    title = page.locator(".rl-view-curve .rl-card-title").bounding_box()
    goal = page.locator(".rl-view-actions").bounding_box()
    page.mouse.move(title["x"] + 20, title["y"] + 8)
    page.mouse.down()
    page.mouse.move(title["x"] + 60, title["y"] + 30, steps=3)
    page.mouse.move(goal["x"] + goal["width"] / 2, goal["y"] + 60, steps=8)
    page.mouse.up()
    moved = names(page)
    assert moved != before and moved.index("curve") > before.index("curve")
    assert [*eval(lab.ask("print(wb.layout['cards'])"))][:len(moved)] == moved
    check_no_holes(page)

    grip = page.locator(".rl-view-buffer > .rl-size")
    grip.scroll_into_view_if_needed()
    corner = grip.bounding_box()
    page.mouse.move(corner["x"] + 9, corner["y"] + 9)
    page.mouse.down()
    page.mouse.move(corner["x"] + 9, corner["y"] + 89, steps=5)
    page.mouse.up()
    page.evaluate(TURN)
    assert eval(lab.ask("print(wb.layout['cards']['buffer'])"))[1] > 200
    page.locator(".rl-view-values .rl-close").click()
    page.locator(".rl-view-values").wait_for(state="hidden")
    assert "values" in lab.ask("print(wb.layout['away'])")
    page.locator(".rl-show-values").wait_for()
    check_no_holes(page)

    kept = names(page)
    lab.ask("import sys; wb.close()")
    lab.run_all()                                        # the cell is run again, as after a restart of the kernel
    page.locator(".rl-status", has_text="Ready").wait_for()
    page.locator(".rl-show-values").wait_for()
    page.locator(".rl-step-step").click()
    page.locator(".rl-view-buffer").wait_for()
    assert names(page) == kept
    page.locator(".rl-look-again").click()
    page.wait_for_function(NOTHING_KEPT)
    assert names(page) == before


def test_a_card_with_a_row_for_itself_can_be_closed(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    forget(page)
    lab.ask("wb.step('step', 60)")
    lone = page.locator(".rl-card.rl-lone")
    lone.wait_for()
    name = lone.evaluate("card => [...card.classList].find(one => one.startsWith('rl-view-'))")
    lone.locator(".rl-close").click()
    page.locator(f".{name}").wait_for(state="hidden")
    check_no_holes(page)
    forget(page)


PANELS = """() => [...document.querySelectorAll('.rl-root > .rl-card, .rl-root > .rl-body')]
  .map(panel => panel.getBoundingClientRect()).filter(box => box.height).map(box => [box.top, box.bottom])"""


def test_what_opens_above_the_cards_does_not_touch_them(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40, num_envs=1"))
    lab.ask("wb.step('step', 60)")
    for name in ("take", "time"): page.locator(f"button.rl-{name}").click()
    page.locator(".rl-timers svg.rl-flame").wait_for()
    page.locator(".rl-card.rl-hands").wait_for()
    boxes = page.evaluate(PANELS)
    assert len(boxes) == 3
    assert all(below[0] - above[1] >= 8 for above, below in zip(boxes, boxes[1:])), boxes
    assert page.locator("button.rl-time-close").bounding_box()["width"] < 200


def test_a_picture_fits_into_a_card_that_is_made_low_or_high(lab):
    page = start(lab, CLIFF)
    heights = []
    for high in (160, 480):
        lab.ask(f"wb.arrange(cards=dict(frame=[1, {high}], curve=[1, {high}]))")
        page.evaluate(TURN)
        assert page.locator(".rl-card.rl-fixed").count() >= 2 and page.evaluate(CUT) == []
        heights.append(page.evaluate(GRID))
    assert heights[1] > heights[0] + 300
    forget(page)


def test_cards_are_moved_and_sized_by_keyboard(lab):
    page = start(lab, CARTPOLE)
    forget(page)
    before = names(page)
    page.locator(".rl-view-curve .rl-card-title").focus()
    page.keyboard.press("Alt+ArrowRight")
    page.wait_for_function("() => document.querySelector('.rl-moved')?.textContent.includes('place 2 of')")
    assert names(page) == [before[1], before[0], *before[2:]]
    assert "Learning curve, place 2" in page.evaluate("() => document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Alt+ArrowLeft")
    assert names(page) == before
    wide = page.locator(".rl-view-curve").bounding_box()["width"]
    page.locator(".rl-view-curve > .rl-size").focus()
    for _ in range(2): page.keyboard.press("ArrowRight")
    page.evaluate(TURN)
    assert page.locator(".rl-view-curve").bounding_box()["width"] > wide
    assert lab.ask("print(wb.layout['cards']['curve'])") == "[2.0, 0]"
    page.keyboard.press("Home")
    page.evaluate(TURN)
    assert lab.ask("print(wb.layout['cards']['curve'])") == "[1.0, 0]"
    assert int(lab.ask("print(wb.trainer.steps)")) == 0              # none of these keys went on with the run
    check_no_holes(page)
    forget(page)


def test_the_side_is_shut_and_scrolls_by_itself(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    forget(page)
    page.set_viewport_size(dict(width=1280, height=700))
    side = page.locator(".rl-side")
    page.evaluate(TURN)
    assert side.evaluate("side => side.scrollHeight > side.clientHeight && side.clientHeight < 700")
    wide = geometry(page)["width"]
    page.locator(".rl-side-toggle").click()
    side.wait_for(state="hidden")
    assert geometry(page)["width"] > wide + 200 and lab.ask("print(wb.layout['side'])") == "shut"
    check_no_holes(page)
    page.locator(".rl-side-toggle").click()
    side.wait_for(state="visible")
    page.set_viewport_size(dict(width=900, height=700))
    lab.ask("wb.arrange(side='auto')")
    side.wait_for(state="hidden")                                    # there is no room for it
    forget(page)


def test_looks_are_chosen_in_the_menu_and_runs_compared(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    forget(page)
    page.locator(".rl-look select").select_option(label="teach")
    page.locator(".rl-tools").wait_for(state="hidden")
    assert page.locator(".rl-learn").is_hidden() and page.locator(".rl-play").is_visible()
    assert page.locator(".rl-status .rl-next").evaluate("one => parseFloat(getComputedStyle(one).fontSize)") > 18
    lab.ask("wb.step('step', 60); wb.beside('short sight', gamma=.5); wb.step('step', 60); wb.look('compare')")
    pair = page.locator(".rl-view-both-actions")
    pair.locator(".rl-run", has_text="short sight").wait_for()
    boxes = [one.bounding_box() for one in pair.locator(".rl-pair > *").all()]
    assert len(boxes) == 2 and abs(boxes[0]["y"] - boxes[1]["y"]) < 1 and boxes[1]["x"] > boxes[0]["x"]
    check_no_holes(page)
    shot(page, "compare-light")
    lab.ask("wb.beside('slow', lr=1e-5)")
    pair.locator(".rl-run", has_text="slow").wait_for()
    page.set_viewport_size(dict(width=1920, height=1000))
    page.evaluate(TURN)
    boxes = [one.bounding_box() for one in pair.locator(".rl-pair > *").all()]
    for what in ("width", "y"):                          # three stand in one row, none below the others
        assert len(boxes) == 3 and max(box[what] for box in boxes) - min(box[what] for box in boxes) < 1, what
    forget(page)


def test_a_height_belongs_to_the_card_that_was_sized(lab):
    page = start(lab, CARTPOLE)
    forget(page)
    grip = page.locator(".rl-view-frame > .rl-size")
    corner = grip.bounding_box()
    x, y = corner["x"] + 9, corner["y"] + 9
    page.mouse.move(x, y)
    page.mouse.down()
    for far in range(10, 301, 30): page.mouse.move(x + far, y + far / 3)
    page.mouse.up()
    page.evaluate(TURN)
    sizes = eval(lab.ask("print(wb.layout['cards'])"))
    assert sizes["frame"][0] > 1 and sizes["frame"][1] > 200
    assert all(height == 0 for name, (_, height) in sizes.items() if name != "frame")
    forget(page)


def test_one_row_of_a_table_stands_upright_in_a_usual_card(lab):
    page = start(lab, BENCH.format(env="rlbench/Bandit-v0", algo="bandit", more=""))
    page.set_viewport_size(dict(width=1920, height=1000))
    lab.ask("wb.step('step', 20)")
    page.locator(".rl-view-targets .rl-one").wait_for()
    [card] = [one for one in geometry(page)["cards"] if one["name"] == "targets"]
    head, cell = (page.locator(f".rl-view-targets {part}").last.bounding_box() for part in ("th", "td"))
    assert card["right"] - card["left"] < geometry(page)["width"] / 2.5
    assert abs(head["y"] - cell["y"]) < 1 and cell["y"] < page.locator(".rl-view-targets .rl-text").bounding_box()["y"]


def test_a_press_near_the_time_line_counts_as_one_on_it(lab):
    page = start(lab, CARTPOLE)
    lab.ask("wb.step('step', 60)")
    page.locator(".rl-legend").wait_for()
    box = page.locator(".rl-event .noUi-base").bounding_box()
    before = int(lab.ask("print(wb.trainer.steps)"))
    page.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2 + 9)
    moved = "before => !document.querySelector('.rl-status').innerText.includes(`steps ${before} `)"
    page.wait_for_function(moved, arg=before)
    assert 0 < int(lab.ask("print(wb.trainer.steps)")) < before


MOVING = """() => [...document.querySelectorAll('.rl-root, .rl-root *')].map(part => getComputedStyle(part))
  .filter(style => style.transitionProperty !== 'none' && parseFloat(style.transitionDuration) > 0
          || style.animationName !== 'none' && parseFloat(style.animationDuration) > .01).length"""


def test_nothing_moves_by_itself_for_who_asks_for_that(lab):
    page = start(lab, CARTPOLE)
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVING) == 0
    page.emulate_media(reduced_motion=None)
