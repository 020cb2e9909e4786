"""What the paths of a user lead to: a dump, two dumps, results of ours, or graph files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.steps.collector import no_collection
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.foreign.json_text import read_json
from msprobe.lockstep import comparing
from msprobe.messages import joined, said
from msprobe.paths import StrPath, check_path_form
from msprobe.store.reader import Dump, open_dump, open_dumps
from msprobe.store.whereabouts import where_instead
from msprobe.view.dumps import Dumps
from msprobe.view.kept import MOST_OF_RANKS, KeptSteps
from msprobe.view.source import PageSource
from msprobe.view.steps_source import MOST_RECORDS

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings
    from msprobe.diagnose.findings import Verdict

Progress = Callable[[str], None]

VERDICT_FILES = ("verdict.json", "check.json")
_ANOMALY_FILES = "anomaly_analyze_*.json"
GRAPH_SUFFIXES = (".vis", ".vis.db")
_MOST_VERDICT_BYTES = 1 << 28


@dataclass(frozen=True)
class WantedComparison:
    """What else a user may ask of a comparison; see :func:`msprobe.diagnose.runs.compare_runs`.

    ``matches``: the folder for pairs made by hand; the current one if it is None.
    """

    noise: StrPath | None = None
    layout: StrPath | None = None
    mappings: Mappings | None = None
    jobs: int | None = None
    matches: Path | None = None


def open_source(
    paths: Sequence[StrPath], progress: Progress | None = None, wanted: WantedComparison | None = None
) -> PageSource:
    """Open what a user wants to see, and compare or check it on the way.

    One path: a dump, a folder of results (``verdict.json`` or ``check.json``), or graph files. Two: two dumps, the
    candidate first. Raises PathError or InvalidInputError, with all that is wrong at once.
    """
    wanted = wanted or WantedComparison()
    if not 1 <= len(paths) <= 2:
        raise InvalidInputError(said("view-paths-wrong", len(paths)))
    for path in paths:
        check_path_form(path, "file or folder")
    if any(map(_is_graph, paths)):
        if len(paths) > 1:
            raise InvalidInputError(said("graph-file-is-both-sides"))
        _demand_none(wanted)
        from msprobe.view.vis import open_graph_files

        with no_collection():
            return open_graph_files(Path(paths[0]))
    if len(paths) == 2:
        dumps = open_dumps(paths)
        return compared(dumps[0], dumps[1], progress, wanted)
    verdict = _verdict_file(Path(paths[0]))
    if verdict is not None:
        return _from_results(verdict, progress, wanted)
    _demand_none(wanted)
    return checked(_opened_alone(paths[0]), progress)


def _demand_none(wanted: WantedComparison) -> None:
    """Raises InvalidInputError for what is wanted of a comparison alone."""
    options_of_two = {"--noise": wanted.noise, "--layout": wanted.layout, "--jobs": wanted.jobs}
    given = [name for name, value in options_of_two.items() if value is not None]
    if given:
        raise InvalidInputError(said("only-for-comparison", joined(" and ", given)))


def _opened_alone(path: StrPath) -> Dump:
    """A dump. Raises PathError, with all that could be opened, for a path that leads to nothing of that."""
    try:
        return open_dump(path)
    except PathError as problem:
        given = Path(path)
        if not given.exists() or where_instead(given):
            raise
        if given.is_file():
            raise PathError(
                said("nothing-to-view", given, joined(" or ", VERDICT_FILES), ", ".join(GRAPH_SUFFIXES))
            ) from problem
        if not given.is_dir():
            raise
        raise PathError(
            said("nothing-to-view-inside", problem.message, ", ".join(VERDICT_FILES), ", ".join(GRAPH_SUFFIXES))
        ) from problem


def compared(
    candidate: Dump, reference: Dump, progress: Progress | None = None, wanted: WantedComparison | None = None
) -> Dumps:
    """Two dumps, compared as ``msprobe compare`` does it."""
    from msprobe.diagnose.runs import compare_runs
    from msprobe.diagnose.verdict.readable import readable_verdict

    wanted = wanted or WantedComparison()
    has_ranks = any(len(candidate.ranks(step)) > 1 for step in candidate.steps)
    kept = KeptSteps(MOST_OF_RANKS if has_ranks else MOST_RECORDS)

    def compare(first: StrPath, other: StrPath) -> Verdict:
        return compare_runs(
            first,
            other,
            progress,
            noise=wanted.noise,
            jobs=wanted.jobs,
            layout=wanted.layout,
            mappings=wanted.mappings,
            keep=kept,
        )

    # What is read of one rank stays, so that searches for garbage among it find nothing and take as long as the work;
    # of several, most of it goes.
    with nullcontext() if has_ranks else no_collection():
        verdict, left, right = readable_verdict(
            lambda first, other: comparing.compared(first, other, progress, compare), candidate, reference
        )
    return Dumps(open_dump(left), open_dump(right), verdict, wanted.mappings, wanted.matches, kept, wanted.noise)


def checked(dump: Dump, progress: Progress | None = None) -> Dumps:
    """One dump, checked as ``msprobe check`` does it."""
    from msprobe.diagnose.check import check_run

    return Dumps(dump, None, check_run(dump, progress=progress))


def _is_graph(path: StrPath) -> bool:
    given = Path(path)
    if given.is_dir():
        try:
            return not _has_dump(given) and any(_has_graph_name(entry) for entry in given.iterdir())
        except OSError:
            return False  # what cannot be read is reported where it is opened
    return _has_graph_name(given)


def _has_graph_name(path: Path) -> bool:
    return path.name.endswith(GRAPH_SUFFIXES)


def _has_dump(folder: Path) -> bool:
    try:
        open_dump(folder)
    except MsprobeError:
        return False
    return True


def _verdict_file(path: Path) -> Path | None:
    """The result of ours that a path is, or holds."""
    if path.name in VERDICT_FILES or fnmatch(path.name, _ANOMALY_FILES):
        return path
    if comparing.has_verdict(path):
        return path / VERDICT_FILES[0]
    if path.is_dir() and not _has_dump(path):
        paths = [path / name for name in VERDICT_FILES if (path / name).is_file()]
        # The name has the time, so that the last is the newest.
        return next(iter([*paths, *sorted(path.glob(_ANOMALY_FILES), reverse=True)]), None)
    return None


def _from_results(file: Path, progress: Progress | None, wanted: WantedComparison) -> Dumps:
    """The dumps that a result names, compared or checked again: the page needs them, not only what was said of them."""
    from msprobe.paths import check_readable_file

    content = read_json(check_readable_file(file, ".json", _MOST_VERDICT_BYTES, follow_symlink=True))
    keys = ("candidate", "reference") if file.name == VERDICT_FILES[0] else ("dump",)
    overflow = isinstance(content, dict) and "_propagation" in content
    if overflow:
        content = content["_propagation"]
    names = [content.get(key) if isinstance(content, dict) else None for key in keys]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(said("no-result-of-msprobe", file, joined(" and ", keys)))
    paths, missing = [], []
    for name in names:
        # As it was given then, from the folder of the result, or from here.
        places = [Path(str(name)), file.parent / str(name), file.parent.parent / str(name)]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            missing.append(f'"{name}"')
        else:
            paths.append(path)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise PathError(said("dumps-of-result-gone", file, joined(" and ", missing), verb))
    dumps = open_dumps(paths)
    if overflow or len(dumps) == 1:
        _demand_none(wanted)
    if overflow:
        return _first_overflow(dumps[0], content, progress)
    return compared(dumps[0], dumps[1], progress, wanted) if len(dumps) == 2 else checked(dumps[0], progress)


def _first_overflow(dump: Dump, asked: dict[str, Any], progress: Progress | None) -> Dumps:
    """A dump with the first bad values over its ranks, as ``msprobe nan_analyze`` was asked for them."""
    from msprobe.diagnose.check.first_overflow import find_first_overflow
    from msprobe.report.anomaly_file import asked_for

    return Dumps(dump, None, find_first_overflow(dump, asked_for(asked), progress).as_check())
