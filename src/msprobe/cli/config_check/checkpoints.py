"""``msprobe config_check -c A B``: two checkpoints, parameter by parameter."""

from __future__ import annotations

import argparse
from typing import Any

from msprobe.cli import answers
from msprobe.cli.common import add_workers
from msprobe.cli.parser import UsageError
from msprobe.foreign.console import say
from msprobe.messages import said

DEFAULT_OUTPUT = "./ckpt_similarity.json"


def add_arguments(parser: argparse.ArgumentParser, operations: Any) -> None:
    """The options of a comparison of checkpoints."""
    group = parser.add_argument_group(
        "comparison of checkpoints",
        f"-o is the JSON file ({DEFAULT_OUTPUT}); _summary.json and _table.csv go beside it",
    )
    group.add_argument(
        "--name-map",
        metavar="MAP",
        default="auto",
        help="auto: Megatron's names become those of Hugging Face where the other side has these; none; or a YAML file "
        "{name in A: name in B}, regular expressions too",
    )
    group.add_argument(
        "--metrics", choices=("classic", "full"), default="classic", help="full: further measures in the JSON"
    )
    group.add_argument(
        "--with-optim", action="store_true", help="optimizer, random and other states go into the JSON, too"
    )
    group.add_argument("--weights-only", action="store_true", help="leave out optimizer, random and other states")
    group.add_argument("--allow-missing", action="store_true", help="go on where files of ranks are missing")
    group.add_argument(
        "--earlier", metavar="CKPT", help="a checkpoint from before A: what B has unchanged of it is called stale"
    )
    add_workers(group, "processes that compare at once")


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
    from msprobe.environment.checkpoint.comparison import Request, compare_checkpoints
    from msprobe.environment.checkpoint.contents import SECTIONS

    first, second = args.compare
    if args.with_optim and args.weights_only:
        raise UsageError(said("checkpoint-options-exclude"))
    files = results.output_files(args.output or DEFAULT_OUTPUT)
    request = Request(
        first,
        second,
        names=args.name_map,
        sections=("weights",) if args.weights_only else SECTIONS,
        allow_missing=args.allow_missing,
        earlier=args.earlier,
    )
    with progress() as tell:
        result = compare_checkpoints(request, Workers(args.jobs, args.engine), tell)
    results.write(result, files, full=args.metrics == "full", with_optimizer=args.with_optim)
    answers.wrote(files)
    answers.note(differs=result.differs, coverage=result.coverage.as_json())
    for line in results.lines(result):
        say(line)
    for path in files:
        say(f"  {path}")
    return result.coverage.status(result.differs)
