"""``msprobe compare CANDIDATE REFERENCE``: where two recorded trainings part, in one word and in full.

Exit status: 0 they agree, or differ harmlessly; 1 they part (``--fail-on`` changes what counts); 2 they cannot be
compared, or the input is bad.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli.parser import did_you_mean
from msprobe.errors import InvalidInputError, MsprobeError

if TYPE_CHECKING:
    from msprobe.cli.progress import Teller
    from msprobe.diagnose.findings import Verdict
    from msprobe.engine import Workers
    from msprobe.paths import StrPath
    from msprobe.report.row_tables import Format

    _Steps = Collection[int | None] | None
    _Tables = Callable[[Path, _Steps, Teller], Iterator[Path]]

DEFAULT_OUTPUT = "./output"
VERDICT_FILE = "verdict.json"
PAGE_FILE = "verdict.html"
BAD_INPUT_STATUS = 2
_FILES = ("xlsx", "csv", "html", "parquet")
_TABLES: tuple[Format, ...] = ("xlsx", "csv", "parquet")
_OUTCOMES = ("diverged", "harmless", "interrupted", "never")
_MOST_NAMED = 10

_EPILOG = """\
two dumps: prints where they part. With -o DIR it also writes DIR/verdict.json and what is asked for (--html, --xlsx,
--csv, --parquet); without -o nothing is written, unless a file is asked for, which then goes to ./output.
Exit status of this form: 0 they agree or differ harmlessly (an interrupted dump: as far as it goes), 1 they part, 2
they cannot be compared, the input is bad, or they agree where not all that both have could be read or compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only the form with two dumps has."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    short = parser.add_argument_group("two dumps")
    short.add_argument("--html", action="store_true", help=f"write {PAGE_FILE}, a page in one file")
    short.add_argument("--parquet", action="store_true", help="write the rows as Parquet (needs polars)")
    short.add_argument(
        "--all-steps",
        action="store_true",
        help="tables (--xlsx, --csv, --parquet) of all steps, not only of those that differ beyond rounding",
    )
    short.add_argument(
        "--noise",
        metavar="DUMP",
        help="a second healthy run: what it differs by from the reference, the candidate may differ by",
    )
    short.add_argument(
        "--layout",
        metavar="FILE",
        help="how runs of other parallel layouts lie on their ranks (YAML or JSON), where the dumps do not say it",
    )
    short.add_argument(
        "--fail-on",
        metavar="WHAT",
        help="when to exit with 1: kinds of findings with commas, or diverged (default), harmless, never; interrupted: "
        "also if they agree as far as an interrupted dump goes",
    )


def short_form(args: argparse.Namespace) -> int:
    """Compare two dumps, print the verdict, write what was asked for; returns the exit status."""
    try:
        return _compare(args)
    except MsprobeError as problem:
        if args.debug:
            raise
        print(f"msprobe: {problem.message}", file=sys.stderr)
        return BAD_INPUT_STATUS


def _compare(args: argparse.Namespace) -> int:
    from msprobe.cli.output_folder import usable_output
    from msprobe.cli.progress import progress
    from msprobe.diagnose import compare_runs
    from msprobe.diagnose.verdict.readable import readable_verdict
    from msprobe.engine import Workers

    asked = [kind for kind in _FILES if getattr(args, kind)]
    fails = _fail_on(args.fail_on)
    _check(args, asked)
    if "parquet" in asked:
        from msprobe.report.parquet_table import check_available

        check_available()
    workers = Workers(args.jobs, args.engine)
    folder = None
    if args.output_path is not None or asked:
        names = [VERDICT_FILE, PAGE_FILE] if "html" in asked else [VERDICT_FILE]
        folder = usable_output(args.output_path or DEFAULT_OUTPUT, names)
    candidate, reference = args.dumps
    _check_dumps([*args.dumps, args.noise] if args.noise is not None else args.dumps)
    if _is_same(candidate, reference):
        raise InvalidInputError(f'both paths lead to the same dump, "{candidate}"; give two.')
    if _is_part(candidate, reference):
        raise InvalidInputError(
            f'"{candidate}" and "{reference}" are the same dump, one a part of the other; give two.'
        )
    if args.noise is not None and any(_is_same(args.noise, dump) or _is_part(args.noise, dump) for dump in args.dumps):
        raise InvalidInputError(f'--noise: "{args.noise}" is compared itself; give a run of its own.')
    tables = _tables(args, asked, workers)
    mappings = None
    if args.api_mapping or args.cell_mapping:
        from msprobe.compare.mapping import load_mappings

        mappings = load_mappings(api=args.api_mapping, cell=args.cell_mapping)
    with progress() as tell:

        def compare(one: StrPath, other: StrPath) -> Verdict:
            return compare_runs(
                one, other, tell, "html" in asked,
                noise=args.noise, jobs=args.jobs, engine=args.engine, layout=args.layout, mappings=mappings,
            )  # fmt: skip

        verdict, candidate, reference = readable_verdict(compare, candidate, reference)
        written: list[Path] = []
        # Where nothing could be compared, nobody knows which steps differ.
        steps = None if args.all_steps or verdict.status == "incomparable" else verdict.apart
        try:
            if folder is not None:
                write = partial(tables, candidate, reference) if tables else None
                _write(verdict, folder, asked, write, steps, written, tell)
        finally:
            tell.stop()
            _print(verdict, written, _left_out(verdict, steps) if tables else "")
    return fails(verdict)


def _check(args: argparse.Namespace, asked: Sequence[str]) -> None:
    """Options that mean nothing here are refused: who gives them expects something of them."""
    if len(args.dumps) != 2:
        raise InvalidInputError(f"give two dumps, the candidate and the reference; found {len(args.dumps)}.")
    foreign = {
        "-s": args.stack_mode,
        "-c": args.compare_only,
        "-m": args.mode != "auto",
        "-tensor_log": args.is_print_compare_log,
        "-da": args.diff_analyze,
        "--config": args.config,
        "--consistent_check": args.consistent_check,
        "--backend": args.backend,
        "--metric": args.metric,
        "--rank": args.rank,
        "--step": args.step,
    }
    wrong = [flag for flag, given in foreign.items() if given]
    if wrong:
        raise InvalidInputError(f"{', '.join(wrong)}: not an option of the form with two dumps; leave it out.")
    mapped = {
        "-f": args.fuzzy_match,
        "-dm": args.data_mapping,
        "-lm": args.layer_mapping,
    }
    if args.all_steps and not set(_TABLES) & set(asked):
        raise InvalidInputError("--all-steps: of which tables are written; ask for some (--xlsx, --csv, --parquet).")
    wrong = [flag for flag, given in mapped.items() if given]
    if wrong and not set(_TABLES) & set(asked):
        raise InvalidInputError(
            f"{', '.join(wrong)}: how names answer to each other in the sheet; ask for one (--xlsx, --csv, --parquet). "
            "The verdict finds out by itself."
        )


def _check_dumps(paths: Sequence[str]) -> None:
    """Raise PathError for paths that lead to no dump: for all of them at once."""
    from msprobe.errors import PathError
    from msprobe.store.reader import open_dump

    problems: list[str] = []
    for path in paths:
        try:
            open_dump(path)
        except PathError as problem:
            text = problem.message
            problems.append(f"{text[0].upper()}{text[1:]}" if problems else text)
    if problems:
        raise PathError(" ".join(dict.fromkeys(problems)))


def _is_same(candidate: str, reference: str) -> bool:
    """True for one folder given twice: a slip of the hand that would always agree."""
    try:
        return os.path.samefile(candidate, reference)
    except OSError:
        return False  # the reader says what is wrong with them


def _is_part(one: str, other: str) -> bool:
    """True if one path leads into the other, and what would be compared is the same on both sides."""
    here, there = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    if not (here.is_relative_to(there) or there.is_relative_to(here)):
        return False
    from msprobe.diagnose.runs import parts_in_common

    for left, right in parts_in_common(one, other):
        parts = left.part(), right.part()
        same = os.path.samefile(parts[0].folder, parts[1].folder)
        for part in parts:
            part.close()
        if same:
            return True
    return False


def _fail_on(text: str | None) -> Callable[[Verdict], int]:
    """The exit status of a verdict, as ``--fail-on`` asks for it. Raises InvalidInputError for unknown words."""
    from msprobe.diagnose.findings import KINDS

    words = [word.strip() for word in (text or "diverged").split(",")]
    unknown = [word for word in words if word not in KINDS and word not in _OUTCOMES]
    if unknown:
        meant = did_you_mean(unknown[0], [*_OUTCOMES, *KINDS]) if len(unknown) == 1 else ""
        raise InvalidInputError(
            f"--fail-on: {', '.join(map(repr, unknown))} is neither {', '.join(_OUTCOMES)} nor a kind of finding; "
            f"{meant}{' The' if meant else 'the'} kinds are {', '.join(KINDS)}."
        )
    if "never" in words and len(words) > 1:
        raise InvalidInputError("--fail-on: never excludes the other words; give one or the other.")

    def status(verdict: Verdict) -> int:
        if verdict.status == "incomparable":
            return BAD_INPUT_STATUS
        failed = (
            ("diverged" in words and verdict.status == "diverged")
            or ("harmless" in words and verdict.status in ("diverged", "harmless"))
            or ("interrupted" in words and (verdict.status == "diverged" or verdict.summary.get("interrupted")))
            or any(finding.kind in words for finding in verdict.findings)
        )
        if failed:
            return 1
        return BAD_INPUT_STATUS if verdict.is_partial and "never" not in words else 0

    return status


def _tables(
    args: argparse.Namespace, asked: Sequence[str], workers: Workers
) -> Callable[[StrPath, StrPath, Path, _Steps, Teller], Iterator[Path]] | None:
    """What writes the tables that were asked for; mappings are read now, before the work."""
    formats: list[Format] = [kind for kind in _TABLES if kind in asked]
    if not formats:
        return None
    from msprobe.compare.mapping import load_mappings
    from msprobe.report.row_tables import Wanted, write_row_tables

    mappings = load_mappings(
        data=args.data_mapping, api=args.api_mapping, cell=args.cell_mapping, layer=args.layer_mapping
    )

    def write(candidate: StrPath, reference: StrPath, folder: Path, steps: _Steps, tell: Teller) -> Iterator[Path]:
        wanted = Wanted(folder, formats, fuzzy=args.fuzzy_match, mappings=mappings, workers=workers, steps=steps)
        return write_row_tables(candidate, reference, wanted, tell)

    return write


def _write(
    verdict: Verdict,
    folder: Path,
    asked: Sequence[str],
    tables: _Tables | None,
    steps: _Steps,
    written: list[Path],
    tell: Teller,
) -> None:
    """Write the files; each appears when it is whole, and ``written`` grows with them."""
    from msprobe.paths import make_folder, write_atomically
    from msprobe.report.verdict_file import verdict_bytes

    texts = {folder / VERDICT_FILE: verdict_bytes(verdict)}
    if "html" in asked:
        from msprobe.report.html import verdict_page

        texts[folder / PAGE_FILE] = verdict_page(verdict).encode("utf-8", "backslashreplace")
    make_folder(folder)
    for path, data in texts.items():
        write_atomically(path, data, fsync=False)
        written.append(path)
    if tables is not None:
        for path in tables(folder, steps, tell):
            written.append(path)


def _left_out(verdict: Verdict, steps: _Steps) -> str:
    """What to say of the steps of which no tables are written."""
    count = 0 if steps is None else verdict.summary.get("steps_in_common", 0) - len(set(steps))
    if count <= 0 or "layouts" in verdict.summary:
        return ""
    words = f"{count} steps" if count > 1 else "one step"
    why = "the same but for rounding" + (", or later" if verdict.status == "diverged" else "")
    return f"no tables of {words} ({why}): --all-steps writes them, too"


def _print(verdict: Verdict, written: Sequence[Path], left_out: str = "") -> None:
    from msprobe.report.console import print_lines, verdict_lines

    # What a person opens first stands first.
    names = [_shown(path) for path in sorted(written, key=lambda path: path.name != PAGE_FILE)]
    if len(names) > _MOST_NAMED:
        names[_MOST_NAMED:] = [f"and {len(names) - _MOST_NAMED} more in {_shown(written[0].parent)}"]
    if left_out:
        names.append(left_out)
    print_lines(lambda width: verdict_lines(verdict, names, width))


def _shown(path: Path) -> str:
    """The path as a person would type it: from here, if it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
