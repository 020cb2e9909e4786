"""``msprobe monitor to-db``: monitored runs as a database; ``msprobe data2db`` of mindstudio-probe 26.2.0."""

from __future__ import annotations

import argparse

from msprobe.foreign.console import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``msprobe monitor to-db``."""
    parser.epilog = "Writes monitor_data.trend.db into the output folder; one that is there is replaced."
    parser.add_argument("--data", required=True, metavar="DIR", help="output folder of the monitor")
    parser.add_argument("--db", required=True, metavar="DIR", help="folder for the database")
    parser.add_argument("--format", choices=("auto", "dump", "monitor"), default="auto", help="what the data is")
    parser.add_argument("--mapping", metavar="FILE", help="JSON file of texts in names and what replaces them")
    parser.add_argument(
        "--micro_step", choices=("true", "false"), default="true", help="make each micro step a step (default: true)"
    )
    parser.add_argument("--process_num", type=int, default=1, metavar="N", help="processes that read (default: 1)")


def execute(args: argparse.Namespace) -> int:
    """Write the database."""
    from msprobe.errors import NotAvailableError
    from msprobe.monitor.convert.csv_to_database import csv_to_database

    if args.format == "dump":
        raise NotAvailableError("this version writes data of the monitor only; use --format monitor.")
    written = csv_to_database(
        args.data,
        args.db,
        mapping=args.mapping,
        micro_step=args.micro_step == "true",
        process_num=args.process_num,
    )
    say(f"database: {written.path} ({written.rows} rows, {written.steps} steps, {written.ranks} ranks)")
    return 0
