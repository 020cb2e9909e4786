"""``compare`` and ``compare_distributed``, as scripts for mindstudio-probe 8.1.1 call them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msprobe.compare.mapping import load_mappings
from msprobe.compare.problems import InvalidPathError, WrongTypeError
from msprobe.compare.sides import is_folder_pair
from msprobe.engine import Engine, Workers
from msprobe.messages import said
from msprobe.report.comparing import SheetRequest, compare_files, compare_folders, say_what_was_not
from msprobe.report.function_arguments import FunctionArguments

_PATHS = ("npu_json_path", "bench_json_path")
_KNOWN = ("data_mapping", "suffix", "is_print_compare_log")


def compare(
    input_param: Mapping[str, Any],
    output_path: str | os.PathLike[str] = "./output",
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    **kwargs: Any,
) -> None:
    """Compare two ``dump.json`` (or ``debug.json``) and write ``compare_result_*.xlsx`` and ``advisor_*.txt``.

    ``input_param`` has the paths ``npu_json_path`` and ``bench_json_path``, and may have ``stack_json_path``
    (shown if ``stack_mode``; without it the stacks beside the target are) and ``is_print_compare_log``.
    ``auto_analyze``: write the advice. ``fuzzy_match``: pair calls of other numbers. Keywords: ``data_mapping``, the
    path of a YAML file or its content, and ``suffix``, a word for the names of the files.

    Raises the errors of :mod:`msprobe.compare.problems` and PathError; then nothing was written.
    """
    arguments = FunctionArguments("compare")
    paths = arguments.fields(input_param, _PATHS, InvalidPathError)
    log_rows = input_param.get("is_print_compare_log", True) if isinstance(input_param, Mapping) else True
    arguments.flags(
        stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match, is_print_compare_log=log_rows
    )
    suffix, data_mapping = kwargs.get("suffix", ""), kwargs.get("data_mapping")
    arguments.suffix(suffix)
    arguments.path("output_path", output_path)
    _demand_mapping(arguments, data_mapping)
    arguments.warn()
    candidate, reference = paths
    stack = input_param.get("stack_json_path")
    request = SheetRequest(
        output=output_path,
        stack=None if stack is None else stack if stack_mode else False,
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(data=data_mapping),
        suffix=suffix,
        log_rows=log_rows,
    )
    arguments.warn_unknown(kwargs, _KNOWN)
    if is_folder_pair(candidate, reference, _PATHS):
        raise InvalidPathError(said("compare-of-folders"))
    say_what_was_not([compare_files(candidate, reference, request)], request.output)


def compare_distributed(
    npu_dump_dir: str | os.PathLike[str],
    bench_dump_dir: str | os.PathLike[str],
    output_path: str | os.PathLike[str] = "./output",
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    *,
    jobs: int | None = None,
    engine: Engine = "local",
    **kwargs: Any,
) -> None:
    """Compare the ranks of two step folders; one result for each rank, as :func:`compare` writes it.

    ``jobs`` ranks at once, in processes of this machine or on a Ray cluster.
    """
    workers = Workers(jobs, engine)
    log_rows, data_mapping = kwargs.get("is_print_compare_log", True), kwargs.get("data_mapping")
    arguments = FunctionArguments("compare_distributed")
    arguments.path("npu_dump_dir", npu_dump_dir)
    arguments.path("bench_dump_dir", bench_dump_dir)
    arguments.flags(
        stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match, is_print_compare_log=log_rows
    )
    arguments.demand(not kwargs.get("suffix"), said("suffix-is-the-rank"))
    arguments.path("output_path", output_path)
    _demand_mapping(arguments, data_mapping)
    arguments.warn()
    request = SheetRequest(
        output=output_path,
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(data=data_mapping),
        log_rows=log_rows,
        workers=workers,
    )
    arguments.warn_unknown(kwargs, _KNOWN)
    if not is_folder_pair(npu_dump_dir, bench_dump_dir, ("npu_dump_dir", "bench_dump_dir")):
        raise InvalidPathError(said("compare-distributed-of-files"))
    say_what_was_not(compare_folders(npu_dump_dir, bench_dump_dir, request), request.output)


def _demand_mapping(arguments: FunctionArguments, value: object) -> None:
    is_right = value is None or isinstance(value, (str, os.PathLike, Mapping))
    arguments.demand(is_right, said("must-be-path-or-dict", "data_mapping", type(value).__name__), WrongTypeError)
