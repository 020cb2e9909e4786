"""Environment variables: as a pack keeps them, and those of two packs compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, short
from msprobe.environment.configuration.secrets import redacted_environment
from msprobe.environment.configuration.variables import LEVELS, NAMES, TABLE, DeviceKind, Level, Variable
from msprobe.environment.hyperparameters.effects import Effect

HEADER = ("bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level")
ONLY_BENCH, ONLY_CMP = "only bench has this env", "only cmp has this env"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_WEIGHTS: dict[Effect, int] = {
    "first step": 85, "later steps": 75, "rounding": 60, "unknown": 50, "speed": 25, "output": 5,
}  # fmt: skip
# Of the shell and of one process: equal in no two runs.
_OF_A_PROCESS = frozenset("_ SHLVL OLDPWD PWD PS1 WINDOWID TERM COLUMNS LINES".split())


def collected(environ: Mapping[str, str], keep_secrets: bool = False) -> dict[str, str]:
    """What of an environment goes into a pack: all of it, secrets hidden unless they are to be kept."""
    return dict(environ) if keep_secrets else redacted_environment(environ, NAMES)


def device_kind(variables: Mapping[str, str]) -> DeviceKind:
    """``npu`` where a name speaks of Ascend, else ``gpu``."""
    return "npu" if any("ASCEND" in name for name in variables) else "gpu"


def compare(bench: Mapping[str, str], cmp: Mapping[str, str], table: Sequence[Variable] = TABLE) -> DifferenceSheet:
    """The differences: those of the table as errors or warnings, all others for information."""
    part = DifferenceSheet("env", HEADER)
    kinds = device_kind(bench), device_kind(cmp)
    known: set[str] = set()
    for variable in table:
        known |= {name for name in (variable.npu, variable.gpu) if name}
        _compare_one(part, variable, bench, cmp, kinds)
    for name in sorted({*bench, *cmp} - known - _OF_A_PROCESS):
        first, two = bench.get(name), cmp.get(name)
        if first is None or two is None or not is_same(first, two):
            row = (name if first is not None else "", name if two is not None else "", first, two)
            part.rows.append((*row, "info"))
    part.rows.sort(key=lambda row: LEVELS.index(row[-1]))
    part.differing = len(part.rows)
    return part


def is_same(first: str, two: str) -> bool:
    """True for texts that mean one value: ``1`` and ``true``, ``1e3`` and ``1000``.

    >>> is_same("0", "False"), is_same("8.0", "8"), is_same("Ring", "ring"), is_same("1", "2")
    (True, True, False, False)
    """
    return first == two or _meaning(first) == _meaning(two)


def _meaning(text: str) -> str | float:
    text = text.strip()
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return float(word in _TRUE)
    if word == "none" or not word:
        return "None"
    try:
        return float(text) if len(text) < 40 and "_" not in text else text
    except ValueError:
        return text


def _compare_one(
    part: DifferenceSheet,
    variable: Variable,
    bench: Mapping[str, str],
    cmp: Mapping[str, str],
    kinds: tuple[DeviceKind, DeviceKind],
) -> None:
    first, second = (variable.name(kind) for kind in kinds)
    level: Level = variable.level
    row: tuple[str, str, str | None, str | None]
    if first is None or second is None:
        name, side = (first, bench) if second is None else (second, cmp)
        if name is None or name not in side:
            return
        level = "warning"
        row = (name, ONLY_BENCH, side[name], None) if second is None else (ONLY_CMP, name, None, side[name])
    else:
        ours = bench.get(first, variable.default(kinds[0]))
        two = cmp.get(second, variable.default(kinds[1]))
        if is_same(ours, two):
            return
        row = (first, second, ours, two)
    part.rows.append((*row, level))
    if level == "info":
        part.raise_to("pass")
        return
    weight = _WEIGHTS[variable.effect] - (10 if level == "warning" else 0)
    name = str(first) if first == second else " / ".join(filter(None, (first, second)))
    part.add(ConfigurationFinding("env", level, name, short(row[2]), short(row[3]), variable.why, weight))
