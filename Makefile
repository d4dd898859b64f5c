# `make reproduce` and `make test` do their own set-up in .venv, and skip it when nothing changed.
# They need Python 3.11 or newer and make, nothing else. In an active conda environment (such as that of
# environment.yml) they make .venv with its Python; without make, `aft` and `python -m pytest` run there as they are.
#
#   make reproduce PROFILE=smoke              another size of the experiments
#   make test ARGS="-k gaussian -x"           anything pytest takes (-n 0: one after the other)
#   make setup PYTHON=/path/to/python3.12     to choose the interpreter

PYTHONS = $(strip $(addsuffix /bin/python,$(CONDA_PREFIX)) python3.14 python3.13 python3.12 python3.11 python3 python)
PROFILE = quick
ARGS =
bin = .venv/bin
# Compiled sources are kept: else each of the many processes compiles them again.
unexport PYTHONDONTWRITEBYTECODE

# A stamp is named after the contents that it stands for and the place of the folder (a copied .venv
# points at the original). It is written last, so that an interrupted set-up is done again.
digest := $(shell { pwd; cat requirements/*.lock pyproject.toml; } | cksum | tr ' ' '-')
run := .venv/run-$(digest)
all := .venv/all-$(digest)
# An interpreter that went away since (a system upgrade) is as good as no .venv.
broken := $(shell $(bin)/python -c '' >/dev/null 2>&1 || echo unusable-venv)
install = $(bin)/uv pip install --quiet --python $(bin)/python --no-deps --no-build-isolation
pytest = OPENBLAS_NUM_THREADS=1 $(bin)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test check rules lint docs smoke static lab bench long versions coverage lock build clean $(broken)

define HELP
make help       list the targets
make setup      make .venv from requirements/run.lock: what the notebooks need
make reproduce  run the notebooks (PROFILE=quick) and write reports/index.html
make test       run the tests (ARGS=... goes to pytest)
make long       run the tests that `make test` leaves out: a cluster, many kills, each notebook with other parameters
make versions   run the tests beside older Spark, pandas and numpy (ARGS=4.1: one runtime)
make coverage   run the tests, and show the lines of the library that they miss
make check      rules, docs, tests, a tiny reproduction
make rules      ruff (rules and format) and mypy
make lint       rules, and the tests of notebooks that run none
make smoke      run the notebooks in their smallest size
make docs       make the pages of docs/ as HTML, in docs/_build (a warning is an error)
make static     make reports/full from the reports of a full run (needs Chromium)
make lab        open copies of the notebooks, in scratch/, in JupyterLab
make bench      measure the speed ratios of benchmarks/ (ARGS=NAME: one of them)
make build      make the wheel and the source archive, in dist/
make lock       remake requirements/*.lock from pyproject.toml (UPGRADE=--upgrade: newest versions)
make clean      remove .venv and all caches (data/ and reports/ stay)
endef

help:
	$(info $(HELP))
	@:

setup: $(run) .venv/compiled

reproduce: setup
	$(bin)/aft reproduce --profile $(PROFILE)

test: $(all) .venv/compiled
	$(pytest) -m "not long" $(ARGS)

# A process that has no test left takes one of another's: most of these last a minute or more.
long: $(all) .venv/compiled
	$(pytest) --dist worksteal -m long $(ARGS)

# `make test` has the tests of `make lint`.
check: $(all) .venv/compiled
	$(MAKE) rules docs test smoke

smoke: setup
	SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(bin)/aft reproduce --profile smoke --jobs 2

rules: $(all)
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

lint: rules
	$(bin)/python -m pytest -q tests/test_notebooks.py

docs: $(all)
	$(bin)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

static: setup
	$(bin)/python -m aftlib.command.light

lab: $(all)
	@mkdir -p scratch && cp -n notebooks/*.ipynb scratch/
	$(bin)/jupyter lab --notebook-dir=scratch $(ARGS)

bench: $(all)
	$(bin)/python -m benchmarks $(ARGS)

versions: $(all)
	$(bin)/python -m tests.versions $(ARGS)

coverage: $(all) .venv/compiled
	$(pytest) -m "not long" --cov=aftlib --cov-report=term:skip-covered $(ARGS)

build: $(all)
	rm -rf build dist
	$(bin)/uv build --quiet --no-build-isolation --python $(bin)/python

# dev.lock has everything: run.lock, and the tools of tests, docs and benchmarks. setup.lock installs them.
UPGRADE =
compile = $(bin)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
  --no-header --no-annotate $(UPGRADE) pyproject.toml --group setup
lock: $(all)
	$(compile) --extra notebooks --output-file requirements/run.lock
	$(compile) --all-extras --group dev --group docs --constraint requirements/run.lock --output-file requirements/dev.lock
	$(bin)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --constraint requirements/run.lock --group setup --output-file requirements/setup.lock

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(run): $(broken)
	@rm -rf .venv
	@for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	    && exec "$$candidate" -m venv .venv; done; \
	echo "set-up: no Python 3.11 or newer with its venv module among: $(or $(PYTHON),$(PYTHONS))." >&2; \
	echo "Install one (Debian, Ubuntu: apt install python3-venv) or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1
	@echo "set-up: .venv from requirements/run.lock (about 700 MB to download; a minute or two)"
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/setup.lock
	@$(install) --require-hashes -r requirements/run.lock
	@$(install) --editable .
	@touch $@

$(all): $(run)
	@echo "set-up: the tools of tests, docs and benchmarks"
	@$(install) --require-hashes -r requirements/dev.lock
	@touch $@

.venv/compiled: $(run) $(shell grep -rl core.compiling --include=*.py aftlib)
	@echo "set-up: compiling kernels and Spark's class archive, once"
	@$(bin)/python -m aftlib.spark.archive >/dev/null 2>&1 || echo "set-up: no class archive; Java starts slower" & \
	$(bin)/python -c "import aftlib.documents.exponential_histogram.kernels, aftlib.documents.shared_state.strategies" && wait
	@touch $@
