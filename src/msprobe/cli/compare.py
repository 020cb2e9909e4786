"""``msprobe compare``: two dumps side by side, in three forms.

- ``msprobe compare CANDIDATE REFERENCE``: the verdict (``compare_short``)
- ``msprobe -f pytorch|mindspore compare -i compare.json -o DIR``: the sheet, as mindstudio-probe 8.1.1
- ``msprobe compare -tp TARGET -gp GOLDEN -o DIR``: the sheet, as mindstudio-probe 26.2
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from msprobe.cli import compare_short
from msprobe.cli.common import add_output, add_workers
from msprobe.cli.parser import UsageError, refuse_unused
from msprobe.cli.runs import add_runs, runs_of
from msprobe.cli.statuses import COULD_NOT
from msprobe.messages import both, joined, said
from msprobe.report import formats

if TYPE_CHECKING:
    from msprobe.compare.compare_file import CompareFile
    from msprobe.compare.mapping import Mappings
    from msprobe.coverage import Coverage
    from msprobe.report.comparing import PairOutcome, SheetRequest

DEFAULT_OUTPUT = "./output"
# Of the form with -tp and -gp: what takes the place of its sheet, and the options that each of these knows.
_TOOLS = {
    "--consistent_check": ("--consistent_check", "--backend", "--xlsx", "--csv"),
    "--rank and --step": ("--rank", "--step"),
    "-da": ("-da",),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all three forms."""
    parser.usage = (
        "msprobe compare CANDIDATE REFERENCE [-o DIR] ...\n"
        "       msprobe -f {pytorch,mindspore} compare -i compare.json [-o DIR] [-s] [-c] [-f] ...\n"
        "       msprobe compare -tp TARGET -gp GOLDEN [-o DIR] [--xlsx] ..."
    )
    add_runs(
        parser,
        "dumps",
        both("candidate and reference: any two folders of dumps", "待比对侧与标杆侧：任意两个 dump 文件夹"),
        "DUMP",
    )
    otherwise = both(f"sheets: {DEFAULT_OUTPUT}", f"结果表：{DEFAULT_OUTPUT}")
    add_output(
        parser,
        both("folder of the results", "结果文件夹"),
        "--output_path",
        otherwise=otherwise,
        nargs="?",
        const=DEFAULT_OUTPUT,
    )
    for row in formats.with_flag("-i", "-tp"):
        parser.add_argument(row.flag, action="store_true", help=row.help)
    add_workers(
        parser,
        both(
            "ranks that are compared at once, and threads that read tensors",
            "同时比对多少个 rank，以及读取张量的线程数",
        ),
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="FILE",
        help=both("alg_NAME.py with a metric of your own", "含自定义指标的 alg_NAME.py"),
    )
    _add_mappings(parser)
    old = parser.add_argument_group(both("sheet, as mindstudio-probe 8.1.1", "结果表，同 mindstudio-probe 8.1.1"))
    old.add_argument(
        "-i",
        "--input_path",
        metavar="FILE",
        help=both("compare.json with npu_path and bench_path", "含 npu_path 与 bench_path 的 compare.json"),
    )
    old.add_argument(
        "-s",
        "--stack_mode",
        action="store_true",
        help=both("show the stacks of stack_path", "显示 stack_path 中的调用栈"),
    )
    old.add_argument(
        "-c",
        "--compare_only",
        action="store_true",
        help=both("no advisor", "不给出专家建议"),
    )
    newer = parser.add_argument_group(both("sheet, as mindstudio-probe 26.2", "结果表，同 mindstudio-probe 26.2"))
    newer.add_argument(
        "-tp",
        "--target_path",
        metavar="PATH",
        help=both("dump.json, debug.json or step folder", "dump.json、debug.json 或 step 文件夹"),
    )
    newer.add_argument(
        "-gp",
        "--golden_path",
        metavar="PATH",
        help=both("the same of the trusted run", "标杆侧的对应文件或文件夹"),
    )
    newer.add_argument(
        "-m",
        "--mode",
        metavar="MODE",
        default="auto",
        help=both("auto, which is the only one here", "auto，此处只有这一种"),
    )
    newer.add_argument(
        "-tensor_log",
        "--is_print_compare_log",
        action="store_true",
        help=both("a log line for each tensor", "每个张量打印一行日志"),
    )
    newer.add_argument(
        "-da",
        "--diff_analyze",
        action="store_true",
        help=both("the first result that differs by more than half, as JSON", "首个相差超过一半的结果，以 JSON 写出"),
    )
    newer.add_argument(
        "--config",
        metavar="YAML",
        help=both(
            "YAML file with matrices by which tensors are multiplied before they are compared",
            "YAML 文件：比对之前与张量相乘的矩阵",
        ),
    )
    newer.add_argument(
        "--consistent_check",
        action="store_true",
        help=both("a training against its inference engine", "比对训练与其推理引擎"),
    )
    newer.add_argument(
        "--backend",
        metavar="NAME",
        help=both("the backend of that training: fsdp or megatron", "该训练的后端：fsdp 或 megatron"),
    )
    newer.add_argument(
        "--rank",
        metavar="N,N",
        help=both("ranks of a comparison of MindSpore kernels", "比对 MindSpore kernel 时的 rank"),
    )
    newer.add_argument(
        "--step",
        metavar="N,N",
        help=both("steps of a comparison of MindSpore kernels", "比对 MindSpore kernel 时的 step"),
    )
    compare_short.add_arguments(parser)


def _add_mappings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(both("names that differ", "名称不同时"))
    group.add_argument(
        *("-f", "-fm", "--fuzzy_match"),
        dest="fuzzy_match",
        action="store_true",
        help=both("pair calls whose numbers differ", "匹配编号不同的调用"),
    )
    for short, name, what in (
        ("-cm", "--cell_mapping", both("modules", "模块")),
        ("-am", "--api_mapping", both("functions", "函数")),
        ("-lm", "--layer_mapping", both("layers", "层")),
    ):
        group.add_argument(
            short,
            name,
            nargs="?",
            const=True,
            metavar="YAML",
            help=both("names of {} that differ", "名称不同的{}", what),
        )
    group.add_argument(
        "-dm",
        "--data_mapping",
        metavar="YAML",
        help=both("which tensor corresponds to which", "张量的对应关系"),
    )


def execute(args: argparse.Namespace) -> int:
    """Compare in the form that was asked for."""
    args.dumps = runs_of(args, args.dumps)
    forms = {
        "two dumps": bool(args.dumps),
        "-i": args.input_path is not None,
        "-tp and -gp": args.target_path is not None or args.golden_path is not None,
    }
    asked = [form for form, given in forms.items() if given]
    if not asked and args.framework is None:
        raise UsageError(said("nothing-to-compare"))
    if len(asked) != 1:
        asked_text = said("found-these", ", ".join(asked)) if asked else said("found-none-of-them")
        raise UsageError(said("compare-form-unclear", asked_text))
    if args.dumps:
        return compare_short.short_form(args)
    form: formats.Form = "-tp" if args.input_path is None else "-i"
    foreign = [row.flag for row in formats.with_flag() if form not in row.forms]
    for flag in (*foreign, "--all-steps", "--fail-on", "--noise", "--layout"):
        if getattr(args, flag.strip("-").replace("-", "_")):
            raise UsageError(said("option-of-two-dumps", flag))
    chosen = [row for row in formats.with_flag(form) if getattr(args, row.word)]
    if len(chosen) > 1:
        raise UsageError(said("options-exclude", joined(" and ", (row.flag for row in chosen))))
    sheet = chosen[0] if chosen else formats.default_sheet(form)
    from msprobe.cli.output_folder import usable_output

    usable_output(args.output_path or DEFAULT_OUTPUT)
    return _by_file(args, sheet.word) if form == "-i" else _by_paths(args, sheet.word)


def _given(args: argparse.Namespace) -> dict[str, object]:
    """Of each option that not all forms and tools know: what is given, which is false where it is not."""
    return {
        "-s": args.stack_mode,
        "-c": args.compare_only,
        "-f": args.fuzzy_match,
        "-cm": args.cell_mapping,
        "-am": args.api_mapping,
        "-lm": args.layer_mapping,
        "-dm": args.data_mapping,
        "--metric": args.metric,
        "--jobs": args.jobs is not None,
        "--engine": args.engine != "local",
        "-m": args.mode != "auto",
        "-tensor_log": args.is_print_compare_log,
        "-da": args.diff_analyze,
        "--config": args.config is not None,
        "--consistent_check": args.consistent_check,
        "--backend": args.backend is not None,
        "--rank": args.rank is not None,
        "--step": args.step is not None,
        **{row.flag: getattr(args, row.word) for row in formats.with_flag("-i", "-tp")},
    }


def _by_file(args: argparse.Namespace, sheet: str) -> int:
    from msprobe.compare.compare_file import load_compare_file

    newer = ("-m", "-tensor_log", "-da", "--config", "--consistent_check", "--backend", "--rank", "--step")
    refuse_unused(
        {flag: _given(args)[flag] for flag in newer},
        both("only the form with -tp and -gp has it, not -i", "只有 -tp 与 -gp 的形式有它，-i 没有"),
    )
    asked = load_compare_file(args.input_path)
    _warn_of_idle_fields(asked, str(args.input_path))
    if asked.rank_id is not None or asked.common:
        return _mindspore_tools(args, asked)
    mappings = _mappings(args, _framework(args, asked.npu_path), newer=False)
    request = _request(
        args,
        form="8.1.1",
        file_format=sheet,
        stack=_stack_choice(asked.stack_path, args.stack_mode),
        advise=not args.compare_only,
        log_rows=asked.is_print_compare_log,
        mappings=mappings,
    )
    return _compare(asked.npu_path, asked.bench_path, request, ("npu_path", "bench_path"))


def _by_paths(args: argparse.Namespace, sheet: str) -> int:
    from msprobe.compare.multiplications import read_multiplications
    from msprobe.compare.problems import InvalidArgumentError

    if args.target_path is None or args.golden_path is None:
        raise UsageError(said("target-without-golden"))
    if args.mode != "auto":
        raise InvalidArgumentError(said("mode-not-available", args.mode))
    for flag, given in (("-i's -s", args.stack_mode), ("-i's -c", args.compare_only)):
        if given:
            raise InvalidArgumentError(said("option-of-input-form", flag))
    for tool, known in _TOOLS.items():
        given = _given(args)
        if any(given[flag] for flag in known[:2]):
            refuse_unused(
                {flag: given[flag] for flag in given if flag not in known},
                both("has no effect beside {}", "与 {} 同用不起作用", tool),
            )
    if args.consistent_check or args.backend is not None:
        return _consistent(args, sheet)
    if args.rank is not None or args.step is not None:
        ranks, steps = _numbers(args.rank, "--rank"), _numbers(args.step, "--step")
        return _kernels(args.target_path, args.golden_path, args, ranks, steps)
    if args.diff_analyze:
        from msprobe.cli.progress import progress
        from msprobe.report.first_difference import find_first_difference

        with progress() as bar:
            output = args.output_path or DEFAULT_OUTPUT
            first_difference = find_first_difference(args.target_path, args.golden_path, output, bar)
        return first_difference.coverage.status(has_findings=False)
    request = _request(
        args,
        form="26.2",
        file_format=sheet,
        stack=None,
        advise=False,
        log_rows=args.is_print_compare_log,
        mappings=_mappings(args, _framework(args, args.target_path), newer=True),
        multiplications=None if args.config is None else read_multiplications(args.config),
    )
    return _compare(args.target_path, args.golden_path, request, ("-tp", "-gp"))


def _consistent(args: argparse.Namespace, sheet: str) -> int:
    """A training against its inference engine."""
    from msprobe.report.consistent_sheet import consistent_check

    if not args.consistent_check:
        raise UsageError(said("backend-without-consistent-check"))
    output = args.output_path or DEFAULT_OUTPUT
    return consistent_check(args.target_path, args.golden_path, output, args.backend, sheet).coverage.status(
        has_findings=False
    )


def _request(args: argparse.Namespace, **more: Any) -> SheetRequest:
    from msprobe.engine import Workers
    from msprobe.report.comparing import SheetRequest

    workers = Workers(args.jobs, args.engine)
    if args.fuzzy_match and more["mappings"]:
        from msprobe import log

        log.warning(said("fuzzy-beside-mapping"))
    if args.metric:
        from msprobe.compare.own_metrics import load_own_metrics
        from msprobe.compare.table import header_of

        more["own_metrics"] = load_own_metrics(args.metric, header_of("tensor", more["form"], with_stack=True))
    return SheetRequest(output=args.output_path or DEFAULT_OUTPUT, fuzzy=args.fuzzy_match, workers=workers, **more)


def _stack_choice(stack_path: str | None, stack_mode: bool) -> str | bool | None:
    """The stacks to show: a named file if -s asks for it; without one, those beside the target."""
    if stack_path is None:
        return None
    return stack_path if stack_mode else False


def _compare(candidate: str, reference: str, request: SheetRequest, fields: tuple[str, str]) -> int:
    from msprobe.cli.progress import progress
    from msprobe.compare.sides import is_folder_pair
    from msprobe.report.comparing import compare_files, compare_folders, say_what_was_not

    with progress() as bar:
        if is_folder_pair(candidate, reference, fields):
            outcomes = compare_folders(candidate, reference, request, bar)
        else:
            bar(said("tensors-compared"))
            outcomes = [compare_files(candidate, reference, request)]
    return _status(outcomes, say_what_was_not(outcomes, request.output))


def _status(outcomes: list[PairOutcome], covered: Coverage) -> int:
    from msprobe import log

    compared = [outcome for outcome in outcomes if outcome.files]
    if compared and all(outcome.nothing_matches for outcome in compared):
        log.error(said("no-row-has-partner"))
        return COULD_NOT
    return covered.status(has_findings=False)


def _framework(args: argparse.Namespace, candidate: str) -> str:
    """The framework of the candidate: asked for, or read from its dump where a mapping needs to know."""
    if args.framework is not None:
        return str(args.framework)
    if not any((args.cell_mapping, args.api_mapping, args.layer_mapping)):
        return "pytorch"
    from msprobe.compare.frameworks import framework_of
    from msprobe.store.reader import open_dump

    dump = open_dump(candidate)
    step = dump.steps[0]
    return framework_of(dump.part(step, dump.ranks(step)[0]))


def _mappings(args: argparse.Namespace, framework: str, newer: bool) -> Mappings:
    from msprobe.compare.mapping import load_mappings
    from msprobe.compare.problems import TaskMismatchError

    if framework == "pytorch":
        only = {"-cm": args.cell_mapping and not newer, "-am": args.api_mapping, "-lm": args.layer_mapping}
        wrong = [flag for flag, given in only.items() if given]
        if wrong:
            raise TaskMismatchError(said("mappings-between-frameworks", ", ".join(wrong)))
    return load_mappings(data=args.data_mapping, api=args.api_mapping, cell=args.cell_mapping, layer=args.layer_mapping)


def _warn_of_idle_fields(asked: CompareFile, name: str) -> None:
    """Warn of fields that change nothing beside the others of the file."""
    from msprobe import log

    kernels = asked.rank_id is not None
    points = asked.common and not kernels
    idle = {
        "common": (
            asked.common and kernels,
            both("beside rank_id, which asks for kernels", "在给出 rank_id（比对 kernel）时"),
        ),
        "step_id": (asked.step_id is not None and not kernels, both("without rank_id", "在没有 rank_id 时")),
        "map_dict": (asked.map_dict is not None and not points, both("without common true", "在 common 不为 true 时")),
        "stack_path": (
            asked.stack_path is not None and (kernels or points),
            both("for kernels and points of graphs", "对图的 kernel 与点"),
        ),
    }
    for field, (is_idle, where) in idle.items():
        if is_idle:
            log.warning(said("compare-field-without-effect", name, field, where))


def _mindspore_tools(args: argparse.Namespace, asked: CompareFile) -> int:
    """Kernels (``rank_id``) or single points (``common``) of MindSpore graphs."""
    from msprobe.compare.problems import InvalidArgumentError

    if args.framework != "mindspore":
        field = "rank_id" if asked.rank_id is not None else "common"
        raise InvalidArgumentError(said("field-of-mindspore-graphs", args.input_path, field))
    refuse_unused(
        _given(args),
        both(
            "has no effect if {} compares kernels or points of MindSpore graphs",
            "{} 比对 MindSpore 图的 kernel 或点时不起作用",
            args.input_path,
        ),
    )
    if asked.rank_id is not None:
        return _kernels(asked.npu_path, asked.bench_path, args, asked.rank_id, asked.step_id or ())
    from msprobe.report.graph_sheets import compare_points

    compare_points(asked.npu_path, asked.bench_path, args.output_path or DEFAULT_OUTPUT, asked.map_dict)
    return 0


def _kernels(
    candidate: str, reference: str, args: argparse.Namespace, ranks: tuple[int, ...], steps: tuple[int, ...]
) -> int:
    from msprobe.report.graph_sheets import compare_kernels

    compare_kernels(candidate, reference, args.output_path or DEFAULT_OUTPUT, ranks, steps)
    return 0


def _numbers(text: str | None, flag: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(said("numbers-expected", flag, text)) from None
