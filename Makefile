# make lab     install into .venv and open the workbench in JupyterLab
# make test    install into .venv and check everything
# make proofs  the tests that make test leaves out: figures of the book in small
# make sync    clean the notebooks, export the package, write README.md
# make bench-speed      steps a second;  make bench-learning    returns reached, over seeds (slow)

PYTHON ?=
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
EXTRAS := lab,dev,box2d,mujoco,tensorboard,render,minari,minatar,peers

.PHONY: help lab venv sync test proofs bench-speed bench-learning
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# make /make /p' Makefile

# A second run installs nothing: the stamp is younger than what it was made from.
$(STAMP): pyproject.toml constraints.txt | $(PY)
	@echo "Installing rlbench and its pinned requirements into $(VENV) (some minutes the first time)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $(STAMP)

$(PY):
	@for p in $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python); do \
	  if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$p" -m venv $(VENV) && exit 0; rm -rf $(VENV); exit 1; \
	  fi; \
	done; \
	echo "rlbench needs Python 3.11 or newer, and found none. Install it, or say where it is: make venv PYTHON=/path/to/python3.11" >&2; exit 1

venv: $(STAMP)

# Without a display JupyterLab serves on this machine only and prints its address, token included.
lab: $(STAMP)
	@set -- --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/nbs/workbench.ipynb; \
	if [ "$$(uname)" != Darwin ] && [ -z "$$DISPLAY$$WAYLAND_DISPLAY" ]; then set -- "$$@" --no-browser --ip=127.0.0.1; fi; \
	if [ "$$(id -u)" = 0 ]; then set -- "$$@" --allow-root; fi; \
	NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost exec $(PY) -m jupyterlab "$$@"

sync: $(STAMP)
	@$(PY) tools/clean_notebooks.py && $(PY) tools/sync.py && $(PY) tools/readme.py && $(PY) tools/pages.py

test: $(STAMP)
	@$(PY) tools/check.py

proofs: $(STAMP)
	@$(PY) -m pytest -n 2 --dist loadfile -m long tests

bench-speed: $(STAMP)
	@$(PY) benchmarks/speed.py

bench-learning: $(STAMP)
	@$(PY) benchmarks/learning.py --write
