"""Of which files `make test` and the legs beside it take a share of the rows; each night all of them run.

Rows of one test differ by a program, a level, a task or a command. Where a row takes a second and more, and there are
dozens, those of the share are the same each time, so that what fails once fails again. Each test keeps one row at
least. The others have the mark ``slow`` (`make test-slow`); with ``MSPROBE_TESTS=all`` in the environment none is left
out (`make test-mindspore MSPROBE_TESTS=all`).
"""

from __future__ import annotations

import math
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

#: One row of so many runs for each change. The slowest files of `make cpu-times`.
ONE_OF: Mapping[str, int] = {
    "bugs/kernels/test_ranks.py": 3,
    "bugs/test_planting.py": 3,
    "hostile/test_configurations.py": 3,
    "hostile/test_files_of_other_kinds.py": 2,
    "hostile/test_foreign_modules.py": 3,
    "hostile/test_many_records.py": 3,
    "hostile/test_settings.py": 3,
    "hostile/test_unpacked_sizes.py": 3,
    "integration/test_broken_functions.py": 2,
    "integration/test_compare_many.py": 2,
    "integration/test_device_faults.py": 3,
    "integration/test_devices.py": 3,
    "integration/test_documents.py": 2,
    "integration/test_endurance.py": 3,
    "integration/test_examples.py": 2,
    "integration/test_framework_pairs.py": 2,
    "integration/test_free_benchmark.py": 2,
    "integration/test_graphs.py": 2,
    "integration/test_growth.py": 3,
    "integration/test_innocence.py": 3,
    "integration/test_innocence_idle.py": 3,
    "integration/test_innocence_listeners.py": 3,
    "integration/test_innocence_ranks.py": 3,
    "integration/test_layouts.py": 2,
    "integration/test_lockstep.py": 2,
    "integration/test_mindspore_and_pytorch.py": 2,
    "integration/test_mindspore_innocence.py": 3,
    "integration/test_mindspore_kernels.py": 2,
    "integration/test_online_check.py": 2,
    "integration/test_own_errors.py": 3,
    "integration/test_pages.py": 3,
    "integration/test_precheck.py": 2,
    "integration/test_precheck_workers.py": 2,
    "integration/test_programs.py": 3,
    "integration/test_run_launchers.py": 3,
    "integration/test_run_script.py": 3,
    "integration/test_run_steps.py": 3,
    "integration/test_taken_apart.py": 3,
    "integration/test_unwritten_ranks.py": 3,
    "process/capture/torch/test_compiled.py": 3,
    "unit/capture/torch/test_jitter.py": 2,
    "unit/diagnose/test_interrupted_anywhere.py": 3,
    "unit/diagnose/test_reported_programs.py": 3,
    "unit/diagnose/test_rewritten_programs.py": 2,
    "unit/diagnose/test_rewritten_under_autocast.py": 2,
    "unit/lockstep/test_kinds.py": 3,
    "unit/lockstep/test_lockstep.py": 3,
    "unit/lockstep/test_pairs.py": 3,
    "unit/lockstep/test_rewritings.py": 3,
    "unit/monitor/test_averages_of_threads.py": 3,
    "unit/monitor/test_choices_of_threads.py": 2,
    "unit/monitor/test_relations.py": 3,
    "unit/monitor/test_trainings_of_threads.py": 3,
    "unit/precheck/test_backwards_of_threads.py": 2,
    "unit/precheck/test_compiled_modules.py": 3,
}


#: The files that cost most, by folder: `make test-long` runs them, and `make test` the others. `make cpu-times` shows
#: what each costs.
LONG: Mapping[str, str] = {
    "bugs": """
        planting
    """,
    "bugs/kernels": """
        ranks second_look
    """,
    "hostile": """
        configurations files_of_other_kinds foreign_modules many_records names_that_are_paths settings
        unpacked_sizes
    """,
    "integration": """
        broken_functions device_faults devices documents endurance examples graphs growth innocence
        innocence_idle innocence_ranks kill_training layouts lockstep native_and_python online_check
        own_errors pages precheck precheck_workers private_names programs run_launchers run_script run_steps
        taken_apart unwritten_ranks view_server zoo_records
    """,
    "process/capture/torch": """
        compiled programs
    """,
    "process/cli": """
        every_option one_command_line
    """,
    "process/grad_probe": """
        probed_programs
    """,
    "unit/capture/torch": """
        jitter
    """,
    "unit/config": """
        every_field
    """,
    "unit/diagnose": """
        mindspore_and_pytorch rewritten_programs
    """,
    "unit/lockstep": """
        lockstep pairs rewritings
    """,
    "unit/messages": """
        texts_outside
    """,
    "unit/monitor": """
        sketch
    """,
    "unit/precheck": """
        compiled_modules script
    """,
    "unit/report": """
        row_partners
    """,
}


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark what is in the files of :data:`LONG`."""
    files = {TESTS / folder / f"test_{name}.py" for folder, names in LONG.items() for name in names.split()}
    for item in items:
        if item.path in files:
            item.add_marker("long")


def share_out(items: Iterable[pytest.Item], one_of: Mapping[str, int] = ONE_OF) -> None:
    """Mark the rows that are not in the share of their test as slow."""
    if os.environ.get("MSPROBE_TESTS") == "all":
        return
    rows: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if TESTS in item.path.parents and isinstance(item, pytest.Function) and not item.get_closest_marker("slow"):
            rows[item.path.relative_to(TESTS).as_posix(), item.originalname].append(item)
    for (file, _), of_test in rows.items():
        in_share = chosen([item.name for item in of_test], one_of.get(file, 1))
        for item in of_test:
            if item.name not in in_share:
                item.add_marker("slow")


def chosen(names: Sequence[str], one_of: int) -> set[str]:
    """The names of the share, at least one. It depends on nothing but the names."""
    number = math.ceil(len(names) / one_of)
    return set(sorted(names, key=lambda name: zlib.crc32(name.encode()))[:number])
