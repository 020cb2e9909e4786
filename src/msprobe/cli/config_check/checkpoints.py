"""``msprobe config_check -c A B``: two checkpoints, parameter by parameter."""

from __future__ import annotations

import argparse
from typing import Any

from msprobe.cli import answers
from msprobe.cli.common import add_workers
from msprobe.cli.parser import UsageError
from msprobe.foreign.console import say
from msprobe.messages import both, said

DEFAULT_OUTPUT = "./ckpt_similarity.json"


def add_arguments(parser: argparse.ArgumentParser, operations: Any) -> None:
    """The options of a comparison of checkpoints."""
    group = parser.add_argument_group(
        both("comparison of checkpoints", "比对检查点"),
        both(
            f"-o is the JSON file ({DEFAULT_OUTPUT}); _summary.json and _table.csv go beside it",
            f"-o 为 JSON 文件（{DEFAULT_OUTPUT}）；_summary.json 与 _table.csv 写在其旁",
        ),
    )
    group.add_argument(
        "--name-map",
        metavar="MAP",
        default="auto",
        help=both(
            "auto: names of Megatron become those of Hugging Face if the other side has these; none; or a "
            "YAML file {name in A: name in B}, also with regular expressions",
            "auto：另一侧使用 Hugging Face 名称时，把 Megatron 的名称转换过去；none；或 YAML 文件 {A 中名称: "
            "B 中名称}，也可用正则表达式",
        ),
    )
    group.add_argument(
        "--metrics",
        choices=("classic", "full"),
        default="classic",
        help=both("full: further measures in the JSON", "full：JSON 中有更多指标"),
    )
    group.add_argument(
        "--with-optim",
        action="store_true",
        help=both("optimizer, random and other states go into the JSON, too", "优化器、随机数等状态也写入 JSON"),
    )
    group.add_argument(
        "--weights-only",
        action="store_true",
        help=both("leave out optimizer, random and other states", "略过优化器、随机数等状态"),
    )
    group.add_argument(
        "--allow-missing",
        action="store_true",
        help=both("go on if files of ranks are missing", "缺少某些 rank 的文件时仍继续"),
    )
    group.add_argument(
        "--earlier",
        metavar="CKPT",
        help=both(
            "a checkpoint older than A: tensors that B has unchanged from it are reported as stale",
            "比 A 更早的检查点：B 中与它相同的张量会报为未更新",
        ),
    )
    add_workers(
        group,
        both("processes that compare at once", "同时比对的进程数"),
    )


def is_asked(args: argparse.Namespace) -> bool:
    """True for ``-c`` with two checkpoints; packs are asked before."""
    return args.compare is not None


def execute(args: argparse.Namespace) -> int:
    """Compare, write the files, print the summary.

    1 if the checkpoints differ; 2 if they do not and something of them was not compared.
    """
    from msprobe.cli.progress import progress
    from msprobe.engine import Workers
    from msprobe.environment.checkpoint import results
    from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints
    from msprobe.environment.checkpoint.contents import SECTIONS

    first, second = args.compare
    if args.with_optim and args.weights_only:
        raise UsageError(said("checkpoint-options-exclude"))
    files = results.output_files(args.output or DEFAULT_OUTPUT)
    request = CheckpointRequest(
        first,
        second,
        names=args.name_map,
        sections=("weights",) if args.weights_only else SECTIONS,
        allow_missing=args.allow_missing,
        earlier=args.earlier,
    )
    with progress() as bar:
        result = compare_checkpoints(request, Workers(args.jobs, args.engine), bar)
    results.write(result, files, full=args.metrics == "full", with_optimizer=args.with_optim)
    answers.wrote(files)
    answers.note(differs=result.differs, coverage=result.coverage.as_json())
    for line in results.lines(result):
        say(line)
    for path in files:
        say(f"  {path}")
    return result.coverage.status(result.differs)
