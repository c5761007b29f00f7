PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
EXAMPLES ?= 100
# Tests start hundreds of processes: none of them should compile our modules again.
export PYTHONDONTWRITEBYTECODE :=
# Tests with other processes wait much, so two at a time for each processor, in the
# order in which they are given: the slow ones first.
IN_PARALLEL := PYTEST_XDIST_AUTO_NUM_WORKERS=$$((2 * $$(nproc 2>/dev/null || echo 2)))
SPREAD := --numprocesses=auto --dist=loadgroup --no-loadscope-reorder
# Tests share the processors already: threads inside each would spin while they wait for
# one another, which takes five times what the tests do.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest
FUZZ_SECONDS ?= 900

.PHONY: help page-types pictures install demo serve test test-store quick packages images chaos soak fuzz lock lint format typecheck client chart docs follow follow-clone notebooks onnx-node mlserver clean
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
		--constraint constraints.txt --editable '.[serve,train,dev]'
	@touch $@

demo: $(INSTALLED) ## Train on the wine data, show diversity, calibration and predictions
	@$(BIN)/python examples/demo.py

serve: $(INSTALLED) ## Run the API and a worker until Ctrl-C
	@$(BIN)/lometab serve

test: $(INSTALLED) ## Run all tests, against SQLite and against real Postgres and Redis
	$(IN_PARALLEL) $(PYTEST) $(SPREAD) -m 'not timing'
	$(BIN)/pytest -m timing $$(grep -rl --include='test_*.py' 'mark\.timing' tests)
	TEST_BLOB_STORE=s3 $(PYTEST) $(SPREAD) -m 'not timing' \
		-k 'not production' tests/app/test_datasets.py tests/app/test_predictions.py \
		tests/app/test_retention.py tests/app/test_backup.py tests/test_predictions.py

# What has to do with stored files; the rest of tests/ knows no service.
SERVICE_TESTS := tests/app tests/worker tests/test_chaos.py tests/test_client.py \
	tests/test_contract.py tests/test_cuts.py tests/test_durability.py \
	tests/test_end_to_end.py tests/test_front.py tests/test_migrating_jobs.py \
	tests/test_open_default.py tests/test_page.py tests/test_page_jobs.py tests/test_peers.py \
	tests/test_predictions.py tests/test_shared_limits.py tests/test_shutdown.py \
	tests/test_sweeps.py tests/test_uncertainty.py

test-store: $(INSTALLED) ## Run the service's tests with files in an S3 server, not the database
	TEST_BLOB_STORE=s3 $(IN_PARALLEL) $(PYTEST) $(SPREAD) -m 'not timing' $(SERVICE_TESTS)

quick: $(INSTALLED) ## Run what needs no other process and is not slow, within a minute
	$(PYTEST) --numprocesses=auto --dist=worksteal \
		-m 'not processes and not slow and not timing'

packages: $(INSTALLED) ## Install wheel and extras into clean environments (an index is needed)
	$(BIN)/python -m tests.support.packages
	$(BIN)/python -m tests.support.packages --lowest

images: $(INSTALLED) ## Build the images by buildah and run each command from its image
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m tests.support.images $(IMAGES)

chaos: $(INSTALLED) ## Full disks, cut connections, kills, clocks, bits; count what is lost
	$(BIN)/python -m tests.support.chaos

soak: $(INSTALLED) ## Half an hour of mixed load with faults at random
	$(BIN)/python benchmarks/soak.py

page-types: ## Check the types of the page's scripts with TypeScript (npm is needed)
	npm install --silent --no-save --no-fund --no-audit --prefix build/page-types typescript
	build/page-types/node_modules/.bin/tsc --noEmit --allowJs --checkJs --strict \
		--target es2023 --module es2022 --moduleResolution bundler \
		--lib es2023,dom,dom.iterable $$(find app/page -name '*.js')

pictures: $(INSTALLED) ## Take the pictures of the page that README and docs show (Chromium is needed)
	$(BIN)/python -m tests.support.pictures

fuzz: $(INSTALLED) ## Test the API long against its OpenAPI document and odd bytes
	LOMETAB_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/test_contract.py \
		tests/app/test_predict.py -k 'schemathesis or any_json or any_bytes'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt atheris
	$(BIN)/python -m tests.support.fuzz --seconds $(FUZZ_SECONDS)

COMPILE := build/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --constraint constraints.txt

lock: $(INSTALLED) ## Write the locks anew: packages of the images with their hashes
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	$(COMPILE) --extra serve --extra otel --output-file build/api.lock pyproject.toml
	(echo "# The API's packages with the hashes of their files. \`make lock\` writes it."; \
		grep -v '^# \|^lometab @\|^$$' build/api.lock) > requirements.lock
	for kind in worker gpu; do \
		$(BIN)/python scripts/list_worker_packages.py $$kind > build/$$kind.in && \
		$(COMPILE) --output-file build/$$kind.lock build/$$kind.in && \
		(echo "# Packages of the image '$$kind' with the hashes of their files."; \
			echo "# \`make lock\` writes it."; \
			grep -v '^#\|^$$' build/$$kind.lock) > requirements-$$kind.lock || exit 1; \
	done

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

client: $(INSTALLED) ## Write lometab/client/sync from lometab/client/aio
	$(BIN)/python scripts/make_client.py

chart: $(INSTALLED) ## Write the names of settings into the schema of the Helm chart
	$(BIN)/python -m scripts.write_chart_settings

docs: $(INSTALLED) ## Write docs/errors.md and the README's figures, build the site (docs/site)
	$(BIN)/python -m scripts.docs.build

follow: $(INSTALLED) ## Follow README, Start and Do line by line in empty directories
	$(BIN)/python scripts/follow_docs.py

follow-clone: $(INSTALLED) ## Follow README and Start in a clone, with pip in clean environments
	$(BIN)/python -m scripts.follow_clone

notebooks: $(INSTALLED) ## Run the notebooks and keep their outputs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt ipykernel nbclient
	$(BIN)/python -m scripts.docs.notebooks

onnx-node: ## Install onnxruntime-node into build/, and run the JavaScript of the docs (npm is needed)
	npm install --silent --ignore-scripts --no-save --no-fund --no-audit \
		--prefix build/onnx-node onnxruntime-node@1.30.0
	$(BIN)/python scripts/follow_docs.py docs/do/languages.md

mlserver: $(INSTALLED) ## Install MLServer into build/, where it may have its own versions; test with its client
	$(BIN)/python -m venv build/mlserver
	build/mlserver/bin/python -m pip install --quiet --disable-pip-version-check \
		mlserver==1.7.1
	$(PYTEST) tests/test_peers.py

bench-%: $(INSTALLED) ## Run benchmarks/<name>.py
	$(BIN)/python benchmarks/$*.py

clean: ## Remove .venv and everything built or cached
	rm -rf .venv build docs/site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
