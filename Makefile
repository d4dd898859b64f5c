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
digest := $(shell { pwd; cat requirements.lock pyproject.toml; } | cksum | tr ' ' '-')
run := .venv/run-$(digest)
all := .venv/all-$(digest)
# An interpreter that went away since (a system upgrade) is as good as no .venv.
broken := $(shell $(bin)/python -c '' >/dev/null 2>&1 || echo unusable-venv)
install = $(bin)/uv pip install --quiet --python $(bin)/python --no-deps --no-build-isolation
pytest = OPENBLAS_NUM_THREADS=1 $(bin)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test check lint docs lab bench long lock clean $(broken)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(run) .venv/compiled ## make .venv from requirements.lock: what the notebooks need

reproduce: setup ## run the notebooks (PROFILE=quick) and write reports/index.html
	$(bin)/aft reproduce --profile $(PROFILE)

test: $(all) .venv/compiled ## run the tests (ARGS=... goes to pytest)
	$(pytest) -m "not long" $(ARGS)

long: $(all) .venv/compiled ## the tests that `make test` leaves out: a cluster, many kills
	$(pytest) -m long $(ARGS)

check: $(all) .venv/compiled ## what CI runs: lint, docs, tests, a tiny reproduction
	$(MAKE) lint docs test
	SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(bin)/aft reproduce --profile smoke --jobs 2

lint: $(all) ## ruff (rules and format) and mypy
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

docs: $(all) ## make the pages of docs/ as HTML, in docs/_build (a warning is an error)
	$(bin)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

lab: $(all) ## open copies of the notebooks, in scratch/, in JupyterLab
	@mkdir -p scratch && cp -n notebooks/*.ipynb scratch/
	$(bin)/jupyter lab --notebook-dir=scratch $(ARGS)

bench: $(all) ## measure the speed ratios of benchmarks/ (ARGS=NAME: one of them)
	$(bin)/python -m benchmarks $(ARGS)

# Tools that only tests, docs and benchmarks need stand below the line "# tools".
compile = $(bin)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
  --no-header --no-annotate pyproject.toml --group setup
lock: $(all) ## remake requirements.lock from pyproject.toml
	$(compile) --extra notebooks --extra spark --output-file .venv/run.lock
	$(compile) --all-extras --group dev --group docs --constraint .venv/run.lock --output-file .venv/all.lock
	awk 'FNR == NR { if (/^[^ #]/) known[$$0]; print; next } FNR == 1 { print "# tools" } \
	  /^[^ #]/ { keep = !($$0 in known) } keep' .venv/run.lock .venv/all.lock > requirements.lock

clean: ## remove .venv and all caches (data/ and reports/ stay)
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(run): $(broken)
	@rm -rf .venv
	@for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	    && exec "$$candidate" -m venv .venv; done; \
	echo "set-up: no Python 3.11 or newer with its venv module among: $(or $(PYTHON),$(PYTHONS))." >&2; \
	echo "Install one (Debian, Ubuntu: apt install python3-venv) or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 1
	@echo "set-up: .venv from requirements.lock (about 700 MB to download; a minute or two)"
	@awk '/^[^ #]/ { keep = /^(uv|setuptools)==/ } keep' requirements.lock > .venv/tools.lock
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/tools.lock
	@sed '/^# tools/,$$d' requirements.lock > .venv/run.lock
	@$(install) --require-hashes -r .venv/run.lock
	@$(install) --editable .
	@touch $@

$(all): $(run)
	@echo "set-up: the tools of tests, docs and benchmarks"
	@$(install) --require-hashes -r requirements.lock
	@touch $@

.venv/compiled: $(run) $(shell grep -rl core.compiling --include=*.py aftlib)
	@echo "set-up: compiling kernels and Spark's class archive, once"
	@$(bin)/python -m aftlib.spark.archive >/dev/null 2>&1 || echo "set-up: no class archive; Java starts slower" & \
	$(bin)/python -c "import aftlib.documents.exponential_histogram.kernels, aftlib.documents.shared_state.strategies" && wait
	@touch $@
