"""``msprobe graph_visualize -tp TARGET [-gp GOLDEN] -o DIR``: a graph file, as mindstudio-probe 26.2."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msprobe.cli.graph import add_common, carry_out, mapping_of, match_of
from msprobe.foreign.console import say
from msprobe.messages import both, joined, said

if TYPE_CHECKING:
    from msprobe.graph.merge.layout import ParallelLayout
    from msprobe.graph.request import GraphRequest

_SIZES = {
    "rank_size": both("number of ranks; needs --tp and --pp", "rank 数；需要 --tp 与 --pp"),
    "tp": both("size of the tensor parallel groups", "张量并行组的大小"),
    "pp": both("stages of the pipeline", "流水线的 stage 数"),
    "vpp": both("virtual stages of each rank (1)", "每个 rank 的虚拟 stage 数（1）"),
    "order": both(
        "how ranks are numbered, what varies fastest first (tp-cp-ep-dp-pp)",
        "rank 的编号次序，变化最快的在前（tp-cp-ep-dp-pp）",
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        *("-tp", "--target_path", "--candidate"),
        required=True,
        metavar="DIR",
        help=both(
            "the dump: a folder with dump.json, with rank<N> folders, or with step<N> folders",
            "dump：含 dump.json、rank<N> 文件夹或 step<N> 文件夹的文件夹",
        ),
    )
    parser.add_argument(
        "-gp",
        "--golden_path",
        "--reference",
        metavar="DIR",
        help=both("the dump of the trusted run, to compare with", "用来比对的标杆侧 dump"),
    )
    add_common(parser, "-f")
    parser.add_argument(
        "-tensor_log",
        "--is_print_compare_log",
        action="store_true",
        help=both(
            "accepted for old command lines; has no effect, and warns of that", "为旧命令行保留；不起作用，并会提示"
        ),
    )
    parser.add_argument(
        "-progress_log",
        "--is_print_progress_log",
        action="store_true",
        help=both(
            "print lines PROGRESS: {...} at the beginning and the end, for viewers",
            "在开始与结束时打印 PROGRESS: {...} 行，供查看器使用",
        ),
    )
    merging = parser.add_argument_group(
        both("merge the ranks of each copy of the model to one graph", "把模型每个副本的各 rank 合并为一张图"),
        both(
            "One value each; with -gp two: of the dump, then of the trusted one. Statistics only.",
            "各给一个值；与 -gp 同用时给两个：先是 dump 的，再是标杆侧的。仅用于统计量。",
        ),
    )
    for name, text in _SIZES.items():
        if name == "order":
            merging.add_argument("--order", nargs="+", metavar="ORDER", help=text)
        else:
            merging.add_argument(f"--{name}", nargs="+", type=int, metavar="N", help=text)
    parser.add_argument(
        "--file_type",
        choices=("db", "json"),
        default="db",
        help=both(
            "json: write the merged ranks as a dump, step<S>/rank<R>; only with --rank_size, without -gp",
            "json：把合并后的 rank 写成 dump，step<S>/rank<R>；仅与 --rank_size 同用，且没有 -gp",
        ),
    )


def execute(args: argparse.Namespace) -> int:
    """Build or compare, and write one ``.vis.db`` for all steps and ranks."""
    from msprobe import log
    from msprobe.cli.parser import UsageError
    from msprobe.graph.request import GraphRequest

    if args.is_print_compare_log:
        log.warning(said("tensor-log-without-effect"))
    layouts = _layouts(args)
    if args.file_type == "json":
        if args.golden_path is not None:
            raise UsageError(said("merged-json-not-compared"))
        if not layouts:
            log.warning(said("json-needs-rank-size"))
    request = GraphRequest(
        candidate=args.target_path,
        reference=args.golden_path,
        output=args.output_path,
        file_type="json" if args.file_type == "json" and layouts else "db",
        fields=("--target_path", "--golden_path"),
        match=match_of(args, bool(layouts)),
        mapping=mapping_of(args),
        overflow_check=args.overflow_check,
        layouts=layouts,
    )
    if not args.is_print_progress_log:
        return carry_out(request, args.jobs)
    return _with_progress(request, args.jobs)


def _with_progress(request: GraphRequest, jobs: int | None) -> int:
    """The same, with a line of JSON at the beginning and the end, which viewers read."""
    import json

    from msprobe.errors import MsprobeError

    def progressed(percent: int, running: bool, errors: list[str]) -> None:
        content = {"current_progress": percent, "process_running": running, "error_msg": errors}
        say(f"PROGRESS: {json.dumps(content)}", flush=True)

    progressed(0, True, [])
    try:
        status = carry_out(request, jobs)
    except MsprobeError as problem:
        progressed(100, False, [problem.message])
        raise
    progressed(100, False, [])
    return status


def _layouts(args: argparse.Namespace) -> tuple[ParallelLayout, ...]:
    """The layouts of the sides. Raises UsageError or InvalidInputError."""
    from msprobe.cli.parser import UsageError
    from msprobe.graph.merge.layout import ParallelLayout

    if args.rank_size is None:
        given = [f"--{name}" for name in list(_SIZES)[1:] if getattr(args, name) is not None]
        if given:
            raise UsageError(said("needs-rank-size", joined(" and ", given)))
        return ()
    missing = [f"--{name}" for name in ("tp", "pp") if getattr(args, name) is None]
    if missing:
        raise UsageError(said("rank-size-needs-more", joined(" and ", missing), "is" if len(missing) == 1 else "are"))
    sides = 1 if args.golden_path is None else 2
    layouts = []
    for side, where in zip(range(sides), ("--target_path", "--golden_path"), strict=False):
        fields = {}
        for name in _SIZES:
            values = getattr(args, name)
            if values is None:
                continue
            if len(values) != sides:
                word = said("one-value") if sides == 1 else said("a-value-for-each-side")
                raise UsageError(said("rank-size-values", name, word, len(values)))
            fields[name] = values[side]
        layouts.append(ParallelLayout.of(fields, where))
    return tuple(layouts)
