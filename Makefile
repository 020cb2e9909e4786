# `make demo` and `make test` do all set-up: they need Python >= 3.10 and make.
# Another Python: make test PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
# MindSpore has an environment of its own: it needs an older numpy than torch's tests run with.
MINDSPORE_VENV ?= .venv-mindspore
MINDSPORE_PYTHON ?= $(PYTHON)
# Another MindSpore: make test-mindspore MINDSPORE_VERSION=2.8.0 MINDSPORE_VENV=.venv-mindspore-2.8
MINDSPORE_VERSION ?= $(patsubst mindspore==%,%,$(filter mindspore==%,$(shell cat constraints-mindspore.txt)))
# Another torch: make test TORCH_VERSION=2.1.2 runs the recorder's tests with it, in an environment of its own. Choose a
# Python that this torch has wheels for: make test TORCH_VERSION=2.1.2 PYTHON=python3.11
TORCH_VERSION ?=
TORCH_VENV := .venv-torch-$(TORCH_VERSION)
TORCH_RUN := $(TORCH_VENV)/bin/python
TORCH_STAMP := $(TORCH_VENV)/.msprobe-installed
# The tests run in one process more than there are cores, as some wait: make test WORKERS=0 runs them in one.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# A file in one process, so that what its tests share is recorded once; long files come first.
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# What runs for each change, and in no leg of its own.
EACH_CHANGE := not slow and not compat and not gpu and not browser and not trainers and not bugs
# CPU seconds of each folder stand at the end; make cpu-times shows the slowest files and tests, too.
MEASURED = --cpu-times $@
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.msprobe-installed
MINDSPORE_RUN := $(MINDSPORE_VENV)/bin/python
MINDSPORE_STAMP := $(MINDSPORE_VENV)/.msprobe-installed
MINDSPORE_PACKAGES := $(MINDSPORE_VENV)/.packages-installed
# DeepSpeed and Megatron's core come on top of the first environment, and change nothing in it.
SHARDED_VENV ?= .venv-sharded
SHARDED_RUN := $(SHARDED_VENV)/bin/python
SHARDED_STAMP := $(SHARDED_VENV)/.msprobe-installed
NATIVE := $(wildcard src/msprobe/capture/c/*.c src/msprobe/capture/c/*.h src/msprobe/diagnose/differences/*.c)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What is compiled is kept, also where images switch that off: tests start hundreds of processes that import the same.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long test-unit test-slow test-bugs test-kernels test-trainers test-sharded rollout-packages test-rollout test-without-extension test-native test-browser test-mindspore fuzz fuzz-properties fuzz-guided docs web web-check lint format types imports check bench compat cpu-times clean

help:
	@echo "make demo      msprobe demo, into .demo: a wrong line in a small training is found"
	@echo "make test      run the tests (minutes)"
	@echo "make test-long run the tests of each change that cost most"
	@echo "make test-unit run the unit tests that start no process"
	@echo "make test TORCH_VERSION=2.1.2  run the recorder's tests with another torch, in an environment of its own"
	@echo "make cpu-times show what the tests cost that were last run, by folder, file and test"
	@echo "make test-slow run the tests that take long, too"
	@echo "make test-bugs  compare every planted bug and every healthy pair (BUGS=all: in float32, bfloat16 and autocast each)"
	@echo "make test-kernels  measure what healthy devices show of each operator, and compare it with the table of the judge"
	@echo "make test-trainers  record trainings of transformers, TRL, accelerate and Lightning"
	@echo "make test-sharded  train with the real DeepSpeed and Megatron on two ranks (installs them in an environment of its own)"
	@echo "make test-rollout  record a real inference engine and name planted mismatches (installs vLLM for the CPU, 1.8 GB, in an environment of its own; ROLLOUT=all: every mismatch, in both types)"
	@echo "make test-without-extension  run the recorder's tests without the C extension"
	@echo "make test-native  run those, and the tests of the C extension under the address sanitizer (needs gcc with it)"
	@echo "make test-browser  open the pages in a real browser (installs Chromium where it is missing)"
	@echo "make test-mindspore  run the tests on MindSpore, which it installs in an environment of its own"
	@echo "make fuzz      give each reader inputs that nobody would write, for FUZZ_SECONDS=60 in all (findings in .fuzz)"
	@echo "make fuzz-properties  state properties of more and other examples than make test does"
	@echo "make docs      build the site of docs/ into site/, strictly"
	@echo "make web       build the page of msprobe view from web/ (needs node)   make web-check  is what is committed that build? are the workflows right?"
	@echo "make lint      ruff: style and format          make format   let ruff repair both"
	@echo "make types     mypy, strict, on the package    make imports  the import rules of the architecture"
	@echo "make check     test, test-long, lint, types and imports"
	@echo "make bench     measure the cost of recording and comparing (long; results in bench/)"
	@echo "make compat    check against the published mindstudio-probe (installs it in environments of its own)"
	@echo "make clean     remove what the above wrote, the environment excepted"

# One environment for everything; an existing one is brought up to date, never removed.
$(STAMP): pyproject.toml setup.py constraints.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "msprobe needs Python 3.10 or newer; choose one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip uninstall --quiet --yes msprobe 2>/dev/null || true # as it was called before
	@# Groups of dependencies (PEP 735) came with pip 25.1.
	$(RUN) -m pip install --quiet --upgrade 'pip>=25.1'
	$(RUN) -m pip install --quiet -e '.[torch]' --group dev -c constraints.txt
	@touch $@

demo: $(STAMP)
	rm -rf .demo
	$(RUN) -m msprobe demo -o .demo

ifneq ($(TORCH_VERSION),)
test: test-torch
else
# One thread each: sums must not depend on how many cores there are.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests $(PARALLEL) $(MEASURED) -m "not long and $(EACH_CHANGE)"
endif

# What costs most of each change: zoos of programs, sharded ranks, documents whose commands are run.
test-long: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests $(PARALLEL) $(MEASURED) -m "long and $(EACH_CHANGE)"

# Versions of constraints.txt but for torch, and for what torch itself asks for. Before 2.3 it knows numpy 1 only.
$(TORCH_STAMP): pyproject.toml setup.py constraints.txt $(NATIVE)
	@test -x $(TORCH_RUN) || $(PYTHON) -m venv $(TORCH_VENV)
	@sed -E '/^(torch|sympy|networkx|setuptools)==/d' constraints.txt > $(TORCH_VENV)/constraints.txt
	@case "$(TORCH_VERSION)" in 2.[0-2].*) \
	  sed -i -E 's/^numpy==[^;]*/numpy==1.26.4/' $(TORCH_VENV)/constraints.txt;; esac
	@$(TORCH_RUN) -m pip uninstall --quiet --yes msprobe 2>/dev/null || true
	$(TORCH_RUN) -m pip install --quiet -e . torch==$(TORCH_VERSION) hypothesis polars pytest pytest-timeout \
	  pytest-xdist python-calamine safetensors -c $(TORCH_VENV)/constraints.txt
	@touch $@

# What is quick everywhere: no processes (tests/unit/conftest.py holds that), no networks of others.
test-unit: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests/unit $(PARALLEL) $(MEASURED) -m "not slow and not gpu"

.PHONY: test-torch
test-torch: $(TORCH_STAMP)
	OMP_NUM_THREADS=1 $(TORCH_RUN) -m pytest $(PARALLEL) tests/unit/capture tests/process/capture tests/integration/test_private_names.py \
	  tests/integration/test_innocence.py -m "not slow and not gpu"

# What was measured when targets were last made.
cpu-times: $(STAMP)
	@$(RUN) tests/cpu_times.py

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests $(PARALLEL) -m "slow and not compat and not gpu and not browser and not bugs"

# What the judge takes for usual of healthy devices, measured again on this machine (half an hour).
test-kernels: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m tests.bugs.kernels.classes --check

# Trainers of other packages, the real ones: importing them takes longer than training.
test-trainers: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n $(WORKERS) --maxprocesses 8 $(MEASURED) tests/integration/test_trainers.py \
	  tests/integration/test_monitored_trainers.py tests/integration/test_gradient_probe.py -m "trainers and not slow"

$(SHARDED_STAMP): $(STAMP) constraints-sharded.txt
	@test -x $(SHARDED_RUN) || $(RUN) -m venv $(SHARDED_VENV)
	@$(RUN) -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > \
	  $$($(SHARDED_RUN) -c 'import site; print(site.getsitepackages()[0])')/shared.pth
	$(SHARDED_RUN) -m pip install --quiet setuptools wheel -c constraints-sharded.txt
	@# Built where torch is seen, which it asks for; no kernels are compiled.
	$(SHARDED_RUN) -m pip install --quiet --no-deps --no-build-isolation -r constraints-sharded.txt
	@touch $@

test-sharded: $(SHARDED_STAMP)
	OMP_NUM_THREADS=1 $(SHARDED_RUN) -m pytest -n 0 $(MEASURED) tests/integration/test_monitor_deepspeed.py \
	  tests/integration/test_monitor_megatron.py tests/integration/test_checkpoint_deepspeed.py \
	  tests/integration/test_checkpoint_megatron.py -m trainers

# A real inference engine. What comes with it and does not fit its torch is taken off again.
ROLLOUT_VENV ?= .venv-rollout
ROLLOUT_STAMP := $(ROLLOUT_VENV)/.msprobe-installed
$(ROLLOUT_STAMP): constraints-rollout.txt pyproject.toml
	@test -x $(ROLLOUT_VENV)/bin/python || $(PYTHON) -m venv $(ROLLOUT_VENV)
	$(ROLLOUT_VENV)/bin/python -m pip install --quiet --no-deps --no-compile -r constraints-rollout.txt
	@touch $@

# As for MindSpore: the environment can be filled while other tests run.
rollout-packages: $(ROLLOUT_STAMP)

# A few mismatches and healthy pairs in one process and the plug-in in another; all of them, in both types, with ROLLOUT=all.
ROLLOUT ?= some
test-rollout: $(ROLLOUT_STAMP)
	cd tests && for type in $(if $(filter all,$(ROLLOUT)),float32 bfloat16,some); do \
	  PYTHONPATH=$(abspath src) $(abspath $(ROLLOUT_VENV))/bin/python -m rollout.bench $$type $(abspath .bench/rollout)/$$type || exit 1; \
	  if [ $$type != some ]; then PYTHONPATH=$(abspath src) $(abspath $(ROLLOUT_VENV))/bin/python -m rollout.families $$type $(abspath .bench/families)/$$type || exit 1; fi; done

# What each planted bug and each healthy pair is answered, in one precision each; in all of them with BUGS=all.
BUGS ?= some
test-bugs: $(STAMP)
	BUGS=$(BUGS) BUGS_CACHE=$(abspath .bench/pairs) OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(WORKERS) --maxprocesses 8 $(MEASURED) tests/bugs/test_gate.py

# Of these: statistics, values, rows, what stands around each call, and what is said of statistics that were added up in
# another order, which are C where it was built. Other tests of the
# recorder run the same code there, have both in one process (`use_python`), or are of C alone.
CAPTURE := tests/unit/capture/torch
WITHOUT := tests/unit/capture/test_records.py tests/unit/capture/test_tensor_rows.py $(patsubst %,$(CAPTURE)/test_%.py,\
  calls custom functions letting_go letting_go_in_a_step overflow recorder_faults saving \
  statistics_late statistics_unusual tensor_values threads transparent user_warnings) \
  tests/unit/launcher/test_direct_calls.py tests/unit/launcher/test_function_calls.py \
  tests/unit/diagnose/test_rewritten_programs.py tests/unit/diagnose/test_modules_alone.py \
  tests/unit/diagnose/test_parameters_arranged.py $(wildcard tests/unit/diagnose/differences/test_*.py)
# And of test_innocence, which stands beside them: these architectures; of options those that choose what is computed.
INNOCENT := (gpt_tied or writes_into_views or recompute_non_reentrant or custom_function) and (L0 or mix) and (not test_options or xor or precision)

# What the recorder does where no C compiler was: the Python path of all that the extension does.
test-without-extension: $(STAMP)
	MSPROBE_NATIVE=0 OMP_NUM_THREADS=1 $(RUN) -m pytest $(PARALLEL) $(MEASURED) -m "not slow and not gpu" \
	  tests/integration/test_innocence.py $(WITHOUT) -k "not test_innocence or ($(INNOCENT))"

# The C extension under the sanitizers for addresses and undefined behaviour, what it keeps, and the tests without it.
test-native: $(STAMP) test-without-extension
	.ci/native $(RUN) tests/unit/capture/test_native.py tests/process/capture/test_native.py tests/process/capture/test_native_files.py \
	  tests/unit/capture/torch/test_native_leaks.py $(wildcard tests/unit/capture/torch/test_statistics*.py) \
	  tests/unit/diagnose/differences/test_elements.py tests/unit/diagnose/differences/test_tensor_files.py
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests/unit/capture/torch/test_native_leaks.py

# Each reader of files, texts and connections, given inputs that nobody would write. FUZZ_SEED=N begins others.
FUZZ_SECONDS ?= 60
FUZZ_READERS ?=
fuzz: $(STAMP)
	cd tests && FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_FOUND=$(abspath .fuzz) OMP_NUM_THREADS=1 $(abspath $(RUN)) -m fuzz.run $(FUZZ_READERS)

# Other examples than `make test` has, which draws the same each time, for the properties that tests state.
fuzz-properties: $(STAMP)
	MSPROBE_EXAMPLES=others OMP_NUM_THREADS=1 $(RUN) -m pytest $(PARALLEL) -m "not slow" $(shell grep -rl --include='test_*.py' '^from hypothesis' tests/unit tests/process)

# The same under atheris, which keeps what reaches new lines; where it has a wheel.
fuzz-guided: $(STAMP)
	$(RUN) -m pip install --quiet atheris
	cd tests && for reader in $(or $(FUZZ_READERS),wire_frames tensor_pt checkpoint_distributed kernel_file settings_shell); do \
	  OMP_NUM_THREADS=1 $(abspath $(RUN)) -m fuzz.guided $$reader $(FUZZ_SECONDS) $(abspath .fuzz) || exit 1; done

test-browser: $(STAMP)
	.ci/browser
	MSPROBE_BROWSER=required OMP_NUM_THREADS=1 $(RUN) -m pytest $(MEASURED) tests/browser -m browser

# What MindSpore's tests need but for msprobe, whose extension must not be built while other tests use it.
.PHONY: mindspore-packages
mindspore-packages: $(MINDSPORE_PACKAGES)
$(MINDSPORE_PACKAGES): constraints-mindspore.txt
	@$(MINDSPORE_PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || \
	  { echo "MindSpore needs Python 3.10 to 3.12; choose one with: make MINDSPORE_PYTHON=python3.11" >&2; exit 1; }
	@test -x $(MINDSPORE_RUN) || $(MINDSPORE_PYTHON) -m venv $(MINDSPORE_VENV)
	@sed 's/^mindspore==.*/mindspore==$(MINDSPORE_VERSION)/' constraints-mindspore.txt > $(MINDSPORE_VENV)/constraints.txt
	$(MINDSPORE_RUN) -m pip install --quiet mindspore hypothesis pytest pytest-timeout pytest-xdist \
	  -c $(MINDSPORE_VENV)/constraints.txt
	@touch $@

$(MINDSPORE_STAMP): $(MINDSPORE_PACKAGES) pyproject.toml setup.py $(NATIVE)
	@$(MINDSPORE_RUN) -m pip uninstall --quiet --yes msprobe 2>/dev/null || true
	$(MINDSPORE_RUN) -m pip install --quiet -e '.[mindspore,compare]' -c $(MINDSPORE_VENV)/constraints.txt
	@touch $@

.PHONY: mindspore-installed
mindspore-installed: $(MINDSPORE_STAMP)

test-mindspore: $(MINDSPORE_STAMP)
	OMP_NUM_THREADS=1 $(MINDSPORE_RUN) -m pytest $(PARALLEL) $(MEASURED) tests/unit/mindspore tests/process/mindspore tests/conformance tests/unit/capture/test_array_statistics.py \
	  tests/integration/test_mindspore_innocence.py tests/integration/test_mindspore_ranks.py \
	  tests/integration/test_mindspore_kernels.py tests/integration/test_mindspore_adapter.py \
	  tests/integration/test_mindspore_and_pytorch.py tests/integration/test_framework_pairs.py tests/integration/test_mindspore_kill.py -m "not slow" \
	  --ignore=tests/unit/mindspore/test_program_errors.py
	@# In a process of their own: after other trainings MindSpore tells of a kernel's error at other moments.
	OMP_NUM_THREADS=1 $(MINDSPORE_RUN) -m pytest tests/unit/mindspore/test_program_errors.py

# The page is built by those who change it; what is built is committed, so that nobody else needs node.
# The site of docs/, in an environment of its own.
DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.msprobe-installed
$(DOCS_STAMP): constraints-docs.txt
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet jieba mkdocs-material mkdocs-static-i18n -c constraints-docs.txt
	@touch $@

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

WEB_STAMP := web/node_modules/.msprobe-installed
PAGE := src/msprobe/view/page

$(WEB_STAMP): web/package.json web/package-lock.json web/.npmrc
	.ci/node
	cd web && npm ci --silent
	@touch $@

web: $(WEB_STAMP)
	cd web && npm run --silent types && npm run --silent build

web-check: $(WEB_STAMP)
	cd web && npm run --silent types && npm run --silent test && npm run --silent workflows
	@built=$$(mktemp -d) && trap 'rm -rf "$$built"' EXIT && (cd web && node build.mjs "$$built") && \
	  { diff -rq "$$built" $(PAGE) || { echo "$(PAGE) is not what web/ builds: run make web and commit the result" >&2; exit 1; }; }

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(STAMP)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

types: $(STAMP)
	$(RUN) -m mypy

imports: $(STAMP)
	$(VENV)/bin/lint-imports

check: test test-long lint types imports

bench: $(STAMP)
	$(RUN) bench/reference_env.py
	$(RUN) bench/capture/run.py
	$(RUN) bench/compare/run.py

compat: $(STAMP)
	$(RUN) bench/reference_env.py
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests/compat -m compat

clean:
	rm -rf build dist site .demo .cpu .fuzz .simdev src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
	rm -f $(STAMP) $(MINDSPORE_STAMP) $(MINDSPORE_PACKAGES) $(WEB_STAMP) .venv-torch-*/.msprobe-installed
