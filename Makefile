# The two commands: `make reproduce` and `make test`. Each does its own set-up in .venv;
# a second run skips what has not changed. Needs Python 3.11 or newer and make, nothing else.
#
#   make setup PYTHON=/path/to/python3.12     to choose the interpreter
#   make reproduce PROFILE=smoke              another size of the experiments
#   make test ARGS="-k gaussian -x"           anything pytest takes (-n 0: one after the other)
#   make lock ARGS=--upgrade                  newer versions of everything

PYTHONS = python3.14 python3.13 python3.12 python3.11 python3 python
PROFILE = quick
ARGS =
version = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' aftlib/__init__.py)
bin = .venv/bin

# A stamp is named after what it stands for: the contents of the files and the place of the
# directory (a copied .venv points at the original). It is written last, so an interrupted
# set-up leaves none and the next one starts from an empty .venv.
digest = $(shell { pwd; cat $(1); } 2>/dev/null | cksum | tr ' ' '-')
locked := .venv/locked-$(call digest,requirements.lock)
ready := .venv/ready-$(call digest,requirements.lock pyproject.toml)
# An interpreter that went away since (a system upgrade) is as good as no .venv.
broken := $(shell $(bin)/python -c 'import pip' >/dev/null 2>&1 || echo unusable-venv)

# Four processes for two cores, since most tests wait for a process to start or end, each of one thread. A file
# of tests runs in one of them; the longest come first (tests/conftest.py).
pytest = OPENBLAS_NUM_THREADS=1 $(bin)/python -m pytest
four = --numprocesses 4 --dist loadfile --no-loadscope-reorder
# numba keeps what it compiled beside the sources, until they change.
kernels = $(wildcard aftlib/guard/*.py) aftlib/core/compiling.py aftlib/shared_state/parsing.py aftlib/shared_state/sums.py \
  aftlib/exponential_histogram/kernels.py aftlib/sensor_plans/backtest.py
# The JVMs of a tiny reproduction end before it pays to optimize what they run.
short = SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Compiled sources are kept: else each of the many processes compiles them again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test fast check crash soak bench cluster ns3 docs lab lock lock-check release \
  mutants coverage dated lint format clean $(broken)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(ready) .venv/archive ## make .venv from requirements.lock (skipped when nothing changed)

reproduce: setup .venv/compiled ## run the notebooks (PROFILE=quick) and write reports/index.html
	$(bin)/aft reproduce --profile $(PROFILE)

test: setup .venv/compiled ## run the tests (ARGS=... goes to pytest)
	$(pytest) $(four) -m "not long" $(ARGS)

long: setup .venv/compiled ## the tests that `make test` leaves out: a cluster, power loss, a soak
	$(pytest) $(four) -m long $(ARGS) $$(grep -rl --include='test_*.py' mark.long tests)

fast: setup .venv/compiled ## the tests that need no Spark, kill nobody and take no ten seconds
	$(pytest) $(four) -m "not spark and not crash and not slow" $(ARGS)

check: $(ready) ## what CI runs: lint, docs, tests, a tiny reproduction
	$(MAKE) --jobs 2 .venv/compiled .venv/archive lint docs
	$(MAKE) test
	$(short) $(bin)/aft reproduce --profile smoke --jobs 2 --strict

coverage: setup .venv/compiled ## lines that the quick tests reach, by package, against tests/floors.json
	@rm -rf build/coverage; mkdir -p build/coverage
	$(bin)/python -m coverage run -m pytest $(four) -m "not spark and not crash and not slow" $(ARGS)
	@$(bin)/python -m coverage combine --quiet
	@$(bin)/python -m coverage json --quiet
	@$(bin)/python -m tests.floors build/coverage/found.json $(FLOORS)

mutants: setup ## small mistakes that the tests of PACKAGE should notice (ARGS="--seconds 60")
	@$(bin)/python -m tests.mutants $(PACKAGE) $(ARGS)

crash: setup ## the full number of trials that kill real processes
	AFT_TRIALS=full $(bin)/python -m pytest tests/crash -m crash $(ARGS)

soak: setup ## inject faults into four schemes at once for half an hour (AFT_SOAK_SECONDS=180: less)
	$(bin)/python -m benchmarks.soak

bench: setup ## measure the speed ratios of benchmarks/
	$(bin)/python -m benchmarks $(ARGS)

cluster: setup ## a Spark cluster of two workers on this machine, until Ctrl-C (docs/cluster.md)
	$(bin)/aft cluster $(ARGS)

ns3: setup ## make D4's reference tables anew on ns-3 (needs libns3-dev and g++; some minutes)
	$(bin)/python -m benchmarks.ns3

docs: $(ready) ## make the pages of docs/ as HTML, in docs/_build (a warning is an error)
	$(bin)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Copies that are there are kept; the settings are defaults, which a user's own replace.
lab: setup ## open copies of the notebooks, in scratch/, in JupyterLab
	@mkdir -p scratch $(bin)/../share/jupyter/lab/settings
	@cp notebooks/lab_settings.json $(bin)/../share/jupyter/lab/settings/overrides.json
	@for notebook in notebooks/*.ipynb; do \
	  test -e scratch/$${notebook##*/} || cp $$notebook scratch/; done
	@echo "scratch/ holds your copies of the notebooks; delete one to have it anew"
	$(bin)/jupyter lab --notebook-dir=scratch $(ARGS)

lock: setup ## remake requirements.lock from pyproject.toml
	$(bin)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	  --all-extras --group dev --group docs --group bench --generate-hashes --no-header --custom-compile-command 'make lock' \
	  --output-file requirements.lock $(ARGS) pyproject.toml

lock-check: setup ## that all of requirements.lock can be had, for each Python and platform
	@for python in 3.11 3.12 3.13 3.14; do \
	  for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin; do \
	    echo "$$python $$platform"; \
	    $(bin)/uv pip compile --quiet --no-deps --python-version $$python --python-platform $$platform \
	      --only-binary :all: --no-binary pyspark --no-binary dgim requirements.lock >/dev/null || exit 1; \
	  done; done

release: dated check lock-check ## all checks, then a wheel in dist/ and the tag to set
	rm -rf dist build
	$(bin)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir dist .
	@ls dist; echo "now: git tag v$(version)"

dated:
	@test -z "$$(git status --porcelain)" || { echo "release: commit all changes first" >&2; exit 1; }
	@grep -q '^## \[$(version)\] - 20..-..-..$$' CHANGELOG.md \
	  || { echo "release: CHANGELOG.md has no date for $(version), such as ## [$(version)] - 2026-01-31" >&2; exit 1; }

lint: $(ready) ## ruff (rules and format) and mypy
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

format: setup ## mend what ruff can mend
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

clean: ## remove .venv and all caches (data/ and reports/ stay)
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(ready): $(locked)
	@rm -f .venv/ready-*
	@echo "set-up 3/4: aftlib itself"
	@$(bin)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

.venv/archive: $(ready)
	@echo "set-up 4/4: Spark's classes in one file, so that each Java starts sooner"
	@$(bin)/python -m aftlib.spark.archive >/dev/null 2>&1 || echo "set-up: not made; it will do without"
	@touch $@

.venv/compiled: $(ready) $(kernels)
	@echo "compiling the kernels, once for all processes"
	@$(bin)/python -m tests.compiled
	@touch $@

# pyspark comes as source and is built here, beside the installation of the others. setuptools, the
# only tool that this takes, is installed from the lock first, so that nothing is ever downloaded
# without a known hash.
install = $(bin)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps
source = --no-build-isolation --use-pep517
$(locked): $(broken)
	@rm -rf .venv
	@python= ; for candidate in $(PYTHON) $(if $(PYTHON),,$(PYTHONS)); do \
	  "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	    >/dev/null 2>&1 && python="$$candidate" && break; done; \
	if [ -z "$$python" ]; then \
	  echo "set-up: no Python 3.11 or newer with its venv module among: $(or $(PYTHON),$(PYTHONS))." >&2; \
	  echo "Install one (Debian, Ubuntu: apt install python3-venv) or name it:" >&2; \
	  echo "  make setup PYTHON=/path/to/python3.12" >&2; exit 1; fi; \
	echo "set-up 1/4: .venv with $$("$$python" --version)"; \
	"$$python" -m venv .venv
	@echo "set-up 2/4: $$(grep -c == requirements.lock) packages of requirements.lock" \
	  "(about 900 MB to download; a few minutes)"
	@for package in setuptools pyspark; do \
	  awk "/^[^ #]/ { keep = /^$$package==/ } keep" requirements.lock > .venv/$$package.lock; done
	@awk '/^[^ #]/ { keep = !/^(setuptools|pyspark)==/ } keep' requirements.lock > .venv/others.lock
	@$(install) -r .venv/setuptools.lock
	@$(install) $(source) -r .venv/pyspark.lock & built=$$!; \
	$(install) $(source) -r .venv/others.lock; others=$$?; \
	wait $$built && exit $$others
	@touch $@
