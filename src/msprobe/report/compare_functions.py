"""``compare`` and ``compare_distributed``, as scripts for mindstudio-probe 8.1.1 call them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msprobe import log
from msprobe.compare.mapping import load_mappings
from msprobe.compare.problems import InvalidArgumentError, InvalidPathError, WrongTypeError
from msprobe.compare.sides import is_folder_pair
from msprobe.engine import Engine, Workers
from msprobe.report.comparing import Request, compare_files, compare_folders

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
    if not isinstance(input_param, Mapping):
        raise WrongTypeError(f"compare: input_param must be a dict, found {_kind(input_param)}.")
    log_rows = input_param.get("is_print_compare_log", True)
    _check_flags(
        stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match, is_print_compare_log=log_rows
    )
    suffix = kwargs.get("suffix", "")
    if not isinstance(suffix, str) or "/" in suffix:
        raise InvalidArgumentError(f"compare: suffix must be a word for a file name, found {suffix!r}.")
    candidate, reference = (_path_of(input_param, field) for field in ("npu_json_path", "bench_json_path"))
    stack = input_param.get("stack_json_path")
    request = Request(
        output=_output(output_path),
        stack=None if stack is None else stack if stack_mode else False,
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(data=_data_mapping(kwargs)),
        suffix=suffix,
        log_rows=log_rows,
    )
    _warn_unknown("compare", kwargs)
    if is_folder_pair(candidate, reference, ("npu_json_path", "bench_json_path")):
        raise InvalidPathError("compare: both paths are folders; use compare_distributed for them.")
    compare_files(candidate, reference, request)


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
    log_rows = kwargs.get("is_print_compare_log", True)
    _check_flags(
        stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match, is_print_compare_log=log_rows
    )
    if kwargs.get("suffix"):
        raise InvalidArgumentError("compare_distributed: suffix is the name of the rank here; leave it out.")
    request = Request(
        output=_output(output_path),
        advise=auto_analyze,
        fuzzy=fuzzy_match,
        mappings=load_mappings(data=_data_mapping(kwargs)),
        log_rows=log_rows,
        workers=workers,
    )
    _warn_unknown("compare_distributed", kwargs)
    if not is_folder_pair(npu_dump_dir, bench_dump_dir, ("npu_dump_dir", "bench_dump_dir")):
        raise InvalidPathError("compare_distributed: both paths are files; use compare for them.")
    compare_folders(npu_dump_dir, bench_dump_dir, request)


def _check_flags(**flags: object) -> None:
    wrong = [f"{name} = {value!r}" for name, value in flags.items() if not isinstance(value, bool)]
    if wrong:
        raise InvalidArgumentError(f"compare: {', '.join(wrong)}; must be True or False.")


def _path_of(input_param: Mapping[str, Any], field: str) -> str:
    value = input_param.get(field)
    if not value:
        raise InvalidPathError(f'compare: field "{field}" of input_param is missing; give the path of a dump.json.')
    if not isinstance(value, (str, os.PathLike)):
        raise InvalidPathError(f'compare: field "{field}" of input_param must be a path, found {_kind(value)}.')
    return os.fspath(value)


def _output(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise WrongTypeError(f"compare: output_path must be a path, found {_kind(path)}.")
    return os.fspath(path)


def _data_mapping(kwargs: Mapping[str, Any]) -> Any:
    found = kwargs.get("data_mapping")
    if found is not None and not isinstance(found, (str, os.PathLike, Mapping)):
        raise WrongTypeError(f"compare: data_mapping must be a path or a dict, found {_kind(found)}.")
    return found


def _warn_unknown(function: str, kwargs: Mapping[str, Any]) -> None:
    unknown = [name for name in kwargs if name not in _KNOWN]
    if unknown:
        log.warning(f"{function}: {', '.join(unknown)} not known, so not used; known are {', '.join(_KNOWN)}.")


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
