# Everything runs in .venv, which the first target that needs it makes from the locked requirements.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# More than there are cores: most tests wait for a server.
PROCESSES ?= $(shell python3 -c 'import os; print(min(6, (os.cpu_count() or 1) + 2))')

EXTRAS := --extra server --extra client --extra basic --extra uvicorn --extra models --extra completion

.PHONY: demo test check check-style format frameworks fuzz faults mutants bench pythons lowest lock clean

demo: .venv/ready  ## sign a real card, verify it, and see every change refused
	@$(BIN)/python examples/demo.py

test: .venv/ready  ## the tests; with A2A_TRUST_REQUIRE_REAL=1 a missing Node or SDK fails instead of skipping
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

check: check-style  ## what a change must pass: format, lint, types, tests with branch coverage
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report --show-missing --skip-covered

check-style: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: .venv/ready  ## requests at agents in four frameworks, in the environment that tests/fuzz makes; COUNT=… SEED=…
	PYTHONPATH=. $$($(BIN)/python -m tests.fuzz) tests/fuzz/fuzz_frameworks.py $${SEED:-$$(date +%s)} $${COUNT:-50000}

frameworks: .venv/ready  ## agents of every framework behind protect, called by the framework's own client
	A2A_TRUST_FRAMEWORKS=all A2A_TRUST_REQUIRE_REAL=1 $(BIN)/python -m pytest tests/frameworks tests/client/test_framework_clients.py tests/real/test_one_line_clients.py --numprocesses $(PROCESSES) --dist loadfile

faults: .venv/ready  ## kills, full disks, races and growth, in their long form: many rounds of what the tests do a few times
	A2A_TRUST_FAULTS=long $(BIN)/python -m pytest tests/faults -v

mutants: .venv/ready  ## changes of the code that no test notices; MODULE=auth/guard.py, and COUNT=… SEED=… for a sample
	$(BIN)/python -m tests.mutants $(MODULE) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

pythons: .venv/ready  ## the tests that need no real servers, with the wheel in each Python from 3.11 to 3.14 that is found
	$(BIN)/python -m tests.packaging.pythons

lowest: .venv/ready  ## the same tests with the lowest versions that pyproject.toml allows
	$(BIN)/python -m tests.packaging.pythons --lowest

bench: .venv/ready  ## ratios against the peers, interleaved; those of servers run in an environment of their own
	$(BIN)/python -m benchmarks

.venv/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

lock:  ## renew requirements/dev.txt, and what the SDKs and the peers run in (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    $(EXTRAS) --extra test --extra bench pyproject.toml requirements/build.in -o requirements/dev.txt
	for extras in core server client basic uvicorn models; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	        $$(case $$extras in core) ;; *) echo --extra $$extras;; esac) \
	        pyproject.toml -o tests/packaging/requirements-$$extras.txt || exit 1; \
	done
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --resolution lowest-direct \
	    $(EXTRAS) pyproject.toml -o tests/packaging/requirements-lowest.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    $(EXTRAS) pyproject.toml tests/packaging/lowest.in -o tests/packaging/requirements-lowest-tests.txt
	for wanted in tests/interop/sdks/*/requirements.in tests/tck/*/requirements.in tests/real/*/requirements.in tests/fuzz/*/requirements.in benchmarks/auth_peers/requirements.in; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --emit-build-options \
	        $$wanted -o $${wanted%.in}.txt || exit 1; \
	done

clean:
	rm -rf .venv .sdk .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
