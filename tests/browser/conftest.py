"""JupyterLab in a real browser: one server and one Chromium for the session, fresh cells for every test.

A test asks for `lab`, opens a notebook and acts on `lab.page` as a person would:

    lab.open_notebook(["import ipywidgets as w", "w.Button(description='go')"])     # or the path of a notebook
    lab.run_all()
    lab.page.locator("button", has_text="go").click()

It fails at the end if the page raised an error, a request failed, or anything was fetched from another host.
"""
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = {"127.0.0.1", "localhost"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"]

READY = """async () => { const app = window.jupyterapp; await app.restored; const panel = app.shell.currentWidget;
  await panel.context.ready; await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session.kernel;
  await kernel.info;                    // it has answered; what it says unasked may still be lost
  const heard = () => new Promise(done => {
    const future = kernel.requestExecute({code: '', store_history: false});
    future.onIOPub = () => done(true);
    setTimeout(() => done(false), 2000); });
  for (let left = 5; left && !await heard(); left--) await kernel.reconnect();
  return kernel.name; }"""
RUN_ALL = "async () => String(await window.jupyterapp.commands.execute('notebook:run-all-cells'))"
ERRORS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON().cells
  .flatMap(cell => (cell.outputs || []).filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue))"""
SAVE = "async () => { await window.jupyterapp.shell.currentWidget.context.save(); }"
CELLS = """sources => {
  const notebook = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
  const cells = sources.map(source => ({cell_type: 'code', source, metadata: {}}));
  notebook.transact(() => { notebook.deleteCellRange(0, notebook.cells.length); notebook.insertCells(0, cells); }); }"""
THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
ASK = """async ([code, patience]) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({code, store_history: false});
  const heard = [];
  let text = '', silence;
  future.onReply = m => heard.push(m.header.msg_type);
  future.onIOPub = m => {
    heard.push(m.header.msg_type + ' ' + (m.content.execution_state ?? ''));
    if (m.header.msg_type === 'stream') text += m.content.text;
    if (m.header.msg_type === 'error') text += m.content.evalue;
  };
  const told = () => `kernel ${kernel.status}, ${kernel.connectionStatus}; heard ${heard.slice(-20)}`;
  const late = new Promise((_, fail) => {
    silence = setTimeout(() => fail(new Error(`no answer to ${code}: ${told()}`)), patience); });
  try { await Promise.race([future.done, late]); }
  finally { clearTimeout(silence); }
  return text.trim(); }"""
PATIENCE = 120_000   # milliseconds in which a kernel's answer reaches its page
SHUTDOWN = "async () => { await window.jupyterapp.shell.currentWidget?.sessionContext?.shutdown(); }"
# A picture that is replaced while it is decoded is looked at once more; one that is broken stays broken
# of SVG: as it is without a theme
PIXELS = """async el => {
  const svg = el.querySelector('svg');
  el = el.querySelector('img') ?? el;
  if (svg) {
    const copy = svg.cloneNode(true), [, , width, height] = svg.getAttribute('viewBox').split(' ');
    copy.setAttribute('width', width);
    copy.setAttribute('height', height);
    el = new Image();
    el.src = 'data:image/svg+xml,' + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  }
  for (let left = 20; el.decode; left--) {
    try { await el.decode(); break; }
    catch (error) { if (!left) throw error; await new Promise(done => setTimeout(done, 50)); } }
  const c = document.createElement('canvas');
  c.width = el.naturalWidth || el.width; c.height = el.naturalHeight || el.height;
  const x = c.getContext('2d');
  x.fillStyle = 'white'; x.fillRect(0, 0, c.width, c.height); x.drawImage(el, 0, 0);
  const d = x.getImageData(0, 0, c.width, c.height).data; let hash = 0, ink = 0;
  for (let i = 0; i < d.length; i += 4) {
    hash = (hash * 31 + d[i] + 7 * d[i+1] + 13 * d[i+2]) | 0; if (d[i] + d[i+1] + d[i+2] < 740) ink++; }
  return {width: c.width, height: c.height, hash, ink}; }"""


def pytest_collection_modifyitems(items):
    "Whatever is in this folder is a browser test"
    for item in items:
        if HERE in item.path.parents: item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium_path():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found: return found
    missing = "no Chromium found; on Debian: apt-get install chromium"
    pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


class Server:
    "A JupyterLab of this Python, on the loopback address only, that reads and writes nothing of the user's"
    def __init__(self, folder):
        self.files = folder / "files"
        self.settings = folder / "settings"
        self.log = folder / "server.log"
        self.token = secrets.token_hex(16)
        self.process = None
        own = dict(JUPYTER_CONFIG_DIR="config", JUPYTER_DATA_DIR="data", JUPYTER_RUNTIME_DIR="runtime",
                   JUPYTERLAB_SETTINGS_DIR="settings", JUPYTERLAB_WORKSPACES_DIR="workspaces", IPYTHONDIR="ipython")
        self.env = os.environ | {name: str(folder / sub) for name, sub in own.items()}
        for sub in (*own.values(), "files"): (folder / sub).mkdir()
        self.env |= dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", JUPYTER_PREFER_ENV_PATH="1",
                         RLBENCH_CONFIG_DIR=str(folder / "rlbench"),
                         NO_PROXY="127.0.0.1,localhost")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.set("notification", fetchNews="false", checkForUpdates=False, doNotDisturbMode=True)

    def set(self, name, **values):
        "Write a settings file of JupyterLab's core, read when a page is loaded"
        path = self.settings / "@jupyterlab" / "apputils-extension" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def start(self):
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                   f"--port={urlsplit(self.url).port}", "--ServerApp.port_retries=0",
                   f"--ServerApp.root_dir={self.files}",
                   f"--IdentityProvider.token={self.token}", "--LabApp.expose_app_in_browser=True",
                   "--JupyterNotebookApp.expose_app_in_browser=True"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 180      # on a busy machine it takes long
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start; its last words:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def answers(self):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return direct.open(f"{self.url}/api?token={self.token}", timeout=5).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        "Ask the server to go, and insist after 15 s; its kernels go with it"
        if self.process is None: return
        self.process.terminate()
        try: self.process.wait(timeout=15)
        except subprocess.TimeoutExpired: self.process.kill()


@pytest.fixture(scope="session")
def server(tmp_path_factory, chromium_path):
    one = Server(tmp_path_factory.mktemp("jupyter"))
    try:
        one.start()
        yield one
    finally: one.stop()


@pytest.fixture(scope="session")
def browser(chromium_path):
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=chromium_path, headless=True, args=FLAGS)
        yield one
        one.close()


WINDOW = dict(width=1280, height=1600)
OVERHEARD = [b"comm_open", b"comm_msg", b"comm_close", b"update_states", b"comm_info_reply", b"display_data"]
FORGET = "if 'wb' in globals(): wb.close()\nget_ipython().reset()"


class Overheard(Counter):
    "What came to a page from its kernels, by kind"
    def hear(self, socket):
        self["connections"] += 1
        socket.on("framereceived", self.note)

    def note(self, frame):
        frame = frame if isinstance(frame, bytes) else frame.encode()
        self.update(kind.decode() for kind in OVERHEARD if kind in frame)


class OnePage:
    "A page of JupyterLab with a notebook, and what went wrong on it"
    def __init__(self, server, context):
        self.server = server
        self.context = context
        self.trouble = []
        self.heard = Overheard()
        self.page = None

    def watch(self, request):
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in OURS:
            self.trouble.append(f"asked another host: {request.url}")

    def failed(self, request):
        "One that the page gave up by itself, such as a font of a theme that has gone, is no trouble"
        if request.failure == "net::ERR_ABORTED": return
        self.trouble.append(f"request failed: {request.url} ({request.failure})")

    def write(self, source):
        "The path of a fresh notebook on the server"
        file = self.server.files / f"{secrets.token_hex(4)}.ipynb"
        if isinstance(source, (str, Path)): shutil.copy(source, file)
        else:
            kernel = dict(kernelspec=dict(name="python3", display_name="python3"))
            nbformat.write(new_notebook(cells=[new_code_cell(text) for text in source], metadata=kernel), file)
        return file

    def visit(self, place, watched=True):
        "A fresh page that shows a place on the server; `watched`: what goes wrong on it is trouble"
        page = self.context.new_page()
        if watched: self.listen(page)
        page.goto(f"{self.server.url}/{place}?reset&token={self.server.token}")
        return page

    def listen(self, page):
        page.on("crash", lambda: self.trouble.append("the page crashed"))
        page.on("pageerror", lambda error: self.trouble.append(f"page error: {error}\n{error.stack}"))
        page.on("requestfailed", self.failed)
        page.on("request", self.watch)
        page.on("websocket", self.watch)
        page.on("websocket", self.heard.hear)

    def load(self, source):
        "A fresh page and a fresh kernel"
        self.leave()
        self.file = self.write(source)
        self.page = self.visit(f"doc/tree/{self.file.name}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        assert self.page.evaluate(READY) == "python3"

    def end_kernel(self):
        self.page.evaluate(SHUTDOWN)

    def leave(self):
        "End the kernel and close the page; the next notebook gets fresh ones"
        if self.page is None: return
        self.end_kernel()
        self.page.close()
        self.page = None


class Lab(OnePage):
    "What a person does there"
    def open_notebook(self, source, theme="JupyterLab Light"):
        "Show a copy of a notebook, given by its path or as a list of code cells, and wait for its kernel"
        if self.page and isinstance(source, list): self.write_anew(source)
        else: self.load(source)
        self.page.set_viewport_size(WINDOW)
        self.page.evaluate(THEME, theme)
        light = str("Dark" not in theme).lower()     # a theme arrives a little later
        self.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)

    def write_anew(self, source):
        "Other cells on the same page, and a kernel that has forgotten all names"
        assert self.ask(FORGET) == ""
        self.page.evaluate(CELLS, source)

    def ask(self, code):
        "Run a line in the kernel and return what it printed, while the page does what it does"
        return self.page.evaluate(ASK, [code, PATIENCE])

    def run_all(self):
        "Run every cell, to the end; fail with the errors of the cells that raised"
        from playwright.sync_api import Error
        try: done = self.page.evaluate(RUN_ALL)
        except Error as problem:                # very seldom the answer of a fresh kernel is lost on its way: once more
            if "garbage collected" not in problem.message: raise
            done = self.page.evaluate(RUN_ALL)
        errors = self.errors()
        assert done == "true" and errors == [], f"a cell failed: {errors}"

    def errors(self):
        "The errors in the notebook's outputs"
        return self.page.evaluate(ERRORS)

    def pixels(self, selector):
        "width, height, hash and ink (count of pixels that are not nearly white) of an image, a canvas or SVG"
        place = self.page.locator(selector)
        place.wait_for(state="visible")
        return place.evaluate(PIXELS)

    def tell(self):
        "Print what the page has heard and shows, for the report of a test that failed"
        print(dict(self.heard))
        if self.page: print(self.page.locator("body").inner_text())

    def save(self):
        "Save as the person at the browser would; the notebook as it is then on disk"
        self.page.evaluate(SAVE)
        return nbformat.read(self.file, as_version=4)


@pytest.fixture(scope="session")
def one_lab(server, browser):
    context = browser.new_context(viewport=WINDOW)
    context.set_default_timeout(60_000)
    one = Lab(server, context)
    yield one
    one.leave()
    context.close()


@pytest.fixture
def lab(one_lab, request):
    failed = request.session.testsfailed
    one_lab.trouble.clear()
    one_lab.heard.clear()
    yield one_lab
    if request.session.testsfailed > failed:
        one_lab.tell()
        one_lab.leave()
    assert one_lab.trouble == [], "the page was not in order"
