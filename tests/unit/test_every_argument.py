"""An argument that is accepted does something: each one of what users import is read by its function, or refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msprobe

SOURCE = Path(msprobe.__file__).parent
# What users import, and where it is defined. MindSpore need not be there.
PUBLIC = {
    "capture/torch/debugger.py": ("PrecisionDebugger",),
    "capture/mindspore/debugger.py": ("PrecisionDebugger",),
    "capture/debugger.py": ("Debugger",),
    "seeding/torch.py": ("seed_all",),
    "seeding/mindspore.py": ("seed_all",),
    "capture/torch/modules/single_module.py": ("module_dump", "module_dump_end"),
    "capture/memory.py": ("Memory",),
    "capture/torch/listening.py": ("Listening",),
    "capture/mindspore/listening.py": ("Listening",),
    "report/compare_functions.py": ("compare", "compare_distributed"),
    "report/compare_mindspore.py": ("ms_compare",),
    "monitor/torch/trainer.py": ("TrainerMon",),
    "monitor/mindspore/trainer.py": ("TrainerMon",),
    "monitor/trainer.py": ("Monitor",),
    "monitor/v2/trainer.py": ("TrainerMonitorV2",),
    "monitor/convert/csv_to_tensorboard.py": ("csv2tensorboard_by_step",),
    "monitor/convert/csv_to_database.py": ("csv_to_database",),
    "monitor/convert/dump_to_database.py": ("dump_to_database",),
    "grad_probe/comparator.py": ("GradComparator",),
    "precheck/torch/check_api.py": ("check_api",),
    "precheck/torch/compiled_modules.py": ("PrecisionChecker",),
    "capture/mindspore/graphs/graph_save.py": ("save", "save_grad"),
    "capture/torch/calls/custom.py": ("register", "restore"),
    "report/merged_sheet.py": ("merge_result",),
    "config_check/checker.py": ("ConfigChecker",),
}


def _functions(file: Path, names: tuple[str, ...]) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            yield node
        if isinstance(node, ast.ClassDef) and node.name in names:
            yield from (one for one in node.body if isinstance(one, ast.FunctionDef) and _is_public(one.name))


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__enter__")


def _unread(function: ast.FunctionDef) -> list[str]:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    read = {node.id for line in function.body for node in ast.walk(line) if isinstance(node, ast.Name)}
    return [name for name in names if name not in ("self", "cls") and name not in read]


def _raises_only(function: ast.FunctionDef) -> bool:
    return isinstance(function.body[-1], ast.Raise)


def test_every_argument_of_what_users_import_is_read() -> None:
    unread = {}
    for path, names in PUBLIC.items():
        file = SOURCE / path
        if not file.exists():
            unread[path] = ["no such file"]
            continue
        found = list(_functions(file, names))
        for function in found:
            if (left := _unread(function)) and not _raises_only(function):
                unread[f"{path}:{function.name}"] = left
        if not found:
            unread[path] = ["none of its names is there"]
    assert not unread
