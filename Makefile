# Everything runs in .venv, which the first target that needs it makes from the locked requirements.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# More than there are cores: most tests wait for a server.
PROCESSES ?= $(shell python3 -c 'import os; print(min(6, (os.cpu_count() or 1) + 2))')

DIST ?= dist
# uv is quick; pip is for indexes that only its own configuration names.
install = $(BIN)/uv pip install --quiet --python $(1) $(2) || $(BIN)/python -I -m pip --python $(1) install --quiet --no-compile $(2)
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header
EVERYTHING := --extra server --extra client --extra basic --extra uvicorn --extra models --extra postgres --extra redis --extra completion pyproject.toml

.PHONY: blocks demo test check check-style docs dist format frameworks pipelines fuzz faults mutants bench pythons lowest lock clean

demo: .venv/ready  ## sign a real card, verify it, and see every change refused
	@$(BIN)/python examples/demo.py

test: .venv/ready  ## the tests; with A2A_TRUST_REQUIRE_REAL=1 a missing Node or SDK fails instead of skipping
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

check: check-style docs  ## what a change must pass: format, lint, types, pages, tests with a floor of branch coverage
	$(BIN)/python -m pytest --cov --numprocesses $(PROCESSES) --dist loadfile

check-style: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pipelines: .venv/ready  ## action, hooks, GitLab template and container file, in the long form of their tests
	A2A_TRUST_PIPELINES=long A2A_TRUST_REQUIRE_REAL=1 $(BIN)/python -m pytest tests/pipelines tests/attacks/test_r04_pull_requests_against_the_action.py -v

fuzz: .venv/ready  ## requests at agents in four frameworks, and calls that the SDK may read otherwise, in the environment that tests/fuzz makes; COUNT=… SEED=…
	for each in frameworks readers; do \
		PYTHONPATH=. $$($(BIN)/python -m tests.fuzz) tests/fuzz/fuzz_$$each.py $${SEED:-$$(date +%s)} $${COUNT:-50000} || exit 1; \
	done

frameworks: .venv/ready  ## agents of every framework behind protect, called by the framework's own client
	A2A_TRUST_FRAMEWORKS=all A2A_TRUST_REQUIRE_REAL=1 $(BIN)/python -m pytest tests/frameworks tests/client/test_framework_clients.py tests/real/test_one_line_clients.py --numprocesses $(PROCESSES) --dist loadfile

faults: .venv/ready  ## kills, full disks, races and growth, in their long form: many rounds of what the tests do a few times
	A2A_TRUST_FAULTS=long $(BIN)/python -m pytest tests/faults -v

blocks: .venv/ready  ## each block of code in the documentation is broken once: its tests must notice; PAGE=docs/protect.md
	$(BIN)/python -m tests.docs.blocks $(PAGE)

mutants: .venv/ready  ## changes of the code that no test notices; MODULE=auth/guard.py, and COUNT=… SEED=… for a sample
	$(BIN)/python -m tests.mutants $(MODULE) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

pythons: .venv/ready  ## the tests that need no real servers, with the wheel in each Python from 3.11 to 3.14 that is found
	$(BIN)/python -m tests.packaging.pythons

lowest: .venv/ready  ## the same tests with the lowest versions that pyproject.toml allows
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

.sdk/docs/ready: .venv/ready requirements/docs.txt docs/site/mermaid/package-lock.json
	$(PYTHON) -m venv --clear --without-pip .sdk/docs
	$(call install,.sdk/docs,--require-hashes --only-binary :all: -r requirements/docs.txt)
	cp docs/site/mermaid/package.json docs/site/mermaid/package-lock.json .sdk/docs
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
	$(LOCK) requirements/docs.in -o requirements/docs.txt
	$(LOCK) requirements/release.in -o requirements/release.txt
	$(LOCK) pyproject.toml -o tests/packaging/requirements-core.txt
	for extra in server client basic uvicorn models postgres redis completion; do \
	    $(LOCK) --extra $$extra pyproject.toml -o tests/packaging/requirements-$$extra.txt || exit 1; \
	done
	$(LOCK) --resolution lowest-direct $(EVERYTHING) -o tests/packaging/requirements-lowest.txt
	$(LOCK) $(EVERYTHING) tests/packaging/lowest.in -o tests/packaging/requirements-lowest-tests.txt
	for wanted in tests/*/*/requirements.in tests/interop/sdks/*/requirements.in benchmarks/auth_peers/requirements.in; do \
	    $(LOCK) --emit-build-options $$wanted -o $${wanted%.in}.txt || exit 1; \
	done

clean:
	rm -rf .venv .sdk .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
