"""``ms_compare``, as scripts for mindstudio-probe 8.1.1 call it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msprobe.compare.mapping import load_mappings
from msprobe.compare.problems import InvalidArgumentError
from msprobe.compare.sides import is_folder_pair
from msprobe.report.comparing import SheetRequest, compare_files, compare_folders, say_what_was_not
from msprobe.report.function_arguments import FunctionArguments

_PATHS = ("npu_json_path", "bench_json_path")
_MAPPINGS = ("data_mapping", "api_mapping", "cell_mapping", "layer_mapping")
_KNOWN = (*_MAPPINGS, "suffix", "is_print_compare_log")


def ms_compare(
    input_param: Mapping[str, Any],
    output_path: str | os.PathLike[str] = "./output",
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    **kwargs: Any,
) -> None:
    """Compare a dump of MindSpore with another one, of MindSpore or PyTorch: two ``dump.json`` or two folders of ranks.

    As :func:`msprobe.pytorch.compare`, with the keywords ``cell_mapping``, ``api_mapping`` and ``layer_mapping``
    besides ``data_mapping``: the path of a YAML file, its content, or (but for data_mapping) True for none.

    Raises the errors of :mod:`msprobe.compare.problems` and PathError; then nothing was written.
    """
    arguments = FunctionArguments("ms_compare")
    paths = arguments.fields(input_param, _PATHS, InvalidArgumentError)
    log_rows = input_param.get("is_print_compare_log", True) if isinstance(input_param, Mapping) else True
    arguments.path("output_path", output_path)
    arguments.flags(
        stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match, is_print_compare_log=log_rows
    )
    suffix = kwargs.get("suffix", "")
    arguments.suffix(suffix)
    arguments.warn()
    arguments.warn_unknown(kwargs, _KNOWN)
    candidate, reference = paths
    stack = input_param.get("stack_json_path")
    request = SheetRequest(
        output=output_path,
        stack=None if stack is None else stack if stack_mode else False,
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(**{name.removesuffix("_mapping"): kwargs.get(name) for name in _MAPPINGS}),
        suffix=suffix,
        log_rows=log_rows,
    )
    if is_folder_pair(candidate, reference, _PATHS):
        say_what_was_not(compare_folders(candidate, reference, request), request.output)
    else:
        say_what_was_not([compare_files(candidate, reference, request)], request.output)
