# Each target sets up what it needs in .venv: once, and again when a lock file changes.
#   make quickstart     the experiment in small, from the corpus to the report
#   make references     the same with a published model beside ours, on all packaged benchmarks
#   make test           all tests but those that need Slurm or half an hour
#   make test-long      fuzzers and storms of kills, with new random cases each time (SEED=n: the cases of that seed)
#   make schema         writes the schema, the key tables, docs/commands.md and results/README.md from the classes
#   make facts          lines by package, the longest modules and functions, and what each digest covers (BEFORE=REVISION)
#   make test-slurm     these: on a one-node Slurm that is brought up for them (root on Debian, which gets the packages)
.DELETE_ON_ERROR:
.PHONY: quickstart references test test-long test-slurm lint format schema facts lock clean

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

# The first Python from 3.11 on that can make an environment, unless PYTHON names one.
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c '$(USABLE)' 2>/dev/null && command -v $$python && break; done)
CPUS ?= $(shell getconf _NPROCESSORS_ONLN)
TORCH := 2.13.0
EFFORT ?= 20

quickstart: $(VENV)/.run
	$(BIN)/snakemake --profile workflow/profiles/local --configfile config/quickstart.yaml
	@echo; cat results/quickstart/tables/summary.txt; echo
	@echo "tables    $(CURDIR)/results/quickstart/tables/"
	@echo "figures   $(CURDIR)/results/quickstart/figures/"
	@echo "report    $(CURDIR)/results/quickstart/report.html"

references: $(VENV)/.run
	$(BIN)/snakemake --profile workflow/profiles/local --configfile config/references.yaml
	@echo; cat results/references/tables/references.txt; echo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(CPUS) -m "not slurm and not long" $(PYTEST_ARGS)

# Some 30 minutes on two cores. pytest prints the seed in its first lines, and again with a case that fails.
test-long: SEED ?= $(shell date +%s)
test-long: $(VENV)/.dev
	SEED=$(SEED) EFFORT=$(EFFORT) $(BIN)/python -m pytest -n $(CPUS) -m long $(PYTEST_ARGS)

test-slurm: $(VENV)/.dev
	@trap '$(BIN)/python tests/slurm/cluster.py down' EXIT INT TERM; \
		$(BIN)/python tests/slurm/cluster.py up && $(BIN)/python -m pytest tests/slurm -m slurm $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

schema: $(VENV)/.run
	$(BIN)/python docs/generate.py

facts: $(VENV)/.run
	$(BIN)/python benchmarks/facts.py $(if $(BEFORE),--before $(BEFORE))

$(VENV)/.run: envs/requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python from 3.11 on with venv was found; on Debian: apt-get install python3-venv;" \
		"or name one: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "setting up $(VENV): some minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -r $<
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run envs/requirements-dev.lock
	$(PIP) install -r envs/requirements-dev.lock
	@touch $@

# The lock files, from an empty environment. An index may tag its build of torch (+cpu): the tag is dropped, so that each
# index serves its own; what that build needs besides (CUDA's libraries) is left to it.
FREEZE = build/lock/bin/python -m pip freeze --all --exclude pip --exclude tokencodes | sed 's/^\(torch==[^+]*\)+.*/\1/'
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -q torch==$(TORCH) .
	(echo "# What CI runs; made by \`make lock\`"; $(FREEZE)) > envs/requirements.lock
	build/lock/bin/python -m pip install -q -c envs/requirements.lock .[dev]
	(echo "# The tools of \`make test\` and \`make lint\`, beside requirements.lock; made by \`make lock\`"; \
		$(FREEZE) | grep -vxFf envs/requirements.lock) > envs/requirements-dev.lock
	rm -rf build

clean:
	rm -rf $(VENV) .snakemake .pytest_cache .ruff_cache .hypothesis build
