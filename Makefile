# Everything runs in .venv, which the first target that needs it makes from the locked requirements.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Else each worker, and each process that a test starts, compiles every module again.
unexport PYTHONDONTWRITEBYTECODE
# More than there are cores: most tests of real components wait for a server.
PROCESSES ?= $(shell python3 -c 'import os; print(min(6, (os.cpu_count() or 1) + 1))')
PYTEST = $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile
# ROOM=auth or a path: the tests of one room only.
TESTS = $(if $(ROOM),$(or $(wildcard tests/$(ROOM)),$(ROOM)))
NEW_SEED := $(or $(SEED),$(shell date +%s))

DIST ?= dist
# uv is quick; pip is for indexes that only its own configuration names.
install = $(BIN)/uv pip install --quiet --python $(1) $(2) || $(BIN)/python -I -m pip --python $(1) install --quiet --no-compile $(2)
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header
EVERYTHING := --extra server --extra client --extra client-httpx2 --extra basic --extra uvicorn --extra models --extra serve --extra postgres --extra redis --extra otel --extra grpc --extra completion pyproject.toml

.PHONY: blocks demo test test-real test-long check check-style words docs dist format fuzz mutants bench pythons lowest lock clean

demo: .venv/ready  ## sign a real card, verify it, and see every change refused
	@$(BIN)/python examples/demo.py

test: .venv/ready  ## what every change must pass; needs Python only. ROOM=auth for one room
	$(PYTEST) $(TESTS)

REAL := real-sdks real-proxies real-databases real-providers real-frameworks real-pipelines real-packaging
.PHONY: $(REAL)

test-real: $(REAL)  ## SDKs, proxies, databases, identity providers, frameworks, pipelines, packaging; ROOM=frameworks
	$(PYTEST) -m "real and not long" $(TESTS)

$(REAL): real-%: .venv/ready  ## installs what the tests of one kind run: Debian packages as root, the rest in .sdk
	$(BIN)/python -m tests.components $*

real-packaging: .sdk/docs/ready  # a browser looks at the site

test-long: real-databases real-pipelines  ## faults, kills, growth, floods, many examples, fuzz, mutants: hours; FORM=short, ROOM=faults
	A2A_TRUST_FORM=$(or $(FORM),long) $(PYTEST) -m long $(TESTS)
ifeq ($(FORM)$(ROOM),)
	$(PYTEST) -m "hypothesis and not real" --hypothesis-profile long --hypothesis-seed $(NEW_SEED)
	$(PYTEST) --random-order-bucket=global --random-order-seed $(NEW_SEED)
	$(MAKE) fuzz mutants
endif

check: check-style docs $(REAL)  ## format, lint, types, pages, and `test` and `test-real` with a floor of branch coverage
	$(PYTEST) --cov -m "not long"

check-style: .venv/ready words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

words: .venv/ready  ## the words of the documentation by page: fails above the limits of tests/docs/length.py
	@$(BIN)/python -m tests.docs.length

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: .venv/ready  ## requests at agents in four frameworks, and calls that the SDK may read otherwise, in the environment that tests/fuzz makes; COUNT=… SEED=…
	for each in frameworks readers; do \
		PYTHONPATH=. $$($(BIN)/python -m tests.fuzz) tests/fuzz/fuzz_$$each.py $(NEW_SEED) $${COUNT:-50000} || exit 1; \
	done

blocks: .venv/ready  ## each block of code in the documentation is broken once: its tests must notice; PAGE=docs/protect.md
	$(BIN)/python -m tests.docs.blocks $(PAGE)

mutants: .venv/ready  ## changes of the core that no test notices: a sample, always the same; MODULE=auth/guard.py for all of a module, COUNT=… SEED=…
	$(BIN)/python -m tests.mutants $(MODULE) $(if $(COUNT)$(MODULE),,--count 400) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

pythons: .venv/ready  ## the quick tests, with the wheel in each Python from 3.11 to 3.14 that is found
	$(BIN)/python -m tests.packaging.pythons

lowest: .venv/ready  ## the tests of the core with the lowest versions that pyproject.toml allows
	$(BIN)/python -m tests.packaging.pythons --lowest

bench: .venv/ready  ## ratios against the peers, interleaved; RESULTS=benchmarks/results.jsonl for docs/benchmarks.md
	$(BIN)/python -m benchmarks $(if $(RESULTS),--results $(RESULTS))

docs: .sdk/docs/ready  ## the documentation as a site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 .sdk/docs/bin/mkdocs build

# From the commit, so that no other file of this folder, such as a key, gets into what is released.
dist: .venv/ready .sdk/release/ready .sdk/runtime/ready  ## wheel and sdist of the commit, checked, with an SBOM and checksums; publishes nothing
	@test -z "$$(git status --porcelain)" || echo 'make dist: changes that are not committed are left out'
	rm -rf $(DIST) .sdk/commit && mkdir -p $(DIST) .sdk/commit
	git archive --output .sdk/commit.tar HEAD && tar -xf .sdk/commit.tar -C .sdk/commit
	cd .sdk/commit && env -u SOURCE_DATE_EPOCH $(CURDIR)/$(BIN)/python -I -m hatchling build -d $(abspath $(DIST))
	.sdk/release/bin/twine check --strict $(DIST)/*
	.sdk/release/bin/check-wheel-contents $(DIST)/*.whl
	$(call install,.sdk/runtime,--no-deps --force-reinstall $(DIST)/*.whl)
	.sdk/release/bin/cyclonedx-py environment .sdk/runtime --pyproject .sdk/commit/pyproject.toml --mc-type library \
	    --output-reproducible --validate -o $(DIST)/a2a-trust.cdx.json
	cd $(DIST) && sha256sum *.whl *.tar.gz *.cdx.json > SHA256SUMS

.sdk/release/ready: requirements/release.txt
	$(PYTHON) -m venv --clear --without-pip .sdk/release
	$(call install,.sdk/release,--require-hashes --only-binary :all: -r requirements/release.txt)
	@touch $@

.sdk/runtime/ready: requirements/runtime.txt
	$(PYTHON) -m venv --clear --without-pip .sdk/runtime
	$(call install,.sdk/runtime,--require-hashes --only-binary :all: -r requirements/runtime.txt)
	@touch $@

.sdk/docs/ready: .venv/ready requirements/docs.txt docs/site/scripts/package-lock.json
	$(PYTHON) -m venv --clear --without-pip .sdk/docs
	$(call install,.sdk/docs,--require-hashes --only-binary :all: -r requirements/docs.txt)
	cp docs/site/scripts/package.json docs/site/scripts/package-lock.json .sdk/docs
	npm ci --prefix .sdk/docs --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.venv/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

lock: .venv/ready  ## renew requirements: of development, releases and pipelines, and of what the SDKs and the peers run in
	$(LOCK) $(EVERYTHING) -o requirements/runtime.txt
	$(LOCK) $(EVERYTHING) --group test --group bench requirements/build.in -o requirements/dev.txt
	$(LOCK) --extra client pyproject.toml requirements/build.in -o requirements/command.txt
	$(LOCK) --extra serve --extra client --extra basic --extra postgres --extra redis pyproject.toml requirements/build.in -o requirements/serve.txt
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	$(LOCK) requirements/release.in -o requirements/release.txt
	$(LOCK) pyproject.toml -o tests/packaging/requirements-core.txt
	for extra in server client client-httpx2 basic uvicorn models serve postgres redis otel grpc completion; do \
	    $(LOCK) --extra $$extra pyproject.toml -o tests/packaging/requirements-$$extra.txt || exit 1; \
	done
	$(LOCK) --resolution lowest-direct $(EVERYTHING) -o tests/packaging/requirements-lowest.txt
	$(LOCK) $(EVERYTHING) tests/packaging/lowest.in -o tests/packaging/requirements-lowest-tests.txt
	for wanted in tests/*/*/requirements.in tests/interop/sdks/*/requirements.in benchmarks/auth_peers/requirements.in; do \
	    $(LOCK) --emit-build-options $$wanted -o $${wanted%.in}.txt || exit 1; \
	done

clean:
	rm -rf .venv .sdk .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
