# On a fresh machine, `make demo` and `make test` need no other setup.

PYTHON ?= python3
NODES ?= 2
FLEETS ?= 3
BIN := .venv/bin
READY := .venv/ready
# With several fleets on two cores a test may time out. Failed tests run once more alone; both results are printed.
ALONE := $(BIN)/pytest --last-failed --last-failed-no-failures none
FIRST := PYTEST_XDIST_WORKER=gw0
ON_NODES := "(fleet or vllm) and not matrix"

# Without bytecode each call of sparkops compiles its modules again, which takes a second or two.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: arguments demo test check lint types thorough unit fuzz gpu images-real arm64 wheel-facts fleet images nodes fleet-down swaps matrix soak watched full-memory pairs bench captures simulate bite clients ui release requirements venv clean

demo: $(READY)  ## two nodes, image, deploy, swap under load, rollback; counts failed requests
	@$(BIN)/python -m tests.operator.demo

test: $(READY)  ## every test: units, local programs, real nodes, real vLLM
	@$(MAKE) --no-print-directory --jobs 2 --keep-going thorough images
	@$(MAKE) --no-print-directory nodes

check: $(READY)  ## the fast loop: format, lint, types, units, rendered Dockerfiles
	@$(MAKE) --no-print-directory --jobs 3 --output-sync lint types unit

lint: $(READY)
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/sparkops recipe render --all --check

types: $(READY)
	@$(BIN)/mypy

# Images are built meanwhile: mypy has one core. Half of the time of the local tests is waiting, so four run at once.
thorough: export HYPOTHESIS_PROFILE := thorough
thorough: $(READY) lint types
	@$(BIN)/pytest -m "local or unit" --numprocesses 4 --dist worksteal || $(ALONE) -m "local or unit"

unit: $(READY)
	@$(BIN)/pytest -m unit --numprocesses 2 --dist worksteal

fuzz: export HYPOTHESIS_PROFILE := fuzz
fuzz: $(READY)  ## parsers of what recipes, nodes and clients send, against thousands of changed inputs; takes minutes
	@$(BIN)/pytest tests/fuzz --timeout 3600

gpu: $(READY)  ## build to swap on this machine's NVIDIA GPUs, as root; NAME= names the report (CONTRIBUTING.md)
	@$(BIN)/python -m tests.lab.gpu $(if $(NAME),--name $(NAME)) $(if $(RECIPE),--recipe $(RECIPE)) \
	  $(if $(WHEELS),--wheels $(WHEELS)) $(if $(DEBIAN),--debian $(DEBIAN)) $(if $(BASE),--base $(BASE)) $(if $(REACH),--reach $(REACH)) \
	  $(if $(LOGS),--logs $(LOGS))

images-real: $(READY)  ## the image gate on real images of vLLM, with and without faults; writes docs/evidence/images.md
	@$(BIN)/python -m tests.lab.wheels.images

arm64: $(READY)  ## build, gate and swap with arm64 images under emulation; writes docs/evidence/arm64.md; takes hours
	@$(BIN)/python -m tests.lab.arm64

arguments: $(READY)  ## recipes' arguments against the parsers of their engines; writes docs/evidence/arguments*.md
	@$(BIN)/python -m tests.lab.arguments
	@$(BIN)/python -m tests.lab.arguments.sglang

wheel-facts: $(READY)  ## read the wheels of vLLM that recipes pin; writes docs/evidence/wheels.md
	@$(BIN)/python -m tests.lab.wheels

fleet: $(READY)  ## NODES=2 real nodes: containers, each with a Docker Engine and sshd
	@$(BIN)/python -m tests.fleet up --nodes $(NODES)

# The largest image is built while mypy and the unit tests run, which do not use the network.
images: $(READY)
	@$(FIRST) $(BIN)/python -m tests.fleet up
	@$(BIN)/sparkops --inventory .fleet/gw0/.fleet/inventory.yaml build recipes/tiny-qwen3-cpu.yaml --once

nodes: $(READY)  ## every test on real nodes, on FLEETS=3 fleets of two nodes
	@$(BIN)/pytest -m $(ON_NODES) --numprocesses $(FLEETS) --durations 60 \
	  || $(FIRST) $(ALONE) -m $(ON_NODES)

pairs: $(READY)  ## every case of two-node replicas with the real vLLM, on four nodes; takes an hour
	@$(BIN)/python -m tests.real.pairs

fleet-down: $(READY)  ## remove the nodes with their data
	@$(BIN)/python -m tests.fleet down

swaps: $(READY)  ## 50 swaps in a row under load, about 15 minutes
	@$(BIN)/python -m tests.lab.swaps

matrix: $(READY)  ## every crash, loss and fault at every phase, on FLEETS=3 fleets of two nodes; takes more than two hours
	@$(BIN)/pytest -m matrix --numprocesses $(FLEETS) -vv || $(FIRST) $(ALONE) -m matrix

ui: $(READY)  ## the page of `sparkops ui` in Debian's Chromium, also of two real nodes, and its pictures in docs/captures
	@$(BIN)/pytest tests/lab/browser tests/real/test_ui.py -m browser
	@$(BIN)/python -m tests.lab.browser

clients: $(READY)  ## Open WebUI, OpenCode, Continue and LiteLLM from their package registries; each asks a question
	@$(BIN)/pytest tests/lab/clients -m clients

soak: $(READY)  ## one start of 12 min 30 s
	@$(BIN)/python -m tests.lab.soak

watched: $(READY)  ## an hour of the watch on vLLM at changing load; writes docs/evidence/watch.md
	@$(BIN)/python -m tests.lab.watched

full-memory: $(READY)  ## a program takes this machine's memory beside vLLM; writes docs/evidence/full-memory.md
	@$(BIN)/python -m tests.lab.full_memory

simulate: $(READY)  ## the swap machine with two and three faults, and with a second intent; takes hours
	@$(BIN)/python -m tests.swap.simulation.levels long

bite: $(READY)  ## break each condition of the swap machine; the simulation must find it; takes hours
	@$(BIN)/python -m tests.swap.simulation.bite

bench: $(READY)  ## benchmarks, compared as ratios within one run
	@$(BIN)/python -m tests.lab.bench

captures: $(READY)  ## docs/captures: a deploy, a swap under load, status and status --watch on two real nodes, as SVG
	@$(BIN)/python -m tests.lab.captures

release: $(READY)  ## build, check and tag the version of sparkops/__init__.py; TAG= where it has one
	@$(BIN)/python -m tests.packaging.release $(if $(TAG),--tag $(TAG))

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade --custom-compile-command "make requirements"

requirements: $(READY)  ## the newest packages of the operator's program, and of the tools that package it, with their hashes
	@$(BIN)/$(LOCK) pyproject.toml --output-file requirements.txt
	@printf 'hatchling\ntwine\n' | $(BIN)/$(LOCK) - --output-file tests/packaging/tools.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Where every package is installed nothing calls pip, which needs a network even then.
$(READY): pyproject.toml
	@$(BIN)/python tests/packaging/installed.py 2>/dev/null || $(MAKE) --no-print-directory venv
	@touch $@

venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; } \
	  || { echo "Python lacks its venv module: install python3-venv" >&2; exit 1; }
	@echo "creating .venv" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
