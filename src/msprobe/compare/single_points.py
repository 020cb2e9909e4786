"""What MindSpore graphs save at single points: which file of one side answers to which of the other.

Files are called ``{name}_{...}_{...}.npy``: without the last two parts, the name of what was saved. In each
sub-folder the first of a name answers to the first of that name, the second to the second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msprobe import log
from msprobe.compare.problems import InvalidPathError
from msprobe.errors import PathError
from msprobe.messages import said

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class PointPair:
    """Two files of one name in one sub-folder; the second may not be there."""

    name: str
    candidate: Path
    reference: Path | None


def pair_points(candidate: Path, reference: Path, names: Mapping[str, str]) -> dict[Path, list[PointPair]]:
    """Sub-folder (relative) -> pairs in order. ``names`` gives the reference's name where it is another one.

    What the reference alone has is reported. Raises InvalidPathError if a folder is not there or the candidate's
    holds no ``.npy`` file.
    """
    ours, theirs = _groups(candidate, "npu_path"), _groups(reference, "bench_path")
    if not ours:
        raise InvalidPathError(said("no-npy-files", candidate))
    by_folder: dict[Path, list[PointPair]] = {}
    for folder, groups in ours.items():
        others = theirs.get(folder, {})
        pairs: list[PointPair] = []
        used: set[str] = set()
        for name, files in groups.items():
            other = names.get(name, name)
            used.add(other)
            partners = others.get(other, [])
            if len(files) != len(partners):
                log.warning(said("point-file-counts-differ", folder, name, len(files), len(partners)))
            padded = [*partners[: len(files)], *[None] * (len(files) - len(partners))]
            pairs += [PointPair(name, file, partner) for file, partner in zip(files, padded, strict=True)]
        alone = [name for name in others if name not in used]
        if alone:
            log.warning(said("points-of-bench", folder, ", ".join(alone)))
        by_folder[folder] = pairs
    for folder in theirs:
        if folder not in ours:
            log.warning(said("folder-of-bench", folder))
    return by_folder


def _groups(base: Path, field: str) -> dict[Path, dict[str, list[Path]]]:
    """Sub-folder -> name -> its files, by their numbers."""
    if not base.is_dir():
        raise InvalidPathError(said("point-folder-missing", field, base))
    groups: dict[Path, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    try:
        for path in sorted(base.rglob("*.npy"), key=_order):
            groups[path.parent.relative_to(base)][point_name(path.name)].append(path)
    except OSError as problem:
        raise PathError(said("folder-of-field-unreadable", field, base, problem.strerror)) from problem
    return {folder: dict(groups) for folder, groups in sorted(groups.items())}


def point_name(file: str) -> str:
    """What was saved, by the name of the file.

    >>> point_name("layer_0.loss_float32_12.npy"), point_name("x.npy")
    ('layer_0.loss', 'x')
    """
    stem = file.removesuffix(".npy")
    parts = stem.rsplit("_", 2)
    return parts[0] if len(parts) == 3 and parts[0] else stem


def _order(path: Path) -> tuple[str, list[int], str]:
    """Files of one name by the numbers behind it, not by their digits: 2 before 10."""
    name = point_name(path.name)
    return str(path.parent), [int(number) for number in _NUMBERS.findall(path.name[len(name) :])], path.name
