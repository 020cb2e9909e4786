"""What a comparison of checkpoints leaves: the JSON of mindstudio-probe 8.1.1, a summary, a table, and the lines of
the console.
"""

from __future__ import annotations

import io
import json
import os
from typing import Any

from msprobe.environment.checkpoint.comparison import HARMLESS, CheckpointComparison
from msprobe.environment.checkpoint.measuring import ParameterMeasures
from msprobe.errors import PathError
from msprobe.foreign import csv_cells
from msprobe.foreign.letters import printable_name
from msprobe.messages import Wording, joined, said, translated
from msprobe.paths import check_output_file, make_folder, write_atomically

_WORST = 20
_SHOWN = 10
_FILES = 3
_LONGEST = 600
_COLUMNS = (
    "rank", "kind", "section", "name", "other_name", "shape_1", "shape_2", "dtype_1", "dtype_2", "l2", "rel_l2",
    "cos", "max_abs",
    "factor", "replicas_differ", "detail",
)  # fmt: skip


def output_files(path: str) -> tuple[str, str, str]:
    """The JSON, its summary and its table, none of which may exist. Raises PathError, with all that are in the way."""
    stem = os.path.splitext(path)[0]
    files = (path, f"{stem}_summary.json", f"{stem}_table.csv")
    there = [file for file in files if os.path.lexists(file)]
    if there:
        quoted = ", ".join(f'"{file}"' for file in there)
        verb, which = ("exists", "it") if len(there) == 1 else ("exist", "them")
        raise PathError(said("results-in-the-way", quoted, verb, which))
    if os.path.isdir(os.path.dirname(path) or "."):
        for file in files:
            check_output_file(file)
    return files


def write(
    result: CheckpointComparison, files: tuple[str, str, str], full: bool = False, with_optimizer: bool = False
) -> None:
    """Write the three files. ``full``: every measure in the JSON; ``with_optimizer``: more than weights in it."""
    make_folder(os.path.dirname(os.path.abspath(files[0])))
    rows = [row for row in result.rows if row.section == "weights" or with_optimizer]
    classic = {_key(row): entry(row, full) for row in sorted(rows, key=lambda row: row.name) if None not in row.shape}
    write_atomically(files[0], json.dumps(classic, indent=4, ensure_ascii=False).encode())
    write_atomically(files[1], json.dumps(summary(result), indent=4, ensure_ascii=False).encode())
    write_atomically(files[2], table(result).encode("utf-8-sig"))


def _key(row: ParameterMeasures) -> str:
    return row.name if row.section == "weights" else f"{row.section}: {row.name}"


def entry(row: ParameterMeasures, full: bool = False) -> dict[str, Any]:
    """One parameter, as 8.1.1 prints it. In ``full`` further keys come after its four."""
    first, second = row.shape
    same = first == second
    unread: Any = "error" if row.kind == "unreadable" else None
    cells: dict[str, Any] = {
        "l2": unread if row.l2 is None else row.l2,
        "cos": unread if row.l2 is None else row.cosine,
        "numel": row.numel[0] if same else list(row.numel),
        "shape": list(first or ()) if same else [list(first or ()), list(second or ())],
    }
    if row.padded is not None:
        cells["padded"] = list(row.padded)
    if full:
        cells.update(
            kind=row.kind,
            max_abs=row.max_abs,
            max_rel=row.max_relative,
            rel_l2=row.relative,
            dtype=list(row.dtype),
            ulp_max=row.ulp_max,
            exact=row.exact,
            nan_count=list(row.nan_count),
            inf_count=list(row.inf_count),
        )
    return cells


def summary(result: CheckpointComparison) -> dict[str, Any]:
    """Counts, names of one side alone, copies that differ, and what is worst."""
    sides = [
        {
            "path": checkpoint.path,
            "format": checkpoint.format,
            "iteration": checkpoint.iteration,
            "weights": len(checkpoint.weights),
        }
        for checkpoint in (result.first, result.second)
    ]
    return {
        "checkpoints": sides,
        "counts": result.counts,
        "only_in_1": [row.name for row in result.of("missing")],
        "only_in_2": [row.name for row in result.of("extra")],
        "replicas_differ": [
            {
                "name": row.name,
                "in": [side + 1 for side in (0, 1) if row.replicas_differ[side]],
                "files": list(row.differing_files),
            }
            for row in result.replicas
        ],
        "worst": [
            {
                "name": row.name,
                "section": row.section,
                "kind": row.kind,
                "rel_l2": row.relative,
                "cos": row.cosine,
                "detail": row.detail,
            }
            for row in result.rows[:_WORST]
            if row.kind not in HARMLESS
        ],
        "notes": result.notes,
        "coverage": result.coverage.as_json(),
    }


def table(result: CheckpointComparison) -> str:
    """All parameters, what matters first, as CSV."""
    out = io.StringIO()
    writer = csv_cells.writer(out)
    writer.writerow(_COLUMNS)
    for number, row in enumerate(result.rows, 1):
        shapes = ["" if shape is None else "x".join(map(str, shape)) or "scalar" for shape in row.shape]
        differ = " ".join(str(side + 1) for side in (0, 1) if row.replicas_differ[side])
        numbers = [
            "" if measure is None else measure
            for measure in (row.l2, row.relative, row.cosine, row.max_abs, row.factor)
        ]
        cells = [
            row.kind,
            row.section,
            row.name,
            row.other_name or "",
            *shapes,
            *(dtype or "" for dtype in row.dtype),
        ]
        writer.writerow([number, *cells, *numbers, differ, row.detail])
    return out.getvalue()


def lines(result: CheckpointComparison) -> list[str]:
    """What the console says: the sentence that matters, then the worst."""
    first, two = result.first, result.second
    one_path, two_path = first.path, two.path
    weights = sum(1 for row in result.rows if row.section == "weights")
    counted = said("one-weight") if weights == 1 else said("so-many-weights", weights)
    entries = said("one-entry-in-all") if len(result.rows) == 1 else said("entries-in-all", len(result.rows))
    printed: list[str] = [
        said("checkpoints-compared", first.path, first.format, two.path, two.format, counted, entries)
    ]
    counts = ", ".join(f"{count} {kind}" for kind, count in result.counts.items())
    covered = result.coverage
    agree = "checkpoints-agree" if covered.is_complete else "checkpoints-agree-where-compared"
    verdict = said("checkpoints-differ" if result.differs else agree, counts)
    printed.append(joined(" ", filter(None, (verdict, covered.sentence()))))
    bad = [row for row in result.rows if row.kind not in HARMLESS]
    for row in bad[:_SHOWN]:
        printed.append("  " + _line(row))
    if len(bad) > _SHOWN:
        printed.append("  " + said("more-in-table", len(bad) - _SHOWN))
    for row in result.replicas[:_SHOWN]:
        one_side = "first-checkpoint" if row.replicas_differ[0] else "second-checkpoint"
        sides = said("both-checkpoints" if all(row.replicas_differ) else one_side)
        files = ", ".join(_short(file, (one_path, two_path)) for file in row.differing_files[:_FILES])
        more = said("and-more", len(row.differing_files) - _FILES) if len(row.differing_files) > _FILES else ""
        printed.append("  " + said("copies-differ-between-ranks", sides, row.name, files + more))
    printed += ["  " + said("note-before", note) for note in result.notes[:_SHOWN]]
    shown = (translated(text)[:_LONGEST] for text in printed)
    return [printable_name(text) for text in shown]


def _short(file: str, folders: tuple[str, ...]) -> str:
    """The path of a file within the checkpoint that it belongs to."""
    inner = next((folder for folder in folders if file.startswith(folder.rstrip("/") + "/")), None)
    return file if inner is None else file[len(inner.rstrip("/")) + 1 :]


def _line(row: ParameterMeasures) -> str:
    where = row.name if row.section == "weights" else f"{row.section}: {row.name}"
    if row.kind == "missing":
        return said("missing-in-second", where)
    if row.kind == "extra":
        return said("extra-in-second", where)
    details: list[str] = [row.detail] if row.detail else []
    if row.relative is not None and row.kind not in ("stale",):
        details.append(f"relative l2 {row.relative:.3g}")
    if row.cosine is not None and row.kind == "changed":
        details.append(f"cosine {row.cosine:.6g}")
    return Wording("{}: {}{}", row.kind, where, Wording(" ({})", joined(", ", details)) if details else "")
