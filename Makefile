# Two commands: `make demo` trains an agent on this machine, `make test` runs every test but those in a browser, those on
# Kubernetes (test-browser, test-k8s) and the long ones (`make faults` runs them too, and with STORM=seconds a storm of
# kills for as long; SEED= replays one).
# Both install what they need under this checkout (.venv) and the user's cache, from requirements.lock.

# Variables are given on make's command line (`make demo WORKERS=3`). One of the environment of the same name changes
# nothing, except PYTHON and CHROMIUM, which name programs of the machine.
PYTHON ?= python3
SEED :=
MINUTES := 12
PHONES :=
WORKERS :=
ALGORITHM :=
SUITE :=
BASE_MODEL :=
STORM :=
STARTED := $(shell date +%s)
# A misspelt variable would be taken for none.
KNOWN := PYTHON SEED MINUTES PHONES WORKERS ALGORITHM SUITE BASE_MODEL STORM CHROMIUM
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(filter-out $(KNOWN),$(GIVEN))
ifneq ($(UNKNOWN),)
$(error no variable is called $(UNKNOWN); those of this Makefile: $(KNOWN))
endif
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-browser test-k8s faults lint format clean setup lock chart

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@if [ ! -x $(BIN)/python ]; then echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); fi
	@if command -v uv >/dev/null 2>&1; then UV=uv; else $(BIN)/python -m pip install --quiet 'uv>=0.5'; UV=$(BIN)/uv; fi; \
	  echo "installing the locked dependencies (about 5 GB with torch on Linux)"; \
	  $$UV pip install --quiet --python $(BIN)/python --require-hashes --compile-bytecode -r requirements.lock && \
	  $$UV pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

demo: $(READY)
	$(BIN)/distrl demo $(if $(SEED),--seed $(SEED) )--minutes $(MINUTES) $(if $(PHONES),--phones $(PHONES) )$(if $(WORKERS),--workers $(WORKERS) )$(if $(ALGORITHM),--algorithm $(ALGORITHM) )\
	  $(if $(SUITE),--suite $(SUITE) )$(if $(BASE_MODEL),--set 'policy.base_model=$(BASE_MODEL)' )--started $(STARTED)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

# The pages of `distrl view` in the Chromium of this machine (CHROMIUM= names another); pictures go to out/browser.
test-browser: $(READY)
	$(if $(CHROMIUM),CHROMIUM='$(CHROMIUM)') $(BIN)/python -m pytest tests/view/browser -m browser --numprocesses 2

# On the cluster that KUBECONFIG names, whose nodes can pull K8S_IMAGE; else, as root, on a node of its own.
test-k8s: $(READY)
	$(BIN)/python -m pytest tests/k8s -m k8s --durations=0

faults: $(READY)
	STORM=$(STORM) SEED=$(SEED) \
	  $(BIN)/python -m pytest tests/faults -m "" --durations=0 -s

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The files of the Helm chart that follow from the program: its schema, its README and others.
chart: $(READY)
	$(BIN)/python charts/generate

lock:
	uv pip compile --quiet --no-header --generate-hashes --python-version 3.11 --universal --extra dev --extra otel --group image pyproject.toml -o requirements.lock
	cp requirements.lock requirements-trackio.lock # the same versions, where Trackio takes them
	uv pip compile --quiet --no-header --generate-hashes --python-version 3.11 --universal --group trackio -o requirements-trackio.lock

clean:
	@if [ -x $(BIN)/distrl ] && $(BIN)/distrl --help >/dev/null 2>&1; then $(BIN)/distrl down; fi
	rm -rf out $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache
