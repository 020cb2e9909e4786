"""``msprobe collect FOLDER ... -o DIR``: the ranks of several machines as one dump, without copying any but those of
object storage.
"""

from __future__ import annotations

import argparse

from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

#: Its paths may be URLs.
TAKES_URLS = True
_EPILOG = both(
    "For dumps that were written to local disks: each FOLDER has the ranks of one machine. DIR "
    "becomes a dump of symbolic links to all of them, which every command takes. The exit status is "
    "2 if a step lacks ranks that other steps have, or if a rank below the largest is missing.\n\n"
    "Folders that were copied to one place need no links if their ranks do not overlap: copy them "
    "into one folder (rsync -a node1/dump/ node2/dump/ all/).\n\nFrom a URL of object storage "
    "(s3://bucket/run, or any other that fsspec knows), the files of the dump are copied into DIR if "
    "the disk has room; pip install 'msprobe-debugger[objects]' installs fsspec and s3fs.",
    "用于写在各机器本地磁盘上的 dump：每个 FOLDER 含有一台机器的各 rank。DIR 成为由指向它们的符号链接"
    "组成的 dump，所有命令都可使用。如果某个 step 缺少其他 step 有的 rank，或缺少小于最大编号的 rank"
    "，退出码为 2。\n\n已经复制到一处、且 rank 不重叠的文件夹不需要链接：复制到同一文件夹即可（rsync "
    "-a node1/dump/ node2/dump/ all/）。\n\n对象存储的 URL（s3://bucket/run，或 fsspec 支持的其他协议）"
    "：磁盘空间足够时，其中属于 dump 的文件会复制到 DIR；pip install 'msprobe-debugger[objects]' 会安"
    "装 fsspec 与 s3fs。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help=both(
            "folder of a dump, or of one step of it; or its URL (s3://bucket/run)",
            "dump 的文件夹，或其中一个 step 的文件夹；或其 URL（s3://bucket/run）",
        ),
    )
    add_output(
        parser,
        both("folder of the collected dump, new or empty", "汇总后 dump 的文件夹，新建或为空"),
        "--output_path",
        required=True,
    )


def execute(args: argparse.Namespace) -> int:
    """Make the links, and say what is there and what is missing."""
    from msprobe.coverage import Coverage, NotRead
    from msprobe.diagnose.places import ranks_in_words
    from msprobe.foreign.letters import printable
    from msprobe.store.collecting import collect

    done = collect(args.folders, args.output_path)
    answers.wrote([done.folder])
    answers.note(
        ranks=list(done.ranks), steps=list(done.steps), missing={str(k): list(v) for k, v in done.missing.items()}
    )
    about = printable(str(done.folder)), printable(ranks_in_words(done.ranks)), len(done.steps)
    say(translated(said("collected-ranks", *about)))
    missing = []
    for step, ranks in done.missing.items():
        words = ranks_in_words(ranks)
        what = said("rank", words) if step is None else said("rank-of-step", step, words)
        missing.append(NotRead(what, said("rank-not-collected")))
    covered = Coverage({"parts": done.parts, "steps": len(done.steps)}, tuple(missing))
    if missing:
        say(printable(translated(covered.sentence("collected"))))
    return covered.status(has_findings=False)
