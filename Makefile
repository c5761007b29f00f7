PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
EXAMPLES ?= 100

.PHONY: help install demo serve test chaos fuzz lint format typecheck docs clean
.DEFAULT_GOAL := help

help: ## Show what there is to make
	@grep -E '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(INSTALLED) ## Set up .venv with everything pinned in constraints.txt

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; name one with PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[cpu,train,dev]'
	@touch $@

demo: $(INSTALLED) ## Train on the wine data, show diversity, calibration and predictions
	@$(BIN)/python examples/demo.py

serve: $(INSTALLED) ## Run the API and a worker until Ctrl-C
	@$(BIN)/lometab serve

test: $(INSTALLED) ## Run all tests, against SQLite and against real Postgres and Redis
	$(BIN)/pytest --numprocesses=auto --dist=worksteal

chaos: $(INSTALLED) ## Kill workers, wipe Redis, restart Postgres; count what is lost
	$(BIN)/python -m tests.chaos

fuzz: $(INSTALLED) ## Test the API long against its OpenAPI document and odd bodies
	LOMETAB_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/test_contract.py \
		tests/app/test_predict.py -k 'schemathesis or any_'

lint: $(INSTALLED) ## Check style, the compose file and the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/hadolint Dockerfile

format: $(INSTALLED) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(INSTALLED) ## Check types
	$(BIN)/mypy

docs: $(INSTALLED) ## Write docs/errors.md from the code
	$(BIN)/python -c 'from app.errors import document; print(document(), end="")' > docs/errors.md

bench-%: $(INSTALLED) ## Run benchmarks/<name>.py
	$(BIN)/python benchmarks/$*.py

clean: ## Remove .venv and everything built or cached
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
