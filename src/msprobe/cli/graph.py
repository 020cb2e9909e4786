"""``msprobe -f pytorch|mindspore graph -i compare.json -o DIR``: graph files, as mindstudio-probe 8.1.1."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from msprobe.cli.common import add_jobs, add_output
from msprobe.messages import both, joined, said

if TYPE_CHECKING:
    from msprobe.compare.mapping_files import LayerMapping
    from msprobe.graph.matching import Mode
    from msprobe.graph.request import GraphRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        *("-i", "--input_path"),
        required=True,
        metavar="FILE",
        help=both(
            "JSON file: npu_path is the dump, bench_path the trusted one to compare with (left out: no "
            "comparison); parallel_merge merges ranks (docs/graph.md)",
            "JSON 文件：npu_path 为 dump，bench_path 为用来比对的标杆侧（省略则不比对）；parallel_merge 合并 "
            "rank（docs/graph.md）",
        ),
    )
    add_common(parser, "-f")
    parser.add_argument(
        "-cs",
        "--complete_stack",
        action="store_true",
        help=both("keep whole call stacks, not only the line that calls", "保留完整调用栈，而不只是发起调用的那一行"),
    )
    parser.add_argument(
        "--strict-reference-values",
        action="store_true",
        help=both(
            "write exactly the numbers of mindstudio-probe 8.1.1, whose viewer's filters miss nodes with an index of 1",
            "写出与 mindstudio-probe 8.1.1 完全相同的数值；其查看器的筛选会漏掉指数为 1 的节点",
        ),
    )


def add_common(parser: argparse.ArgumentParser, short: str) -> None:
    """Add the arguments that both graph commands have. ``short``: the old name of ``-fm``."""
    add_output(
        parser,
        both("folder of the results; made if missing", "结果文件夹；没有时新建"),
        "--output_path",
        required=True,
    )
    parser.add_argument(
        *("-lm", "--layer_mapping"),
        nargs="?",
        const=True,
        metavar="YAML",
        help=both(
            "pair nodes by their place in the model; the YAML file maps names of layers that differ (docs/mappings.md)",
            "按模型中的位置匹配节点；YAML 文件给出名称不同的层的对应关系（docs/mappings.md）",
        ),
    )
    parser.add_argument(
        "-oc",
        "--overflow_check",
        action="store_true",
        help=both(
            "mark nodes with NaN or infinities, and nodes whose results are 100 times as large as their inputs",
            "标记含 NaN、无穷，或结果为输入 100 倍的节点",
        ),
    )
    names = dict.fromkeys((short, "-fm", "--fuzzy_match"))
    parser.add_argument(
        *names,
        dest="fuzzy_match",
        action="store_true",
        help=both(
            "pair modules by name and shapes, and the calls in a module by their order",
            "按名称与 shape 匹配模块，模块内的调用按次序匹配",
        ),
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help=both(
            "pair only nodes of the same name, place, types and shapes, as mindstudio-probe 8.1.1; by "
            "default calls are aligned, so that an extra call does not shift the pairs after it",
            "只匹配名称、位置、类型与 shape 都相同的节点，同 mindstudio-probe 8.1.1；默认会对齐调用，多一个调"
            "用不会使其后的匹配错位",
        ),
    )
    add_jobs(
        parser,
        both("steps and ranks that are done at once", "同时处理多少个 step 与 rank"),
    )


def execute(args: argparse.Namespace) -> int:
    """Build or compare, and write one ``.vis`` file for each step and rank."""
    from msprobe.graph.request import GraphRequest, read_compare_file

    asked = read_compare_file(args.input_path)
    request = GraphRequest(
        candidate=asked.npu_path,
        reference=asked.bench_path,
        output=args.output_path,
        file_type="vis",
        fields=("npu_path", "bench_path"),
        match=match_of(args, bool(asked.layouts)),
        mapping=mapping_of(args),
        overflow_check=args.overflow_check,
        complete_stacks=args.complete_stack,
        published_values=args.strict_reference_values,
        layouts=asked.layouts,
    )
    return carry_out(request, args.jobs)


def match_of(args: argparse.Namespace, merges: bool) -> Mode:
    """The way to pair nodes; ``merges``: ranks are merged. Raises UsageError where two are asked for."""
    from msprobe.cli.parser import UsageError

    asked = [flag for flag, given in (("--strict", args.strict), ("--fuzzy_match", args.fuzzy_match)) if given]
    if args.layer_mapping is not None:
        asked.append("--layer_mapping")
    if len(asked) > 1:
        raise UsageError(said("graph-pairings-exclude", joined(" and ", asked)))
    if merges and asked and not args.fuzzy_match:
        raise UsageError(said("graph-pairing-of-merged", asked[0]))
    return "strict" if args.strict else "fuzzy" if args.fuzzy_match else "aligned"


def mapping_of(args: argparse.Namespace) -> LayerMapping | None:
    """The layer mapping, read. Raises PathError or InvalidInputError."""
    if args.layer_mapping is None:
        return None
    from msprobe.compare.mapping_files import load_layer_mapping

    return load_layer_mapping(args.layer_mapping)


def carry_out(request: GraphRequest, jobs: int | None) -> int:
    """Build, write, and say where. ``jobs``: steps and ranks that are done at once."""
    from msprobe import log
    from msprobe.cli import answers
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.engine import Workers
    from msprobe.graph.build import build_graphs

    workers = Workers(jobs)
    usable_output(request.output)
    with progress() as bar:
        graphs = build_graphs(request, time.strftime("%Y%m%d%H%M%S"), bar, workers)
    answers.wrote(graphs.files)
    answers.note(coverage=graphs.coverage.as_json())
    for file in graphs.files:
        log.info(said("graph-written", file))
    if not graphs.coverage.is_complete:
        log.warning(graphs.coverage.sentence())
    return graphs.coverage.status(has_findings=False)
