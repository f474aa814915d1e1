# Everything a newcomer needs: `make demo`, `make test`. Both set up what they use in .venv.
# Needs Linux, Python 3.11 or newer and the Python package index; `make test-cluster` root and Go too.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := $(VENV)/bin
# Start-up time doubles without bytecode; some environments switch it off.
export PYTHONDONTWRITEBYTECODE :=
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help demo setup test check test-faults test-openapi kube test-cluster test-peers cluster bench bench-cluster bench-proxy bench-peers crds docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

$(VENV)/.runtime: pyproject.toml
	@test -n "$(PYTHON)" || { echo "kilnwork needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

setup: $(VENV)/.dev ## Install kilnwork and what its tests need into .venv

demo: $(VENV)/.runtime ## Run the counter, 51 tasks that make each other, and map a file; fails if anything differs
	@examples/01-counter/demo.sh
	@examples/30-upload/demo.sh

check: $(VENV)/.dev ## Lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m hack.words
	$(BIN)/mypy
	$(BIN)/mypy examples/0[2-6]*/*.py examples/[12]*/*.py examples/3*/*.py examples/4*/*.py

# Most tests wait more than they compute: four processes keep two cores busy.
test: check ## All tests that need nothing but Python (kubectl cases run if it is there)
	$(BIN)/pytest -n 4 --dist worksteal

test-faults: $(VENV)/.dev ## The long form of the kill -9 tests: KILN_FAULT_SEED=N repeats one
	$(BIN)/python -m tests.faults.campaign programs --seeds $${KILN_FAULT_SEED:-1:1000} --jobs 2 --minutes 5
	$(BIN)/python -m tests.faults.campaign mixed --seeds $${KILN_FAULT_SEED:-1:50} --minutes 4
	$(BIN)/python -m tests.faults.campaign sets --seeds $${KILN_FAULT_SEED:-1:100}
	KILN_FAULT_RUNS=$${KILN_FAULT_RUNS:-30} KILN_FAULT_FUTURES_RUNS=$${KILN_FAULT_FUTURES_RUNS:-200} \
		KILN_FAULT_FILES_RUNS=$${KILN_FAULT_FILES_RUNS:-100} $(BIN)/pytest -m faults --timeout 3600

OPENAPI ?= $(HOME)/.cache/kilnwork/openapi
test-openapi: $(VENV)/.dev ## Try what /jobs/openapi.json promises with schemathesis, in an environment of its own
	@[ -x $(OPENAPI)/bin/schemathesis ] || {
		$(PYTHON) -m venv $(OPENAPI)
		$(OPENAPI)/bin/python -m pip install --quiet --upgrade pip
		$(OPENAPI)/bin/python -m pip install --quiet --group openapi
	}
	KILN_SCHEMATHESIS=$(OPENAPI)/bin/schemathesis $(BIN)/pytest -m schemathesis tests/e2e/test_jobs_openapi.py

kube: $(VENV)/.dev ## Build the real Kubernetes and the worker image (root; minutes the first time)
	$(BIN)/python -m hack.kube prepare

# Three sandboxes side by side, since tests/cluster mostly waits and breaks parts of its own cluster:
# what asks for a node with a kubelet (tests/cluster/conftest.py), what does not, and conformance. In
# CI an unfit machine is a failure. A node is given up after 20 s here, not 50. Nobody touches the Pods
# that conformance compares: its stories would differ by whether 20 s have passed.
SANDBOX = python -m hack.kube run --logs build/kube
PYTEST_REAL = pytest --server real
NODE_GRACE = kube-controller-manager=--node-monitor-grace-period=20s
NO_POD_GC = kube-controller-manager=--controllers=-pod-garbage-collector-controller
test-cluster: $(VENV)/.dev ## Conformance and end-to-end tests on the real Kubernetes (root, Go)
	@$(BIN)/python -m hack.kube prepare || {
		code=$$?
		[ $$code -eq 75 ] && [ -z "$${CI:-}" ] || exit $$code
		echo "test-cluster skipped: this machine cannot run it, see above"
		exit 0
	}
	rm -rf build/kube
	image=$$($(BIN)/python -m hack.image)
	crds='$(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml))'
	tests='$(PYTEST_REAL) --verbose --durations 10 tests/cluster'
	exec $(BIN)/python -m hack.beside --logs build/kube \
		"nodes=$(SANDBOX)/nodes --nodes 2 --image $$image $$crds --flag $(NODE_GRACE) -- $$tests -m real_node" \
		"no-nodes=$(SANDBOX)/no-nodes $$crds -- $$tests -m 'not real_node'" \
		"conformance=$(SANDBOX)/conformance --node --image $$image --flag $(NO_POD_GC) -- $(PYTEST_REAL) \
			-n auto --maxprocesses 2 --dist worksteal tests/conformance"

# Argo is built once, some 15 minutes, from KILN_PEERS=DIR, ../shared/peers or a clone of its commit.
test-peers: $(VENV)/.dev ## Tasks beside the real Argo on a kubelet: KILN_PEERS=DIR has its source (root, Go)
	@$(BIN)/python -m hack.kube prepare && $(BIN)/python -m hack.peers || {
		code=$$?
		[ $$code -eq 75 ] && [ -z "$${CI:-}" ] || exit $$code
		echo "test-peers skipped: this machine cannot run it, see above"
		exit 0
	}
	argo=$$($(BIN)/python -m hack.peers)
	rm -rf build/kube/peers
	KILN_ARGO=build/kube/peers $(SANDBOX)/peers --node --image "$$($(BIN)/python -m hack.image)" \
		--image $$argo/argoexec.tar $(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml)) \
		-- $(PYTEST_REAL) --verbose --durations 5 tests/cluster/test_argo.py

cluster: $(VENV)/.dev ## A shell beside a real cluster with a kubelet, gone when you leave it (root, Go)
	$(BIN)/python -m hack.kube prepare
	$(BIN)/python -m hack.kube run --node --image "$$($(BIN)/python -m hack.image)" -- $${SHELL:-/bin/bash}

bench: $(VENV)/.dev ## Measure what docs/reference/performance.md states; fails if a gate is missed
	$(BIN)/python bench/counter.py
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/files.py
	$(BIN)/python bench/pods.py
	$(BIN)/python bench/jobs.py
	$(BIN)/python bench/http_requests.py
	$(BIN)/python bench/pond.py
	$(BIN)/python bench/cli.py
	$(BIN)/python bench/sync_sets.py

bench-cluster: $(VENV)/.dev ## Measure on the real Kubernetes that hack/kube builds (root, Go)
	$(BIN)/python bench/cluster.py
	$(BIN)/python -m hack.kube run --node --image "$$($(BIN)/python -m hack.image)" \
		$(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml)) -- $(BIN)/python bench/kubelet_pods.py
	$(BIN)/python -m hack.kube run --node --image "$$($(BIN)/python -m hack.image)" \
		$(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml)) -- $(BIN)/python bench/jobs_real.py
	$(BIN)/python -m hack.kube run --nodes 2 --image "$$($(BIN)/python -m hack.image)" \
		$(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml)) -- $(BIN)/python bench/gangs.py

bench-proxy: $(VENV)/.dev ## Calls through the API server's proxy, beside the same ones without it (root, Go)
	$(BIN)/python -m hack.kube prepare
	$(BIN)/python -m hack.kube run --node --image "$$($(BIN)/python -m hack.image)" \
		$(addprefix --crd ,$(wildcard src/kilnwork/api/crds/*.yaml)) -- $(BIN)/python bench/proxy.py

bench-peers: $(VENV)/.dev ## Put kilnwork beside Ray, Dask and others, installed into a scratch directory
	$(BIN)/python bench/peers.py

crds: $(VENV)/.dev ## Write the CRDs anew from the structs
	$(BIN)/python -m kilnwork.api.crd

$(VENV)/.docs: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

docs: $(VENV)/.docs ## Write the generated pages of docs/reference, and the site with search: build/site
	$(BIN)/python -m kilnwork.api.reasons > docs/reference/reasons.md
	$(BIN)/python -m kilnwork.api.kinds_reference docs/reference/kinds.md
	$(BIN)/python -m kilnwork.cli.field_effects_reference > docs/reference/fields.md
	$(BIN)/python -m kilnwork.cli.commands_reference docs/reference/commands.md
	$(BIN)/python -m kilnwork.cli.python_reference > docs/reference/python-api.md
	$(BIN)/python -m kilnwork.cli.installation.rights > docs/reference/rights.md
	$(BIN)/python -m kilnwork.server.jobs.parameter_reference docs/reference/jobs-api.md
	$(BIN)/python -m kilnwork.executors.states_reference docs/reference
	rm -rf build/pages build/site
	mkdir -p build/pages
	cp -r README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs examples build/pages
	$(BIN)/zensical build --strict

clean: ## Remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
