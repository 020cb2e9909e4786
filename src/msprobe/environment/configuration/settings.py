"""Hyper-parameters of two packs, file by file."""

from __future__ import annotations

from typing import Any

from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, cell_of, short
from msprobe.environment.configuration.pack import Pack
from msprobe.environment.hyperparameters import comparison
from msprobe.environment.hyperparameters.effects import Effect
from msprobe.messages import both, said

HEADER = ("file_name", "bench_para", "cmp_para", "bench_value", "cmp_value", "matched_with", "level")
_WEIGHTS: dict[Effect, int] = {
    "first step": 90, "later steps": 80, "rounding": 55, "unknown": 50, "speed": 20, "output": 5,
}  # fmt: skip
_WHY: dict[Effect, str] = {
    "first step": both("changes the numbers from the first step on", "从第一个 step 起改变数值"),
    "later steps": both("changes the numbers once weights are updated", "权重更新后改变数值"),
    "unknown": both("what it changes is not known", "影响未知"),
    "rounding": both("changes the last digits", "改变末位"),
    "speed": both("changes how long a step takes", "改变一个 step 的耗时"),
    "output": both("changes what is written, and where", "改变写什么、写到哪里"),
}
_ALONE = 15


def compare(bench: Pack, cmp: Pack) -> DifferenceSheet:
    """The differences of the files that both packs have. Raises InvalidInputError."""
    part = DifferenceSheet("hyperparameters", HEADER)
    first, second = bench.hyperparameters(), cmp.hyperparameters()
    for file in sorted({*first, *second}):
        if file not in first or file not in second:
            side = "cmp" if file in first else "bench"
            part.notes.append(said("file-in-one-pack", file, side))
            if not {*first} & {*second}:
                part.add(
                    ConfigurationFinding(part.name, "error", file, "", "", said("no-hyperparameters-in-common"), 45)
                )
            continue
        for row in comparison.compare(first[file], second[file]):
            part.rows.append(tuple(map(cell_of, row.cells(file))))
            part.add(_finding(part.name, row))
    part.rows.sort(key=lambda row: (row[0], row[6] != "error"))
    part.differing = len(part.rows)
    return part


def _finding(part: str, row: comparison.ParameterDifference) -> ConfigurationFinding:
    bench, cmp = _value(row.bench_value), _value(row.cmp_value)
    name = row.bench_para if row.bench_para == row.cmp_para else f"{row.bench_para} / {row.cmp_para}"
    if row.cmp_para == comparison.ONLY_BENCH:
        name, cmp = row.bench_para, "not there"
    elif row.bench_para == comparison.ONLY_CMP:
        name, bench = row.cmp_para, "not there"
    is_alone = row.matched_with is None
    weight = max(1, _WEIGHTS[row.effect] - _ALONE * is_alone - (5 if row.level == "warning" else 0))
    return ConfigurationFinding(part, row.level, short(name), bench, cmp, _WHY[row.effect], weight)


def _value(value: Any) -> str:
    return short("None" if value is None else value)
