# Everything a newcomer needs: `make demo`, `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOMS := records wire client coordinator lineage raftlog cluster history pipeline quorate
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of nodes and commands are started: none compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
EVERYWHERE := not slow and not failover and not java and not languages and not spark
ASKING := tests/history tests/incidents tests/quorate
APART := tests/clients tests/pipeline $(ASKING)
TEST := test-core test-clients test-history test-pipeline
# Suites run two at a time, and each tells when it is done (where this make can hold its words back).
ABREAST := --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: help demo test $(TEST) failover test-java test-languages test-spark ci
.PHONY: differential check format bench chaos clean

help:
	@echo "make demo    install and run the tour: three nodes, seven consumers, kill -9 of the leader, the proof"
	@echo "make test    install and run the tests: make $(TEST), two at a time"
	@echo "make failover  the tests that kill and stop nodes of real clusters"
	@echo "make test-java   Kafka's own Java tools as clients (needs a JDK and Maven)"
	@echo "make test-languages  clients in Java, Go and JavaScript, and kcat (each needs its own tools)"
	@echo "make test-spark  the Spark pipeline on a standalone cluster, by spark-submit, streaming, under kill -9 (needs Java)"
	@echo "make differential  random scripts played to Apache Kafka and to Quorate, compared (the same)"
	@echo "make check   formatting, lint, types, import contracts; whether tests name and call what is there"
	@echo "make ci      all that a change must pass, two suites at a time: check, test, failover, test-java, test-languages, test-spark"
	@echo "make bench   the benchmarks (figures: docs/performance.md)"
	@echo "make chaos   the long failure suites"

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Quorate needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Quorate needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[demo,dev]'
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/quorate demo

# The longest first; stock clients mostly wait, which fits beside what computes.
test: $(VENV)/.dev
	@echo "two suites at a time, five to six minutes; each tells when it is done"
	@$(MAKE) $(ABREAST) $(TEST)

test-core: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' $(APART:%=--ignore=%)

test-clients: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' tests/clients

test-history: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' $(ASKING)

test-pipeline: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' tests/pipeline

failover: $(VENV)/.dev
	$(PYTEST) -m 'failover and not slow' tests/failover tests/clients

test-java: $(VENV)/.dev
	$(PYTEST) -m 'java and not slow' tests/java tests/differential tests/clients/consumer

test-languages: $(VENV)/.dev
	$(PYTEST) -m 'languages and not slow' tests/languages

test-spark: $(VENV)/.dev
	$(PYTEST) -m 'spark and not slow' tests/spark tests/pipeline

# All of it, two at a time: what mostly waits beside what computes, and one Spark beside anything but another.
ci: $(VENV)/.dev
	@$(MAKE) $(ABREAST) check test-spark failover $(TEST) test-java test-languages

differential: $(VENV)/.dev
	$(BIN)/python -m tests.differential

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

chaos: $(VENV)/.dev
	$(PYTEST) -m slow

clean:
	rm -rf $(VENV) build *.egg-info
