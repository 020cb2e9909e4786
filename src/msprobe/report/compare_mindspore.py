"""``ms_compare``, as scripts for mindstudio-probe 8.1.1 call it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msprobe import log
from msprobe.compare.mapping import load_mappings
from msprobe.compare.problems import InvalidArgumentError, WrongTypeError
from msprobe.compare.sides import is_folder_pair
from msprobe.report.comparing import Request, compare_files, compare_folders

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
    if not isinstance(input_param, Mapping):
        raise WrongTypeError(f"ms_compare: input_param must be a dict, found a {type(input_param).__name__}.")
    if not isinstance(output_path, (str, os.PathLike)):
        raise WrongTypeError(f"ms_compare: output_path must be a path, found a {type(output_path).__name__}.")
    flags = {"stack_mode": stack_mode, "auto_analyze": auto_analyze, "fuzzy_match": fuzzy_match}
    flags["is_print_compare_log"] = input_param.get("is_print_compare_log", True)
    mistakes = [f"{name} = {value!r} must be True or False" for name, value in flags.items() if type(value) is not bool]
    paths = {field: input_param.get(field) for field in ("npu_json_path", "bench_json_path")}
    mistakes += [
        f'field "{field}" of input_param must be the path of a dump.json, found {value!r}'
        for field, value in paths.items()
        if not isinstance(value, (str, os.PathLike)) or not os.fspath(value)
    ]
    suffix = kwargs.get("suffix", "")
    if not isinstance(suffix, str) or "/" in suffix:
        mistakes.append(f"suffix must be a word for a file name, found {suffix!r}")
    if mistakes:
        raise InvalidArgumentError(f"ms_compare: {'; '.join(mistakes)}.")
    unknown = [name for name in kwargs if name not in _KNOWN]
    if unknown:
        log.warning(f"ms_compare: {', '.join(unknown)} not known, so not used; known are {', '.join(_KNOWN)}.")
    stack = input_param.get("stack_json_path")
    request = Request(
        output=output_path,
        stack=None if stack is None else stack if stack_mode else False,
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(**{name.removesuffix("_mapping"): kwargs.get(name) for name in _MAPPINGS}),
        suffix=suffix,
        log_rows=flags["is_print_compare_log"],
    )
    candidate, reference = (os.fspath(value) for value in paths.values() if value is not None)
    if is_folder_pair(candidate, reference, ("npu_json_path", "bench_json_path")):
        compare_folders(candidate, reference, request)
    else:
        compare_files(candidate, reference, request)
