"""``msprobe op_check``: check PyTorch's own samples of each operator on a device; no dump is needed."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.cli.parser import UsageError, seconds
from msprobe.cli.run_ut import STANDARDS, demand_control
from msprobe.foreign.console import say
from msprobe.messages import both, said


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--ops",
        default="",
        metavar="A,B",
        help=both("names of operators: matmul,softmax (all)", "算子名称：matmul,softmax（全部）"),
    )
    parser.add_argument(
        "--candidate",
        default="auto",
        metavar="WHO",
        help=both(
            "the device that is checked; `msprobe run_ut -h` lists what can be given",
            "要检查的设备；可给出的值见 `msprobe run_ut -h`",
        ),
    )
    parser.add_argument(
        "--control",
        default="",
        metavar="WHO",
        help=both(
            "the trusted device, whose errors are allowed; or the details file of a check made there",
            "标杆设备，其误差视为允许；或在该设备上检查得到的 details 文件",
        ),
    )
    parser.add_argument(
        "--dtypes",
        default="fp32",
        metavar="A,B",
        help=both("types of the samples: fp32,bf16,fp16 (fp32)", "样本的类型：fp32,bf16,fp16（fp32）"),
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=3,
        metavar="N",
        help=both("samples of each operator and type (3)", "每个算子与类型的样本数（3）"),
    )
    add_output(
        parser,
        both("folder of the results", "结果文件夹"),
        "--out_path",
        default="./",
    )
    add_jobs(
        parser,
        both("worker processes, 1 to 64", "工作进程数，1 至 64"),
        "--num_splits",
        "-n",
        default=1,
        most=64,
    )
    parser.add_argument(
        "--standard",
        choices=STANDARDS,
        default="strict",
        help=both("the standard by which results are judged (strict)", "判定结果的标准（strict）"),
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1234,
        help=both("random seed of the samples (1234)", "样本的随机种子（1234）"),
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=600.0,
        metavar="S",
        help=both("seconds for one sample (600)", "一个样本的最长秒数（600）"),
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="K",
        help=both("failed samples that are shown (10)", "显示多少个失败的样本（10）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Check the samples, print what was found."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.precheck.executors import executor_of
    from msprobe.precheck.job import Task
    from msprobe.precheck.sample_check import check_samples
    from msprobe.precheck.side.words import DTYPES
    from msprobe.report.phrases import clean

    unknown = [name for name in args.dtypes.split(",") if name not in DTYPES]
    if unknown:
        raise UsageError(said("op-check-dtype-unknown", ", ".join(unknown), ", ".join(DTYPES)))
    if args.samples < 1 or not 1 <= args.num_splits <= 64:
        raise UsageError(said("op-check-numbers"))
    if ":" in args.ops:
        raise UsageError(said("op-check-names", args.ops))
    executor_of(args.candidate)
    demand_control(args.control, args.standard)
    folder = usable_output(args.out_path)
    task = Task(
        f"{args.ops}:{args.dtypes}:{args.samples}",
        standard=args.standard,
        candidate=args.candidate,
        control=args.control,
        seed=args.seed,
        kind="samples",
    )
    with progress("checking") as bar:
        paths, ranking = check_samples(task, folder, args.num_splits, args.timeout, bar)
    answers.wrote(paths)
    answers.note(is_error=ranking.is_error, lines=ranking.lines(args.top))
    for line in ranking.lines(args.top):
        say(clean(line))
    for path in paths:
        say(clean(f"  {path}"))
    covered = ranking.coverage
    if not args.ops and covered.read:
        return int(ranking.is_error)  # of all operators there are some that a machine or a type does not have
    return covered.status(ranking.is_error)
