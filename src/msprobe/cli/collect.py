"""``msprobe collect FOLDER ... -o DIR``: the ranks of several machines as one dump, without copying any but those of
object storage.
"""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.foreign.console import say

#: Its paths may be URLs.
TAKES_URLS = True
_EPILOG = """\
For dumps that were written to local disks: each FOLDER has the ranks of one machine. DIR becomes a dump of symbolic
links to all of them, which every command takes. Exit status 2 if ranks are missing that other steps have, or below the
largest. Folders that were copied to one place need no such links if ranks do
not overlap: copy them into one folder (rsync -a node1/dump/ node2/dump/ all/).
A URL of object storage (s3://bucket/run, or another that fsspec knows) is copied into DIR, what is a dump of it and if
the disk has room: pip install 'msprobe-debugger[objects]' brings fsspec and s3fs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="folder of a dump, or of one step of it; or its URL (s3://bucket/run)",
    )
    add_output(parser, "folder of the collected dump, new or empty", "--output_path", required=True)


def execute(args: argparse.Namespace) -> int:
    """Make the links, and say what is there and what is missing."""
    from msprobe.coverage import Coverage, NotRead
    from msprobe.diagnose.places import ranks_in_words
    from msprobe.report.letters import printable
    from msprobe.store.collecting import collect

    done = collect(args.folders, args.output_path)
    answers.wrote([done.folder])
    answers.note(
        ranks=list(done.ranks), steps=list(done.steps), missing={str(k): list(v) for k, v in done.missing.items()}
    )
    say(f"{printable(str(done.folder))}: ranks {printable(ranks_in_words(done.ranks))} of {len(done.steps)} steps")
    missing = []
    for step, ranks in done.missing.items():
        where = "" if step is None else f"step {step}: "
        missing.append(NotRead(f"{where}rank {ranks_in_words(ranks)}", "not recorded, or its folder was not given"))
    covered = Coverage({"parts": done.parts, "steps": len(done.steps)}, tuple(missing))
    if missing:
        say(printable(covered.sentence("collected")))
    return covered.status(found=False)
