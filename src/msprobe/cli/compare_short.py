"""``msprobe compare CANDIDATE REFERENCE``: the first call in which two recorded trainings differ."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli import answers
from msprobe.cli.parser import did_you_mean
from msprobe.cli.statuses import COULD_NOT
from msprobe.errors import InvalidInputError
from msprobe.messages import both, said
from msprobe.report import formats

if TYPE_CHECKING:
    from msprobe.cli.progress import Bar
    from msprobe.compare.mapping import Mappings
    from msprobe.diagnose.findings import Verdict
    from msprobe.engine import Workers
    from msprobe.paths import StrPath
    from msprobe.report.formats import Format
    from msprobe.view.kept import KeptSteps

    # What the page judges by, and need not judge again: names in two frameworks, steps that were judged, the second
    # healthy run.
    _Known = tuple[Mappings | None, KeptSteps | None, StrPath | None]
    _Steps = Collection[int | None] | None

DEFAULT_OUTPUT = "./output"
_OUTCOMES = ("diverged", "harmless", "interrupted", "never")
_MOST_NAMED = 10

_WRITES = (
    (
        "Two dumps: prints the first call that differs. With -o DIR it also writes {} and what is asked "
        "for ({}); without "
        "-o nothing is written, unless a file is asked for, which then goes to ./output."
    ),
    (
        "两份 dump：打印首个不同的调用。给出 -o DIR 时还写出 {}，以及要求的文件（{}）；不给 -o 时不写文件，"
        "除非要求了某种文件，此时写到 ./output。"
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only the form with two dumps has."""
    names = ", ".join(f"DIR/{row.file}" for row in formats.always("verdict"))
    parser.epilog = both(*_WRITES, names, formats.flags(formats.with_flag("two dumps")))
    short = parser.add_argument_group(both("two dumps", "两份 dump"))
    for row in formats.with_flag("two dumps"):
        if row.forms == ("two dumps",):
            short.add_argument(row.flag, action="store_true", help=row.help)
    short.add_argument(
        "--all-steps",
        action="store_true",
        help=both(
            "tables ({}) of all steps, not only of those that differ beyond rounding",
            "所有 step 的结果表（{}），而不只是差异超出舍入误差的 step",
            _table_flags(),
        ),
    )
    short.add_argument(
        "--noise",
        metavar="DUMP",
        help=both(
            "a second healthy run; the candidate may differ from the reference by as much as this run does",
            "另一次正常的运行；它与标杆侧相差多少，待比对侧就可以相差多少",
        ),
    )
    short.add_argument(
        "--second-look",
        metavar="DIR",
        help=both(
            "prove it: writes configurations to DIR that record the suspicious calls again, with their "
            "tensors; with these recordings in DIR, a second call of this command recomputes each call from "
            "its own inputs in double precision",
            "二次确认：向 DIR 写出配置，以张量重新采集可疑的调用；DIR 中有了这些采集结果后再次运行，会用每个"
            "调用自身的输入以双精度重新计算",
        ),
    )
    short.add_argument(
        "--layout",
        metavar="FILE",
        help=both(
            "how each run is split over its ranks, for runs of different parallel layouts (YAML or JSON), if "
            "the dumps do not have it",
            "并行布局不同时，各运行如何切分到各 rank（YAML 或 JSON）；dump 中没有时给出",
        ),
    )
    short.add_argument(
        "--fail-on",
        metavar="WHAT",
        help=both(
            "when to exit with 1: kinds of findings with commas, or diverged (default), harmless, never; "
            "interrupted: also if they agree and one of the dumps was interrupted",
            "何时退出码为 1：问题项种类，以逗号分隔；或 diverged（默认）、harmless、never；interrupted：两侧"
            "一致、但有一份 dump 中断时也是",
        ),
    )


def short_form(args: argparse.Namespace) -> int:
    """Compare two dumps, print the verdict, write what was asked for; returns the exit status."""
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.diagnose import compare_runs
    from msprobe.diagnose.runs import are_one_dump
    from msprobe.diagnose.verdict.readable import readable_verdict
    from msprobe.engine import Workers
    from msprobe.lockstep.comparing import compared
    from msprobe.store.reader import open_dumps

    asked = [row for row in formats.with_flag("two dumps") if getattr(args, row.word)]
    fails = _fail_on(args.fail_on)
    _check(args, asked)
    for row in asked:
        row.check_available()
    workers = Workers(args.jobs, args.engine)
    folder = None
    if args.output_path is not None or asked:
        folder = usable_output(
            DEFAULT_OUTPUT if args.output_path is None else args.output_path,
            [row.file for row in _verdict_files(asked)],
        )
    # Opened once: of 16 steps on 1,024 ranks there are 16,384 folders to look at.
    opened = open_dumps([*args.dumps, args.noise] if args.noise is not None else args.dumps)
    candidate: StrPath = opened[0]
    reference: StrPath = opened[1]
    noise = opened[2] if args.noise is not None else None
    if noise is not None and any(are_one_dump(noise, dump) for dump in opened[:2]):
        raise InvalidInputError(said("noise-option-is-compared", args.noise))
    tables = _tables(args, asked, workers)
    mappings = None
    if args.api_mapping or args.cell_mapping:
        from msprobe.compare.mapping import load_mappings

        mappings = load_mappings(api=args.api_mapping, cell=args.cell_mapping)
    with progress() as bar:
        kept = _kept() if _page(asked) else None

        def compare(first: StrPath, other: StrPath) -> Verdict:
            return compare_runs(
                first, other, bar, noise=noise, jobs=args.jobs, engine=args.engine, layout=args.layout,
                mappings=mappings, keep=kept,
            )  # fmt: skip

        verdict, candidate, reference = readable_verdict(
            lambda first, other: compared(first, other, bar, compare), candidate, reference
        )
        if args.second_look is not None:
            from msprobe.second_look.looking import second_look

            verdict = second_look(verdict, candidate, reference, Path(args.second_look), mappings)
        written: list[Path] = []
        # Where nothing could be compared, nobody knows which steps differ.
        steps = None if args.all_steps or verdict.status == "incomparable" else verdict.apart
        try:
            if folder is not None:
                files = [row for row in _verdict_files(asked) if row.shows == "verdict"]
                for path in formats.write_files(verdict, files, folder):
                    written.append(path)
                if page := _page(asked):
                    # What a person opens first stands first.
                    known = mappings, kept, noise
                    written[:0] = _write_page(verdict, (candidate, reference), known, page, folder)
                if tables is not None:
                    for path in tables(candidate, reference, folder, steps, bar):
                        written.append(path)
        finally:
            bar.stop()
            _print(verdict, written, _left_out(verdict, steps) if tables else "")
    return fails(verdict)


def _check(args: argparse.Namespace, asked: Sequence[Format]) -> None:
    """Options that mean nothing here are refused: who gives them expects something of them."""
    if len(args.dumps) != 2:
        raise InvalidInputError(said("compare-needs-two", len(args.dumps)))
    foreign = {
        **{row.flag: getattr(args, row.word) for row in formats.with_flag() if "two dumps" not in row.forms},
        "-s": args.stack_mode,
        "-c": args.compare_only,
        "-m": args.mode != "auto",
        "-tensor_log": args.is_print_compare_log,
        "-da": args.diff_analyze,
        "-f": args.fuzzy_match,
        "--config": args.config,
        "--consistent_check": args.consistent_check,
        "--backend": args.backend,
        "--metric": args.metric,
        "--rank": args.rank,
        "--step": args.step,
    }
    wrong = [flag for flag, given in foreign.items() if given]
    if wrong:
        raise InvalidInputError(said("option-not-of-two-dumps", ", ".join(wrong)))
    mapped = {
        "-dm": args.data_mapping,
        "-lm": args.layer_mapping,
    }
    has_tables = any(row.shows == "rows" for row in asked)
    if args.all_steps and not has_tables:
        raise InvalidInputError(said("all-steps-without-tables", _table_flags()))
    wrong = [flag for flag, given in mapped.items() if given]
    if wrong and not has_tables:
        raise InvalidInputError(said("naming-option-without-tables", ", ".join(wrong), _table_flags()))


def _table_flags() -> str:
    return formats.flags([row for row in formats.with_flag("two dumps") if row.shows == "rows"])


def _verdict_files(asked: Sequence[Format]) -> list[Format]:
    """The files of the verdict itself, in the order of the table."""
    wanted = [*asked, *formats.always("verdict")]
    return [row for row in formats.FORMATS if row in wanted and row.shows in ("verdict", "page")]


def _fail_on(text: str | None) -> Callable[[Verdict], int]:
    """The exit status of a verdict, as ``--fail-on`` asks for it. Raises InvalidInputError for unknown words."""
    from msprobe.diagnose.findings import KINDS

    words = [word.strip() for word in (text or "diverged").split(",")]
    unknown = [word for word in words if word not in KINDS and word not in _OUTCOMES]
    if unknown:
        meant = did_you_mean(unknown[0], [*_OUTCOMES, *KINDS]) if len(unknown) == 1 else ""
        raise InvalidInputError(
            said(
                "fail-on-unknown",
                ", ".join(map(repr, unknown)),
                ", ".join(_OUTCOMES),
                meant,
                both(" The" if meant else "the", ""),
                ", ".join(KINDS),
            )
        )
    if "never" in words and len(words) > 1:
        raise InvalidInputError(said("fail-on-never-alone"))

    def status(verdict: Verdict) -> int:
        if verdict.status == "incomparable":
            return COULD_NOT
        failed = (
            ("diverged" in words and verdict.status == "diverged")
            or ("harmless" in words and verdict.status in ("diverged", "harmless"))
            or ("interrupted" in words and (verdict.status == "diverged" or verdict.summary.get("interrupted")))
            or any(finding.kind in words for finding in verdict.findings)
        )
        if failed:
            return 1
        return COULD_NOT if verdict.is_partial and "never" not in words else 0

    return status


def _tables(
    args: argparse.Namespace, asked: Sequence[Format], workers: Workers
) -> Callable[[StrPath, StrPath, Path, _Steps, Bar], Iterator[Path]] | None:
    """What writes the tables that were asked for; mappings are read now, before the work."""
    tables = [row for row in asked if row.shows == "rows"]
    if not tables:
        return None
    from msprobe.compare.mapping import load_mappings
    from msprobe.report.row_tables import WantedTables, write_row_tables

    mappings = load_mappings(
        data=args.data_mapping, api=args.api_mapping, cell=args.cell_mapping, layer=args.layer_mapping
    )

    def write(candidate: StrPath, reference: StrPath, folder: Path, steps: _Steps, bar: Bar) -> Iterator[Path]:
        wanted = WantedTables(folder, tables, mappings=mappings, workers=workers, steps=steps)
        return write_row_tables(candidate, reference, wanted, bar)

    return write


def _page(asked: Sequence[Format]) -> list[Format]:
    return [row for row in asked if row.shows == "page"]


def _write_page(
    verdict: Verdict, dumps: tuple[StrPath, StrPath], known: _Known, page: Sequence[Format], folder: Path
) -> list[Path]:
    """Write the page; gives its path. The page needs the dumps themselves, beside what was said of them."""
    from msprobe.store.reader import open_dump
    from msprobe.view.dumps import Dumps

    mappings, kept, noise = known
    source = Dumps(open_dump(dumps[0]), open_dump(dumps[1]), verdict, mappings, None, kept, noise)
    try:
        return list(formats.write_files(source, page, folder))
    finally:
        source.close()


def _kept() -> KeptSteps:
    from msprobe.view.kept import KeptSteps
    from msprobe.view.steps_source import MOST_RECORDS

    return KeptSteps(MOST_RECORDS)


def _left_out(verdict: Verdict, steps: _Steps) -> str:
    """What to say of the steps of which no tables are written."""
    count = 0 if steps is None else verdict.summary.get("steps_in_common", 0) - len(set(steps))
    if count <= 0 or "layouts" in verdict.summary:
        return ""
    steps_left = said("so-many-steps", count) if count > 1 else said("one-step")
    return said("tables-left-out-later" if verdict.status == "diverged" else "tables-left-out-same", steps_left)


def _print(verdict: Verdict, written: Sequence[Path], left_out: str = "") -> None:
    from msprobe.report.console import print_lines

    answers.whole(formats.always("verdict")[0].content(verdict))
    names = [_shown(path) for path in written]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED:] = [said("more-files-in", len(names) - _MOST_NAMED, _shown(written[0].parent))]
    if left_out:
        names.append(left_out)
    lines = formats.printed("verdict").render()
    print_lines(lambda width: lines(verdict, names, width))


def _shown(path: Path) -> str:
    """The path as a person would type it: from here, if it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
