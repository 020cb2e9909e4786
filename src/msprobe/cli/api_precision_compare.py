"""``msprobe api_precision_compare``: the details files of two checks, one of them of a device that is trusted."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.cli.parser import UsageError, add_fail_on
from msprobe.cli.run_ut import STANDARDS
from msprobe.cli.statuses import CLEAN, FOUND
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-npu",
        "--npu_csv_path",
        "--candidate",
        required=True,
        metavar="FILE",
        help=both(
            "accuracy_checking_details_*.csv of the device that is doubted",
            "待比对设备的 accuracy_checking_details_*.csv",
        ),
    )
    parser.add_argument(
        "-gpu",
        "--gpu_csv_path",
        "--reference",
        required=True,
        metavar="FILE",
        help=both(
            "accuracy_checking_details_*.csv of the trusted device", "标杆设备的 accuracy_checking_details_*.csv"
        ),
    )
    add_output(
        parser,
        both("folder of the results", "结果文件夹"),
        "--out_path",
        default="./",
    )
    parser.add_argument(
        "--standard",
        choices=[name for name in STANDARDS if name != "assert_close"],
        default="strict",
        help=both(
            "strict (default) counts errors of the trusted device from a few units of rounding on; 8.1.1 and "
            "26.2 count none below 2**-14 in fp32; compiler judges by the root mean square error, for files "
            "made with that standard",
            "strict（默认）从几个舍入单位起就计入标杆设备的误差；8.1.1 与 26.2 在 fp32 下不计小于 2**-14 的误"
            "差；compiler 按均方根误差判定，用于以该标准生成的文件",
        ),
    )
    add_fail_on(
        parser,
        both("an error", "错误"),
    )
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="K",
        help=both("results with errors that are shown (10)", "显示多少个有误差的结果（10）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Compare the two, print what was found and where the files are."""
    if args.top < 0:
        raise UsageError(said("top-negative"))
    from msprobe import coverage
    from msprobe.cli.output_folder import usable_output
    from msprobe.precheck.precision_compare import coverage_of, judged, lines, write
    from msprobe.report.phrases import clean

    usable_output(args.out_path)
    rows = judged(args.npu_csv_path, args.gpu_csv_path, args.standard)
    covered = coverage_of(rows, args.gpu_csv_path)
    paths = write(rows, args.out_path)
    for line in lines(rows, args.top):
        say(clean(line))
    if not covered.is_complete:
        say(clean(translated(covered.sentence())))
    in_json = paths[0].with_name(paths[0].name.replace("_result_", "_coverage_")).with_suffix(".json")
    written = (*paths, coverage.write(covered, in_json))
    answers.wrote(written)
    answers.note(coverage=covered.as_json())
    for path in written:
        say(clean(f"  {path}"))
    has_errors = any(row.status == "error" for row in rows)
    return FOUND if has_errors and args.fail_on == "found" else CLEAN
