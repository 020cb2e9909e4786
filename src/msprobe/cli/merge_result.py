"""``msprobe merge_result``: the results of several ranks in one workbook."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.foreign.console import say
from msprobe.messages import both, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe merge_result``."""
    parser.epilog = both(
        "The configuration is a YAML file: api: a list of names (Torch, Torch.mul, Torch.mul.0, "
        "Torch.mul.0.forward); compare_index: a list of metrics, all if left out.",
        "配置为 YAML 文件：api：名称列表（Torch、Torch.mul、Torch.mul.0、Torch.mul.0.forward）；"
        "compare_index：指标列表，省略则为全部。",
    )
    parser.add_argument(
        "-i",
        "--input_dir",
        required=True,
        metavar="DIR",
        help=both("folder with the results of compare", "含 compare 结果的文件夹"),
    )
    add_output(
        parser,
        both("folder to write to", "写出的文件夹"),
        "--output_dir",
        required=True,
    )
    parser.add_argument(
        "-config",
        "--config-path",
        required=True,
        metavar="YAML",
        help=both("YAML file: names and metrics to merge", "YAML 文件：要合并的名称与指标"),
    )


def execute(args: argparse.Namespace) -> int:
    """Merge, and say where the result is and what is not in it; 2 if a rank or a name is missing."""
    from msprobe.report.merged_sheet import merge_with_coverage

    path, covered = merge_with_coverage(args.input_dir, args.output_dir, args.config_path)
    answers.wrote([path])
    answers.note(coverage=covered.as_json())
    counted = ", ".join(f"{count} {word}" for word, count in covered.read.items())
    say(f"merged results: {path} ({counted})")
    if not covered.is_complete:
        say(translated(covered.sentence("merged")))
    return covered.status(has_findings=False)
