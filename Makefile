# Everything sets itself up from a fresh clone: a virtual environment, the pinned packages, then the job.
# The demo has what a user installs, without torch (.venv-light); the tests have everything (.venv); the docs are run in
# environments that docs/run.py makes (.venv-docs); the site is built in .venv-site.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

LIGHT := .venv-light
LIGHT_READY := $(LIGHT)/.ready

DOCS := .venv-docs
SITE := .venv-site
SITE_READY := $(SITE)/.ready

ADAPTERS := .venv-adapters
ADAPTERS_READY := $(ADAPTERS)/.ready
FRAMEWORKS := beir,haystack,ir-datasets,langchain,llama-index,mteb,pyterrier
ifeq ($(shell uname -sm),Linux aarch64)
# beir, mteb and pyterrier ask trec_eval, which has no wheel there; their tests are skipped.
FRAMEWORKS := haystack,ir-datasets,langchain,llama-index
endif

SCHEMATHESIS := .venv-schemathesis
SCHEMATHESIS_READY := $(SCHEMATHESIS)/.ready

RELEASE := .venv-release
RELEASE_READY := $(RELEASE)/.ready

PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
PEERS_PYTHON ?= python3.12
# What the benchmarks run the peers with. Seismic has wheels for x86 and Python 3.11 alone.
PEERS_RUN := $(PEERS)/bin/python
ifeq ($(shell uname -sm),Linux x86_64)
PEERS_RUN := $(PEERS_RUN),$(PEERS)-seismic/bin/python
endif

# Three processes keep two cores busy: a third of the time, a test waits for a browser, a server or the disk. A file of
# tests stays with one of them, which then makes its fixtures once.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo kernels reproduce-tiny dist smoke test snapshots browser test-slow test-adapters test-arm docs docs-run check crash faults cluster endurance soak bench-cluster bench-serving bench bench-smoke bench-growth bench-large bench-commits bench-threads bench-text bench-updates bench-evaluation bench-paper-scale clean backup-crash collections-crash cluster-crash query-fuzz hostile schemathesis

demo: $(LIGHT_READY)
	@$(LIGHT)/bin/vizsla demo

# What the tests called kernels with; see tests/kernel_calls.py.
CALLS := build/kernel-calls

test: $(READY) kernels browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	rm -rf $(CALLS)
	VIZSLA_KERNEL_CALLS=$(abspath $(CALLS)) $(BIN)/python -m pytest $(WORKERS)
	$(BIN)/python tests/kernel_calls.py $(CALLS)

# The compiled kernels of this checkout, after their sources have changed; see kernel_build/.
kernels: $(READY)
	VIZSLA_LEVELS=all $(BIN)/python -m kernel_build --install

# Chromium for the tests of the page, where there is none: Debian's for root, else Playwright's own.
browser: $(READY)
	@$(BIN)/python tests/browser.py

# Every table of the five papers on a small made collection, with training: each step of the way; see docs/papers.md.
reproduce-tiny: $(READY) kernels
	for table in $$($(BIN)/vizsla reproduce --list --json | $(BIN)/python -c "import json, sys; print(*[t['table'] for t in json.load(sys.stdin)])"); do \
	  $(BIN)/vizsla reproduce $$table --scale tiny --train --output build/tiny || exit 1; done

# tests/snapshots, after a change that is meant and that CHANGELOG.md names; see tests/test_snapshots.py.
snapshots: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/test_snapshots.py

# Tests that take ten seconds or more each: several processes, kills, whole trainings; and all that hypothesis tests,
# with more examples. About half an hour.
test-slow: $(READY)
	$(BIN)/python -m pytest $(WORKERS) -m "slow or hypothesis" --hypothesis-profile=thorough

# Vizsla in other frameworks, and what sentence-transformers makes of the same checkpoints. Their dependencies are many,
# so they have an environment of their own.
test-adapters: $(ADAPTERS_READY)
	PYTHONPATH=tests $(ADAPTERS)/bin/python -m pytest tests/adapters -W ignore

# The wheel for Linux on ARM, run by QEMU: what compares the engine with its definitions, on a machine that is no ARM.
# FILES names tests, if not all of these are meant. About ten minutes.
test-arm: $(RELEASE_READY)
	rm -f build/arm/*.whl
	VIZSLA_TARGET=manylinux_2_28_aarch64 $(RELEASE)/bin/python -m build -q --wheel -o build/arm .
	$(RELEASE)/bin/python tests/arm.py build/arm $(FILES)

# The site, from README, docs and docstrings; its links are checked, and it fetches nothing from other hosts.
docs: $(SITE_READY)
	$(SITE)/bin/python docs/site/build.py

# README and docs from top to bottom, each page with what it installs itself and nothing else; data sets that are under
# $VIZSLA_DATA are used. FILES names pages, if not all are meant.
docs-run:
	$(PYTHON) docs/run.py $(FILES)

# What a release uploads: wheels for five systems and the source, at most 47 MB each, and the weights that are packages
# of their own. Any Linux machine makes all of them; see kernel_build/wheels.py.
dist: $(RELEASE_READY)
	rm -rf dist
	$(RELEASE)/bin/python -m kernel_build.wheels dist
	$(RELEASE)/bin/python -m build -q --sdist -o dist .
	$(RELEASE)/bin/python -m build -q --wheel -o dist weights/doc2query-small
	$(RELEASE)/bin/python -m build -q --wheel -o dist weights/augmenter-general
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents dist/*.whl
	@find dist -size +46999999c | { ! grep . ; } || { echo "these files are larger than 47 MB"; exit 1; }

# The wheel of this system in an environment of its own, without numba or a compiler: every command once.
smoke: dist
	$(PYTHON) tests/smoke.py dist

# The published figures of all recipes, on the data sets under $VIZSLA_DATA.
check: $(READY)
	$(BIN)/vizsla recipes check

# Writers of six kinds of indexes killed at 1,800 random moments; each time the last commit must be there. About 30
# minutes on an idle machine; OPTIONS="--times 20" takes two, and --model sparse takes one kind.
crash: $(READY)
	$(BIN)/python tests/crash.py $(OPTIONS)

# Backups beside writers that are killed at random moments, 50 times: what is restored must be a commit.
backup-crash: $(READY)
	$(BIN)/python tests/backup_crash.py $(OPTIONS)

# Servers killed 30 times while collections are created and deleted: each is there as a whole or not at all.
collections-crash: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/collections_crash.py $(OPTIONS)

# Schemathesis over all routes of the API, in an environment of its own. Some ten minutes.
schemathesis: $(READY) $(SCHEMATHESIS_READY)
	PYTHONPATH=tests $(BIN)/python tests/schemathesis_api.py --schemathesis $(SCHEMATHESIS)/bin/schemathesis $(OPTIONS)

$(SCHEMATHESIS_READY):
	@test -x $(SCHEMATHESIS)/bin/python || $(PYTHON) -m venv $(SCHEMATHESIS)
	@$(SCHEMATHESIS)/bin/pip install -q --disable-pip-version-check schemathesis==4.32.5
	@touch $@

# Random lives of collections: 100,000 results of searches against the definition of the query language, and garbage.
# About 20 minutes.
query-fuzz: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/query_fuzz.py $(OPTIONS)

# Mutated files of every format that is read in another process, and bombs of zip, XML and PDF. About ten minutes;
# OPTIONS="--times 50" takes two.
hostile: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/hostile_files.py $(OPTIONS)

# Clients and servers killed at random moments while a Qdrant cluster of three nodes is filled: 20 times each.
cluster-crash: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/cluster_crash.py

# Every file operation of a commit made to fail, alone and with all that follow; what is said of it must be true. About
# 12 minutes on an idle machine; OPTIONS="--step 12" takes one, and --only sparse takes one scenario.
faults: $(READY)
	$(BIN)/python tests/faults.py $(OPTIONS)

# Three Qdrant nodes: rankings beside an index, nodes and clients killed at random moments; see tests/cluster.py.
cluster: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/cluster.py $(OPTIONS)

# 10,000 opens, refreshes and commits with few file handles.
endurance: $(READY)
	$(BIN)/python tests/endurance.py

# 30 minutes of mixed traffic against a server: memory must stay flat, and nothing unexpected may come back.
soak: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/soak.py

# The server under load, beside the engine in process and Lucene behind its own server; see bench/serving.py.
bench-serving: $(READY) $(PEERS_READY)
	$(BIN)/python bench/serving.py --index $(INDEX) --questions $(QUESTIONS) --corpus $(CORPUS) --folder $(FOLDER) \
		--peers $(PEERS)/bin/python $(OPTIONS)

# Search engines side by side, in an hour or two: CORPUS and QUESTIONS are files of JSON lines; data, indexes and
# results go to FOLDER and are used again. The peers have an environment of their own.
bench: $(READY) $(PEERS_READY)
	$(BIN)/python bench/engines.py --corpus $(CORPUS) --questions $(QUESTIONS) --folder $(FOLDER) \
		--peers $(PEERS)/bin/python $(OPTIONS)

# The same in a few minutes, on the first 20,000 documents: whether everything works, not how fast it is.
bench-smoke: $(READY) $(PEERS_READY)
	$(BIN)/python bench/engines.py --corpus $(CORPUS) --questions $(QUESTIONS) --folder $(FOLDER) \
		--peers $(PEERS_RUN) --documents 20000 --queries 200 --rounds 2 --builds 1 $(OPTIONS)

# A collection in Qdrant beside an index and beside Qdrant alone: CORPUS and QUESTIONS are files of JSON lines.
bench-cluster: $(READY)
	$(BIN)/python bench/cluster.py $(CORPUS) $(QUESTIONS) $(OPTIONS)

# How the cost of a search grows with the collection; FOLDER is where `make bench` has been. INDEX, if there is one, is
# a large index, as `make bench-large` builds it.
bench-growth: $(READY)
	$(BIN)/python bench/growth.py $(FOLDER)/words $(if $(INDEX),--index $(INDEX)) $(OPTIONS)

# Ten million passages made of those in CORPUS, in FOLDER: build, search, change and compact them; about an hour.
bench-large: $(READY)
	mkdir -p $(FOLDER)
	test -e $(FOLDER)/passages.jsonl || \
		$(BIN)/python bench/passages.py make $(CORPUS) $(FOLDER)/passages.jsonl --documents 10000000
	$(BIN)/python bench/large.py $(FOLDER)/passages.jsonl $(QUESTIONS) $(FOLDER) $(OPTIONS)

# 2,000 small commits with a reader that follows: whether any of it takes longer at the end.
bench-commits: $(READY)
	$(BIN)/python bench/commits.py $(CORPUS) $(FOLDER) $(OPTIONS)

# Threads that search beside processes; INDEX is an index, QUESTIONS a file of JSON lines.
bench-threads: $(READY)
	$(BIN)/python bench/threads.py $(INDEX) $(QUESTIONS) $(OPTIONS)

# Build, memory, updates and compaction of a large collection; FILE is its source, FOLDER where to build.
bench-updates: $(READY)
	$(BIN)/python bench/updates.py $(FILE) $(FOLDER)

# Evaluating and fusing runs of ten million documents beside pytrec_eval and ranx.
bench-evaluation: $(READY)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt ranx==0.3.21
	$(BIN)/python bench/evaluation.py

# The memory of training and evaluation at several sizes, and the line through them; OPTIONS="--sizes 1000000,5000000".
bench-paper-scale: $(READY)
	VIZSLA_PLUGINS=bench/paper_scale.py $(BIN)/python bench/paper_scale.py $(CORPUS) $(FOLDER) $(OPTIONS)

# Tokens per second of the analyzers beside a plain loop; FILE is a file of JSON lines.
bench-text: $(READY)
	$(BIN)/python bench/text.py $(FILE)

$(LIGHT_READY): pyproject.toml constraints.txt
	@test -x $(LIGHT)/bin/python || $(PYTHON) -m venv $(LIGHT)
	@echo "Installing Vizsla into $(LIGHT) ..."
	@# Most modules of numpy are never imported: Python compiles those that are, when they are.
	@# The variable says the same to the pip that installs what the build needs; its 0 is no mistake.
	@PIP_NO_COMPILE=0 $(LIGHT)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e ".[server]"
	@touch $@

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing Vizsla into .venv ..."
	@# torch first and exactly: a looser demand would take another build of it.
	@$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	@VIZSLA_LEVELS=all $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# The beir package, to hold our figures against its own; what it needs for that is here, the rest is for encoders.
	@# ir_measures comes with dev where trec_eval, which it asks, has a wheel; elsewhere its other measures are tested.
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -c constraints.txt beir==2.2.0 ir_measures
	@touch $@

$(ADAPTERS_READY): pyproject.toml constraints.txt
	@test -x $(ADAPTERS)/bin/python || $(PYTHON) -m venv $(ADAPTERS)
	@echo "Installing Vizsla and the frameworks into $(ADAPTERS) ..."
	@$(ADAPTERS)/bin/pip install -q --disable-pip-version-check torch==2.13.0
	@$(ADAPTERS)/bin/pip install -q --disable-pip-version-check -c constraints.txt \
		-e ".[neural,dense,server,client,qdrant,hub,$(FRAMEWORKS)]" "sentence-transformers>=6.2,<6.3" \
		"langchain-tests>=1.1,<1.2" "pytest-asyncio>=1.2" pytest hypothesis
	@touch $@

$(RELEASE_READY):
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip install -q --disable-pip-version-check build twine check-wheel-contents lief
	@touch $@

$(SITE_READY): pyproject.toml constraints.txt docs/site/requirements.txt
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@echo "Installing Vizsla and zensical into $(SITE) ..."
	@$(SITE)/bin/pip install -q --disable-pip-version-check -c constraints.txt -r docs/site/requirements.txt -e .
	@touch $@

# Pyserini comes last and alone: most of what it asks for is for encoders nobody uses here. Its source says what setuptools
# of before 77 refuse. The wheel of retrievalx for x86 is one for every Python from 3.9 on, but is named as for 3.8 alone.
$(PEERS_READY): bench/peers/requirements.txt bench/peers/constraints.txt
	@test -x $(PEERS)/bin/python || $(PEERS_PYTHON) -m venv $(PEERS)
	@echo "Installing the peers into $(PEERS) ..."
	@$(PEERS)/bin/pip install -q --disable-pip-version-check -r bench/peers/requirements.txt \
		-c bench/peers/constraints.txt
	@$(PEERS)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation pyserini==2.4.0
ifeq ($(shell uname -sm),Linux x86_64)
	@$(PEERS)/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.8 \
		--ignore-requires-python \
		--platform manylinux2014_x86_64 -d $(PEERS)/wheels retrievalx==0.1.4
	@$(PEERS)/bin/python -m zipfile -e $(PEERS)/wheels/retrievalx-*.whl $(PEERS)/lib/python3.*/site-packages
	@cd $(PEERS)/lib/python3.*/site-packages/retrievalx && mv _native.cpython-38-*.so _native.abi3.so
	@test -x $(PEERS)-seismic/bin/python || $(PYTHON) -m venv $(PEERS)-seismic
	@$(PEERS)-seismic/bin/pip install -q --disable-pip-version-check numpy pyseismic-lsr==0.5.4
endif
	@touch $@

clean:
	rm -rf .venv $(LIGHT) $(DOCS) $(SITE) build/site $(PEERS) $(PEERS)-seismic $(ADAPTERS) $(RELEASE) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
