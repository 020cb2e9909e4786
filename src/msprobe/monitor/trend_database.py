"""The SQLite file of monitored runs that the trend viewer of mindstudio-probe 26.2.0 reads (``*.trend.db``)."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import StrPath, create_file

FILE_NAME = "monitor_data.trend.db"

#: Statistics in the order of their columns; others follow as they come.
STATISTICS = (
    "norm", "min", "max", "zeros", "nans", "mean", "entropy", "softmax_max", "sr", "kernel_norm",
    "router_weight_similarity", "per_token_expert_entropy", "value", "ratio",
)  # fmt: skip

# The viewer scales by the extremes: what is larger is drawn as this, and infinity as one more.
_LARGEST = 1e9
#: What infinity is written as.
INFINITE = _LARGEST + 1
#: A table that the viewer does not know: shape and type of each tensor.
TENSORS = "msprobe_tensors"

_SCHEMA = """
CREATE TABLE monitoring_targets (
    target_id INTEGER PRIMARY KEY AUTOINCREMENT,
    target_name TEXT NOT NULL,
    vpp_stage INTEGER NOT NULL,
    micro_step INTEGER NOT NULL DEFAULT 0,
    UNIQUE(target_name, vpp_stage, micro_step)
);
CREATE TABLE monitoring_metrics (
    metric_id INTEGER PRIMARY KEY AUTOINCREMENT,
    metric_name TEXT UNIQUE NOT NULL
);
CREATE TABLE monitoring_tags (
    tag_id INTEGER PRIMARY KEY AUTOINCREMENT,
    tag_name TEXT NOT NULL,
    category TEXT NOT NULL,
    metric_id INTEGER NOT NULL,
    UNIQUE(tag_name, category, metric_id),
    FOREIGN KEY (metric_id) REFERENCES monitoring_metrics(metric_id)
);
CREATE TABLE tag_target_mapping (
    tag_id INTEGER NOT NULL,
    target_id INTEGER NOT NULL,
    PRIMARY KEY (tag_id, target_id),
    FOREIGN KEY (tag_id) REFERENCES monitoring_tags(tag_id),
    FOREIGN KEY (target_id) REFERENCES monitoring_targets(target_id)
);
CREATE TABLE global_stats (min_step INTEGER DEFAULT 0, max_step INTEGER DEFAULT 0, max_rank INTEGER DEFAULT 0);
INSERT INTO global_stats DEFAULT VALUES;
CREATE TABLE trend_data (
    rank INTEGER NOT NULL,
    step INTEGER NOT NULL,
    target_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    PRIMARY KEY (rank, step, target_id, metric_id),
    FOREIGN KEY (target_id) REFERENCES monitoring_targets(target_id),
    FOREIGN KEY (metric_id) REFERENCES monitoring_metrics(metric_id)
) WITHOUT ROWID;
"""
# Files of earlier versions have none.
_TENSORS_OF_OLDER = f"""
CREATE TABLE IF NOT EXISTS {TENSORS} (
    target_id INTEGER NOT NULL,
    metric_id INTEGER NOT NULL,
    shape TEXT NOT NULL,
    dtype TEXT NOT NULL,
    PRIMARY KEY (target_id, metric_id)
) WITHOUT ROWID;
"""

#: Chunk, name, step, micro step (as the file is to have them), and the values in the order of the operators.
TrendRow = tuple[int, str, int, int, Sequence[float | None]]


@contextmanager
def new_database(path: Path) -> Iterator[TrendDatabase]:
    """A database that takes the place of ``path`` when it is whole: a failure leaves the old file."""
    beside = path.with_name(f".msprobe-{os.getpid()}.trend.db.tmp")
    try:
        with closing(TrendDatabase(beside)) as database:
            yield database
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


class TrendDatabase:
    """Writes one such file. Used by one thread; raises PathError.

    ``extend``: take an existing file as it is and add to it; else it is replaced.
    """

    def __init__(self, path: StrPath, *, extend: bool = False) -> None:
        self._path = Path(path)
        new = not (extend and self._path.exists())
        if new:
            create_file(self._path).close()
        try:
            self._base = sqlite3.connect(self._path)
            self._base.execute("PRAGMA synchronous = NORMAL")
            if new:
                self._base.executescript(_SCHEMA)
            self._base.execute(_TENSORS_OF_OLDER)
            self._load()
        except sqlite3.Error as problem:
            raise self._failed(problem) from problem

    def add(self, rank: int, quantity: str, ops: Sequence[str], rows: Iterable[TrendRow]) -> None:
        """Add rows of one quantity; a row that is there already is replaced."""
        try:
            self._add(rank, quantity, ops, rows)
        except sqlite3.Error as problem:
            raise self._failed(problem) from problem

    def describe(self, quantity: str, stage: int, name: str, micro: int, shape: str, dtype: str) -> None:
        """Remember shape and type of a tensor that was added."""
        try:
            place = self._target(name, stage, micro), self._metrics[quantity]
            self._base.execute(f"INSERT OR REPLACE INTO {TENSORS} VALUES (?, ?, ?, ?)", (*place, shape, dtype))
        except sqlite3.Error as problem:
            raise self._failed(problem) from problem

    def commit(self) -> None:
        """Make what was added visible, and bring the extremes up to date."""
        try:
            if self._steps:
                values = (min(self._steps), max(self._steps), max(self._ranks))
                self._base.execute("UPDATE global_stats SET min_step = ?, max_step = ?, max_rank = ?", values)
            for quantity, statistics in self._statistics.items():
                names = ",".join(sorted(statistics, key=_place))
                self._base.execute(f"UPDATE global_stats SET {identifier(quantity)} = ?", (names,))
            self._base.commit()
        except sqlite3.Error as problem:
            raise self._failed(problem) from problem

    def close(self) -> None:
        """Commit, and end."""
        try:
            self.commit()
        finally:
            self._base.close()

    def _load(self) -> None:
        read = self._base.execute
        self._targets = {
            (name, stage, micro): at for at, name, stage, micro in read("SELECT * FROM monitoring_targets")
        }
        self._metrics: dict[str, int] = {name: at for at, name in read("SELECT * FROM monitoring_metrics")}
        self._columns = {row[1] for row in read("PRAGMA table_info(trend_data)")}
        self._tagged = set(
            read("SELECT metric_id, target_id FROM tag_target_mapping JOIN monitoring_tags USING (tag_id)")
        )
        self._tags = {(name, kind, of): at for at, name, kind, of in read("SELECT * FROM monitoring_tags")}
        extremes = read("SELECT min_step, max_step, max_rank FROM global_stats").fetchone()
        self._steps: set[int] = set(extremes[:2]) if self._targets else set()
        self._ranks: set[int] = {extremes[2]} if self._targets else set()
        self._statistics: dict[str, set[str]] = {}
        for quantity in self._metrics:
            (text,) = read(f"SELECT {identifier(quantity)} FROM global_stats").fetchone()
            self._statistics[quantity] = set(filter(None, (text or "").split(",")))

    def _add(self, rank: int, quantity: str, ops: Sequence[str], rows: Iterable[TrendRow]) -> None:
        metric = self._metric(quantity, ops)
        columns = ", ".join(map(identifier, ops))
        marks = ", ".join("?" * (4 + len(ops)))
        steps: set[int] = set()
        made = []
        for stage, name, step, micro, values in rows:
            target = self._target(name, stage, micro)
            if (metric, target) not in self._tagged:
                self._tag(metric, target, name)
            steps.add(step)
            made.append((rank, step, target, metric, *map(_clamped, values)))
        comma = ", " if ops else ""
        self._base.executemany(
            f"INSERT OR REPLACE INTO trend_data (rank, step, target_id, metric_id{comma}{columns}) VALUES ({marks})",
            made,
        )
        if steps:
            self._ranks = {max({rank} | self._ranks)}
            self._steps = {min(self._steps | steps), max(self._steps | steps)}

    def _metric(self, quantity: str, ops: Sequence[str]) -> int:
        metric = self._metrics.get(quantity)
        if metric is None:
            metric = self._metrics[quantity] = self._insert(
                "INSERT INTO monitoring_metrics (metric_name) VALUES (?)", quantity
            )
            self._base.execute(f"ALTER TABLE global_stats ADD COLUMN {identifier(quantity)} TEXT DEFAULT NULL")
            self._statistics[quantity] = set()
        for op in sorted(set(ops) - self._columns, key=_place):
            self._base.execute(f"ALTER TABLE trend_data ADD COLUMN {identifier(op)} REAL DEFAULT NULL")
            self._columns.add(op)
        self._statistics[quantity].update(ops)
        return metric

    def _target(self, name: str, stage: int, micro: int) -> int:
        target = self._targets.get((name, stage, micro))
        if target is None:
            target = self._targets[name, stage, micro] = self._insert(
                "INSERT INTO monitoring_targets (target_name, vpp_stage, micro_step) VALUES (?, ?, ?)",
                name,
                stage,
                micro,
            )
        return target

    def _tag(self, metric: int, target: int, name: str) -> None:
        self._tagged.add((metric, target))
        for tag, category in tags_of(name):
            at = self._tags.get((tag, category, metric))
            if at is None:
                at = self._tags[tag, category, metric] = self._insert(
                    "INSERT INTO monitoring_tags (tag_name, category, metric_id) VALUES (?, ?, ?)",
                    tag,
                    category,
                    metric,
                )
            self._base.execute("INSERT OR IGNORE INTO tag_target_mapping VALUES (?, ?)", (at, target))

    def _insert(self, statement: str, *values: object) -> int:
        return int(self._base.execute(statement, values).lastrowid or 0)

    def _failed(self, problem: sqlite3.Error) -> PathError:
        return PathError(said("monitor-database-unwritable", self._path, problem))


def tags_of(name: str) -> list[tuple[str, str]]:
    """The tags of a dotted name with their category: each part that is no number is a module, each number with the word
    before it a layer.
    """
    parts = name.split(".")
    tags = [(part, "module") for part in parts if not part.isdecimal()]
    tags += [
        (f"{word}.{number}", "layer")
        for word, number in pairwise(parts)
        if number.isdecimal() and word and not word.isdecimal()
    ]
    return list(dict.fromkeys(tags))


def _place(op: str) -> tuple[int, str]:
    return (STATISTICS.index(op) if op in STATISTICS else len(STATISTICS), op)


def _clamped(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return math.copysign(INFINITE, value)
    return max(-_LARGEST, min(_LARGEST, float(value)))


def identifier(name: str) -> str:
    """A column's name as SQL takes any text for one."""
    return '"' + name.replace('"', '""') + '"'
