"""``msprobe monitor to-db``: monitored runs or a dump as a database; ``msprobe data2db`` of 26.2.0."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor to-db``."""
    parser.epilog = both(
        "Writes monitor_data.trend.db into the output folder; for a dump dump_data.trend.db, with the "
        "statistics of its floating-point tensors. An existing database is replaced. The exit status is "
        "also 2 if the database was written and not all of the input could be read.",
        "向输出文件夹写出 monitor_data.trend.db；对 dump 则为 dump_data.trend.db，含其浮点张量的统计量。"
        "已有的数据库会被替换。数据库已写出、但输入没有全部读取时，退出码也是 2。",
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help=both("output folder of the monitor, or a dump", "监控的输出文件夹，或 dump"),
    )
    add_output(
        parser,
        both("folder for the database", "数据库的文件夹"),
        "--db",
        required=True,
    )
    parser.add_argument(
        "--format",
        choices=("auto", "dump", "monitor"),
        default="auto",
        help=both("kind of the data (auto: what is found)", "数据的种类（auto：按实际内容）"),
    )
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        help=both("JSON file {text in a name: replacement}", "JSON 文件 {名称中的文本: 替换为}"),
    )
    parser.add_argument(
        "--micro_step",
        choices=("true", "false"),
        default="true",
        help=both("make each micro step a step (default: true)", "把每个 micro step 作为一个 step（默认 true）"),
    )
    add_jobs(
        parser,
        both("processes that read", "读取的进程数"),
        "--process_num",
        default=1,
    )


def execute(args: argparse.Namespace) -> int:
    """Write the database."""
    from msprobe.monitor.convert import csv_to_database, dump_to_database

    is_dump = args.format == "dump" or (args.format == "auto" and dump_to_database.is_dump(args.data))
    write = dump_to_database.dump_to_database if is_dump else csv_to_database.csv_to_database
    written = write(
        args.data,
        args.db,
        mapping=args.mapping,
        micro_step=args.micro_step == "true",
        process_num=args.process_num,
    )
    answers.wrote([written.path])
    answers.note(rows=written.rows, steps=written.steps, ranks=written.ranks)
    say(translated(said("monitor-database", written.path, written.rows, written.steps, written.ranks)))
    if not written.coverage.is_complete:
        say(translated(written.coverage.sentence("converted")))
    return written.coverage.status(has_findings=False)
