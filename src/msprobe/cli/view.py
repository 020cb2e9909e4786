"""``msprobe view PATH...``: a run, or two runs side by side, in the browser."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.common import add_jobs, add_output
from msprobe.cli.parser import UsageError, refuse_unused
from msprobe.cli.runs import add_runs, runs_of
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.console import say
from msprobe.messages import Wording, both, joined, said, translated
from msprobe.paths import check_output_file

if TYPE_CHECKING:
    from msprobe.coverage import Coverage
    from msprobe.view.source import PageSource

_HERE = "127.0.0.1"
_MOST_PORT = 65535
_EPILOG = both(
    "PATH: a dump (its root, or the folder of a step or rank); two dumps, the candidate first, which "
    "are compared as by `msprobe compare`; a folder with our verdict.json or check.json; or graph "
    "files (.vis, .vis.db), ours or of mindstudio-probe. The page is served on this machine alone, "
    "to those who have the address that is printed; Ctrl-C ends it. Inputs are only read; pairs made "
    "by hand go to a file of their own in the folder of --matches. With --html the exit status is 2 "
    "if not all of the input was read, and the missing input is named.",
    "PATH：一份 dump（根目录，或某个 step、rank 的文件夹）；两份 dump，待比对侧在前，与 `msprobe "
    "compare` 一样比对；含有本工具 verdict.json 或 check.json 的文件夹；或图文件（.vis、.vis.db），本"
    "工具或 mindstudio-probe 的均可。页面只在本机提供，凭打印出的地址访问；按 Ctrl-C 结束。输入只读；"
    "手工匹配写入 --matches 文件夹中单独的文件。使用 --html 时，如果输入没有全部读取，会说明缺少的内"
    "容，退出码为 2。",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = _EPILOG
    add_runs(
        parser,
        "paths",
        both("what to show; see below", "要显示的内容；见下"),
        "PATH",
    )
    parser.add_argument(
        "--port",
        default="0",
        help=both("port of the page; 0, the default, is any free one", "页面的端口；默认 0 表示任意空闲端口"),
    )
    parser.add_argument(
        "--host",
        default=_HERE,
        help=both("address to listen on (default: 127.0.0.1, this machine)", "监听地址（默认 127.0.0.1，即本机）"),
    )
    parser.add_argument(
        "--no-browser",
        action="store_true",
        help=both("print the address and open no browser", "只打印地址，不打开浏览器"),
    )
    add_output(
        parser,
        both("write the page with its data to one file, and end", "把页面及数据写入一个文件并退出"),
        "--html",
        metavar="FILE",
    )
    parser.add_argument(
        "--noise",
        metavar="DUMP",
        help=both("a second healthy run, as of msprobe compare", "另一次正常的运行，同 msprobe compare"),
    )
    parser.add_argument(
        "--layout",
        metavar="FILE",
        help=both(
            "how each run is split over its ranks, for runs of different parallel layouts",
            "并行布局不同时，各运行如何切分到各 rank",
        ),
    )
    add_jobs(
        parser,
        both("ranks that are compared at once", "同时比对多少个 rank"),
    )
    parser.add_argument(
        "--matches",
        metavar="DIR",
        help=both("folder for pairs made by hand (default: the current one)", "手工匹配的文件夹（默认为当前文件夹）"),
    )


def execute(args: argparse.Namespace) -> int:
    """Open what was asked for, and show it until the user ends it; returns the exit status."""
    from msprobe.cli.progress import progress
    from msprobe.diagnose.steps.collector import no_collection
    from msprobe.view.opening import WantedComparison, open_source

    args.paths = runs_of(args, args.paths)
    port = _checked(args)
    if args.html is not None:
        served = {"--port": args.port != "0", "--host": args.host != _HERE, "--no-browser": args.no_browser}
        refuse_unused(
            served,
            both(
                "only for a page that is served; --html writes a file and ends",
                "只用于提供服务的页面；--html 写出文件后即退出",
            ),
        )
    if args.html is None:
        from msprobe.view.serving import check_available

        check_available()
    wanted = WantedComparison(args.noise, args.layout, None, args.jobs, Path(args.matches) if args.matches else None)
    with no_collection():
        with progress("comparing" if len(args.paths) > 1 else "reading") as bar:
            source = open_source(args.paths, bar, wanted)
            source.prepare()
        # What was read stays: a search for garbage among it would take as long as an answer may.
        gc.freeze()
    try:
        return _write(source, Path(args.html)) if args.html is not None else _show(source, args, port)
    finally:
        source.close()


def _checked(args: argparse.Namespace) -> int:
    """The port. Raises InvalidInputError with all that is wrong at once."""
    problems: list[str] = []
    if not args.paths:
        problems.append(said("view-without-path", said("view-opened")))
    if len(args.paths) > 2:
        problems.append(said("view-too-many-paths", len(args.paths)))
    if not args.host:
        problems.append(said("view-host-empty"))
    port = int(args.port) if args.port.isdecimal() else -1
    if not 0 <= port <= _MOST_PORT:
        problems.append(said("view-port-wrong", repr(args.port), _MOST_PORT))
    is_usage = bool(problems)
    if args.matches is not None and not Path(args.matches).is_dir():
        problems.append(said("view-matches-no-folder", repr(args.matches)))
    if args.html is not None:
        problems += _problems_of_output(args.html)
    if problems:
        raise (UsageError if is_usage else InvalidInputError)(joined(" ", problems))
    return port


def _problems_of_output(path: str) -> list[str]:
    """Asked before the work, whose result would be lost otherwise."""
    try:
        check_output_file(path)
    except PathError as problem:
        return [Wording("{}: {}", "--html", problem.message)]
    return []


def _write(source: PageSource, file: Path) -> int:
    from msprobe.paths import write_atomically
    from msprobe.report.phrases import clean
    from msprobe.view.single_file import single_file

    size = write_atomically(file, single_file(source), fsync=False)
    answers.wrote([file])
    say(translated(said("page-written", file, size / 1e6)))
    covered = _coverage(source)
    if not covered.is_complete:
        say(clean(translated(covered.sentence("shown"))))
    return covered.status(has_findings=False)


def _coverage(source: PageSource) -> Coverage:
    """What the comparison or the check behind the page has read; of graph files that is not known."""
    from msprobe.coverage import Coverage, coverage_from_json

    verdict = source.overview()["verdict"]
    return coverage_from_json(verdict["coverage"]) if verdict is not None else Coverage()


def _show(source: PageSource, args: argparse.Namespace, port: int) -> int:
    from msprobe.report.phrases import clean
    from msprobe.view.server import new_token
    from msprobe.view.serving import address_of, is_local, listen, open_browser, serve

    listening = listen(args.host, port)
    with listening:
        token = new_token()
        address = address_of(listening, args.host, token)

        def ready() -> None:
            if not is_local(args.host):
                say(translated(said("reachable-from-outside", args.host)), file=sys.stderr)
            covered = _coverage(source)
            if not covered.is_complete:
                say(clean(translated(covered.sentence("shown"))), file=sys.stderr)
            say(address, flush=True)
            say("Ctrl-C ends it.", file=sys.stderr, flush=True)
            if not args.no_browser:
                open_browser(address)

        serve(source, listening, token, args.host, ready)
    return 0
