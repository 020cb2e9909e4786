"""``msprobe monitor to-db``: monitored runs or a dump as a database; ``msprobe data2db`` of 26.2.0."""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.foreign.console import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor to-db``."""
    parser.epilog = (
        "Writes monitor_data.trend.db into the output folder; of a dump dump_data.trend.db, with the statistics of its "
        "floating tensors. One that is there is replaced. Exit status: 0 done; 1 bad input; 2 done, and "
        "a part was not read."
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="output folder of the monitor, or a dump")
    add_output(parser, "folder for the database", "--db", required=True)
    parser.add_argument(
        "--format", choices=("auto", "dump", "monitor"), default="auto", help="what the data is (auto: what is there)"
    )
    parser.add_argument("--mapping", metavar="FILE", help="JSON file of texts in names and what replaces them")
    parser.add_argument(
        "--micro_step", choices=("true", "false"), default="true", help="make each micro step a step (default: true)"
    )
    add_jobs(parser, "processes that read", "--process_num", default=1)


def execute(args: argparse.Namespace) -> int:
    """Write the database."""
    from msprobe.monitor.convert import csv_to_database, dump_to_database

    of_dump = args.format == "dump" or (args.format == "auto" and dump_to_database.is_dump(args.data))
    write = dump_to_database.dump_to_database if of_dump else csv_to_database.csv_to_database
    written = write(
        args.data,
        args.db,
        mapping=args.mapping,
        micro_step=args.micro_step == "true",
        process_num=args.process_num,
    )
    answers.wrote([written.path])
    answers.note(rows=written.rows, steps=written.steps, ranks=written.ranks)
    say(f"database: {written.path} ({written.rows} rows, {written.steps} steps, {written.ranks} ranks)")
    if not written.coverage.is_complete:
        say(written.coverage.sentence("converted"))
    return written.coverage.status(found=False)
