# Targets for people: demo, test, check, bench, cluster. Each sets up what it needs by itself; PYTHON= chooses the interpreter.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CODEC  := controller/proxy/codec
RUST   := $(shell find $(CODEC) -name '*.rs' -not -path '*/target/*' -o -name 'Cargo.*' -not -path '*/target/*')
NATIVE := .make/native
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# The images': the wheel and the wheelhouse are for this one, whatever runs make.
IMAGE_PYTHON := python3.11
# BUILD="buildah build --isolation chroot", BUILD="docker buildx build --load", ...
BUILD  ?= $(shell command -v docker >/dev/null && echo docker build || echo buildah build)
# Before the images' names, with a slash at its end: REGISTRY=registry.example.com/edge/
REGISTRY ?=
HELM   ?= $(shell command -v helm || ls -t $${XDG_CACHE_HOME:-$$HOME/.cache}/steelyard/programs/helm-*/helm 2>/dev/null | head -n 1)

.PHONY: help demo test check lint bench cluster cluster-down dist image chart tools
.DEFAULT_GOAL := help

help:
	@echo "make demo    real requests through a real proxy, with a live table (Ctrl-C ends it)"
	@echo "make check   format, lint, types, import contracts, unit and law tests: under a minute"
	@echo "make test    everything that must hold before a merge"
	@echo "make bench   speed and balance against peers, as ratios; writes reports/"
	@echo "make cluster a real Kubernetes cluster on this machine, with the images of this checkout; make cluster-down ends it"
	@echo "make dist    sdist and wheel, and what the images hold (SBOM); writes dist/"
	@echo "make image   both images, of that wheel and the locked dependencies, by docker or buildah; REGISTRY= goes before their names"
	@echo "make chart   the Helm chart, linted and packaged, the CRD beside it; writes dist/, charts/, deploy/"
	@echo "PYTHON=python3.12 make ... chooses the interpreter (3.11 or newer)"

tools:
	@command -v $(PYTHON) >/dev/null || { echo "missing: $(PYTHON) (3.11 or newer; PYTHON= chooses another)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or newer ($(PYTHON) is older; PYTHON= chooses another)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "missing: Python's venv module (Debian: apt-get install python3-venv)"; exit 1; }
	@command -v cargo >/dev/null || { echo "missing: a Rust toolchain (cargo), for the HTTP codec"; exit 1; }

.make/venv: requirements/dev.txt | tools
	@mkdir -p .make
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the locked dependencies"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# An editable install leaves a stale codec behind, so a newer source builds it again. By pip, which is maturin's release
# profile and the console script too: `maturin develop` asks for a pip newer than Python 3.11 brings (`--group`).
$(NATIVE): .make/venv pyproject.toml $(RUST)
	@echo "building the HTTP codec"
	@PATH="$(CURDIR)/$(BIN):$$PATH" MATURIN_PEP517_ARGS=--locked $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . >.make/native.log 2>&1 || { cat .make/native.log; exit 1; }
	@touch $@

demo: $(NATIVE)
	@$(BIN)/steelyard demo

lint: $(NATIVE)
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@cargo fmt --manifest-path $(CODEC)/Cargo.toml --all --check
	@cargo clippy --quiet --locked --manifest-path $(CODEC)/Cargo.toml --all-targets --workspace -- -D warnings
	@cargo test --quiet --locked --manifest-path $(CODEC)/Cargo.toml -p heads

check: lint
	@$(BIN)/pytest -q -n auto tests/unit tests/laws tests/golden

# The same tests with the core's branch coverage, which costs as much again, and all that needs processes: of the package
# as it ships, its hot path compiled.
test: lint
	@$(BIN)/python -m tests.cluster build || test "$$STEELYARD_REQUIRE_CLUSTER" != 1
	@$(BIN)/pytest -q -n auto --cov --cov-report=term-missing:skip-covered --cov-fail-under=100 tests/unit tests/laws tests/golden
	@package=$$($(BIN)/python -m tests.cluster package) && export STEELYARD_PACKAGE=$$package && \
	  $(BIN)/pytest -q -n auto tests/unit tests/laws tests/golden tests/component && $(BIN)/pytest -q tests/bench
	@$(BIN)/pytest -q -n 2 --dist loadfile tests/cluster

bench: $(NATIVE)
	@$(BIN)/python -m tests.bench

cluster: $(NATIVE)
	@$(BIN)/python -m tests.cluster up

cluster-down: .make/venv
	@$(BIN)/python -m tests.cluster down

dist: $(NATIVE)
	@mkdir -p dist && rm -f dist/*.whl dist/steelyard-*.tar.gz dist/*.cdx.json
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin sdist --out dist 2>.make/sdist.log || { cat .make/sdist.log; exit 1; }
	@$(BIN)/python -m release.wheel --interpreter $(IMAGE_PYTHON) --out dist
	@for target in proxy controller; do $(BIN)/python -m release.sbom $$target >dist/steelyard-$$target-$(VERSION).cdx.json || exit 1; done
	@ls -1 dist/*.whl dist/*.tar.gz dist/*.cdx.json

image: dist
	@command -v $(firstword $(BUILD)) >/dev/null || { echo "missing: docker or buildah (BUILD= names another)"; exit 1; }
	@for target in proxy controller; do \
	  rm -rf dist/wheels/$$target && $(BIN)/pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
	    --python-version $(IMAGE_PYTHON:python%=%) --requirement requirements/$$target.txt --dest dist/wheels/$$target || exit 1; \
	  $(BUILD) --target $$target --tag $(REGISTRY)steelyard-$$target:$(VERSION) \
	    --label org.opencontainers.image.version=$(VERSION) . || exit 1; \
	done

chart: .make/venv
	@test -n "$(HELM)" || { echo "missing: helm (HELM= names it; make cluster builds one)"; exit 1; }
	@HELM="$(HELM)" $(BIN)/python -m release.manifest
	@$(BIN)/python -m release.readme
	@$(HELM) lint --strict --quiet charts/steelyard
	@mkdir -p dist && $(HELM) package charts/steelyard --destination dist
	@cp crds/balancedservices.yaml dist/steelyard-crds-$(VERSION).yaml
