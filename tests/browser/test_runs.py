"The page of runs in a real JupyterLab: filter, tick, click a run, open its checkpoint"
MAKE = """import rlbench
small = dict(steps=300, num_envs=2, n_steps=32, hidden=(8,), log_every=50, eval_every=100, eval_episodes=1)
for lr in (.001, .01):
    for seed in (0, 1):
        rlbench.train("CartPole-v1", "ppo", run_id=f"{lr:g}-{seed}", folder="some", lr=lr, seed=seed, force=True,
                      progress=False, **small)"""
SHOW = "page = rlbench.Runs('some').show()\npage"
NEWS = """with open("some/0.01-0/metrics.jsonl", "a") as file:
    print('{"steps": 400, "mean_return": 77.0}', file=file)"""
CELLS = """() => [...document.querySelectorAll('.rl-runs-table tr')]
  .map(line => [...line.children].map(cell => cell.innerText.split(' ')[0]))"""
LINES = """cell => { const all = document.createRange(); all.selectNodeContents(cell);
  return all.getClientRects().length; }"""
HASH = "src => document.querySelector('.rl-runs-picture').src !== src"


def test_a_checkpoint_is_opened_by_clicks(lab):
    lab.open_notebook([MAKE, SHOW])
    lab.run_all()
    page = lab.page
    rows = page.locator(".rl-runs-table tbody tr")
    rows.nth(3).wait_for()
    picture = page.locator(".rl-runs-picture")
    assert lab.pixels(".rl-runs-picture")["ink"] > 500
    assert not page.locator(".rl-paper").is_visible() and not page.locator(".rl-run-card").is_visible()
    page.set_viewport_size(dict(width=600, height=1600))       # narrow: when a run began is still one line
    assert rows.first.locator("td").nth(-2).evaluate(LINES) == 1
    page.set_viewport_size(dict(width=1280, height=1600))
    heads = page.evaluate(CELLS)[0]
    assert heads[:4] == ["drawn", "run", "lr", "seed"]
    before = picture.get_attribute("src")
    page.locator(".rl-runs-table tbody input").nth(3).uncheck()
    page.wait_for_function(HASH, arg=before)
    assert lab.ask("print(sorted(page.rows.ticked))") == "[0, 1, 2]"

    field = page.locator(".rl-runs-where input")
    field.fill("lr > ")
    field.press("Enter")
    page.locator(".rl-error", has_text="invalid syntax").wait_for()
    field.fill("lr > .005 and algo == 'ppo'")
    field.press("Enter")
    page.locator(".rl-table-count", has_text="of 2").wait_for()
    assert page.locator(".rl-error").is_hidden()
    page.locator(".rl-runs-table th button", has_text="seed").click()
    page.locator(".rl-runs-table th[aria-sort=descending]", has_text="seed").wait_for()
    rows.first.filter(has_text="0.01-1").wait_for()    # the head tells at once, the rows when they are sorted
    assert rows.count() == 2
    first, *lines = page.evaluate(CELLS)               # drawn again and again, it has no more columns than before
    assert first == heads and [line[1:4] for line in lines] == [["0.01-1", "0.01", "1"], ["0.01-0", "0.01", "0"]]
    assert {len(line) for line in lines} == {len(heads)}

    lab.ask(NEWS)                                      # nobody clicks: the page looks for itself
    page.locator(".rl-runs-table tbody tr", has_text="77").wait_for()
    page.locator(".rl-runs-table tbody tr", has_text="0.01-1").click()
    card = page.locator(".rl-run-card")
    card.locator(".rl-run-settings", has_text="python").wait_for()
    assert "0.01-1" in card.inner_text() and page.locator(".rl-status").count() == 0
    card.locator("button.rl-run-time").click()
    card.locator("svg.rl-flame rect").first.wait_for()
    assert card.locator("svg.rl-flame title").first.text_content().startswith("all: ")
    flame, table = (card.locator(f".rl-flame-said {part}").bounding_box() for part in ("svg", "table"))
    assert table["x"] > flame["x"] + flame["width"] and table["y"] < flame["y"] + flame["height"]
    card.locator("select").select_option(label="best")
    card.locator("button.rl-run-open").click()
    page.locator(".rl-status", has_text="Ready").wait_for()
    page.locator(".rl-step-update").click()            # and it is a workbench like any other
    page.locator(".rl-status", has_text="one update").wait_for()
    page.locator("button.rl-time").click()
    page.locator(".rl-card.rl-timers svg.rl-flame").wait_for()
    threads = "import threading; print(sum(t.name == 'rlbench player' for t in threading.enumerate()))"
    assert lab.ask(threads) == "1"
    lab.ask("page.close()")
    page.locator(".rl-runs-page").wait_for(state="detached")
    assert lab.ask(threads) == "0"
