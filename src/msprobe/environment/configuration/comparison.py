"""Two packs compared: all parts, and what of their differences most likely explains a divergence, first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from msprobe.coverage import Coverage, NotRead
from msprobe.environment.configuration import (
    environment_variables,
    packages,
    random_calls,
    settings,
    statistics,
    variables,
)
from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, Level
from msprobe.environment.configuration.pack import Pack
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import joined, said
from msprobe.paths import StrPath

#: In the order of the sheets of 8.1.1; the last is ours.
PARTS = ("env", "pip", "dataset", "weights", "hyperparameters", "random", "random_state")
_DYNAMIC = ("dataset", "weights", "random")
_INFORMATIVE = ("random", "random_state")
_SEEDS = re.compile(r"(?:^|[\W_])seed", re.IGNORECASE)
_STARTS = re.compile(r"(?:^|[\W_])init", re.IGNORECASE)
_DATA = re.compile(r"(?:^|[\W_])(?:shuffle|datasets?|data)(?:$|[\W_])", re.IGNORECASE)
_LESS = 45
_SET_BY_8_1_1 = {"PYTHONHASHSEED": "1234", "HCCL_DETERMINISTIC": "False"}


@dataclass(frozen=True)
class Options:
    """``tolerance``: of statistics, relative; ``variables``: a YAML file that extends the table of variables;
    ``packages``: names of further packages that count.
    """

    tolerance: float = 0.0
    variables: StrPath | None = None
    packages: tuple[str, ...] = ()


@dataclass
class ConfigurationComparison:
    """What came out: parts in the order of their sheets, all findings by weight, notes of what was not compared."""

    bench: str
    cmp: str
    parts: list[DifferenceSheet] = field(default_factory=list)
    findings: list[ConfigurationFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def level(self) -> Level:
        """The worst of all parts."""
        return next(
            (level for level in ("error", "warning") if any(part.level == level for part in self.parts)), "pass"
        )

    @property
    def differs(self) -> bool:
        """Whether a part has an error."""
        return self.level == "error"


def open_packs(bench: StrPath, cmp: StrPath) -> tuple[Pack, Pack]:
    """Both packs, open. Raises PathError, InvalidInputError, with what is wrong with each."""
    packs: list[Pack] = []
    problems: list[MsprobeError] = []
    for path in (bench, cmp):
        try:
            packs.append(Pack(path))
        except MsprobeError as problem:
            problems.append(problem)
    if problems:
        for pack in packs:
            pack.close()
        messages = dict.fromkeys(problem.message for problem in problems)
        raise type(problems[0])(joined(" ", messages)) from problems[0]
    return packs[0], packs[1]


def compare_packs(bench: Pack, cmp: Pack, options: Options = Options()) -> ConfigurationComparison:
    """Compare what both packs have. Raises InvalidInputError for broken entries and options that cannot be used."""
    if not 0 <= options.tolerance < 1:
        raise InvalidInputError(said("tolerance-wrong", options.tolerance))
    result = ConfigurationComparison(bench.path, cmp.path)
    for name in PARTS:
        present = bench.has(name), cmp.has(name)
        if all(present):
            result.parts.append(_COMPARERS[name](bench, cmp, options))
        elif any(present):
            result.parts.append(_missing(name, "cmp" if present[0] else "bench"))
    neither = [name for name in (*_DYNAMIC, "hyperparameters") if not bench.has(name) and not cmp.has(name)]
    if neither:
        hint = said("collect-in-training") if neither[0] in _DYNAMIC else said("give-launch-script")
        result.notes.append(said("packs-lack", ", ".join(neither), hint))
    not_read = [NotRead(", ".join(neither), said("in-neither-pack"))] if neither else []
    optimizer = NotRead(said("the-optimizer"), said("optimizer-not-in-packs"))
    result.coverage = Coverage({sheet.name: 1 for sheet in result.parts}, (*not_read, optimizer))
    result.notes += [note for part in result.parts for note in part.notes]
    findings = [finding for part in result.parts for finding in part.findings]
    result.findings = sorted(
        _weighed(findings, result), key=lambda finding: (-finding.weight, finding.level, finding.part, finding.name)
    )
    return result


def _missing(name: str, side: str) -> DifferenceSheet:
    """What one pack alone has cannot be called equal."""
    part = DifferenceSheet(name, (), missing_in="cmp" if side == "cmp" else "bench")
    sides = ("collected", "missing") if side == "cmp" else ("missing", "collected")
    level: Level = "warning" if name in _INFORMATIVE else "error"
    part.add(ConfigurationFinding(name, level, said("whole-part"), *sides, said("collect-for-side", side), 48))
    return part


def _weighed(findings: list[ConfigurationFinding], result: ConfigurationComparison) -> list[ConfigurationFinding]:
    """Put a cause before its effect, and what cannot be the cause back."""
    parts = {part.name: part for part in result.parts}
    weights = statistics.is_equal_at_start(parts.get("weights"))
    data = statistics.is_equal_at_start(parts.get("dataset"))
    other_weights = "weights" in parts and not weights and any(finding.weight == 97 for finding in findings)
    weighed = []
    for finding in findings:
        is_setting = finding.part in ("hyperparameters", "random_state")
        if is_setting and _SEEDS.search(finding.name) and other_weights:
            finding = replace(finding, weight=98, why=said("may-explain-start-weights", finding.why))
        elif is_setting and weights and (_STARTS.search(finding.name) or (data and _SEEDS.search(finding.name))):
            finding = replace(finding, weight=finding.weight - _LESS, why=said("but-start-weights-agree", finding.why))
        elif is_setting and data and _DATA.search(finding.name):
            finding = replace(finding, weight=finding.weight - _LESS, why=said("but-first-inputs-agree", finding.why))
        weighed.append(finding)
    return weighed


def _environment(bench: Pack, cmp: Pack, options: Options) -> DifferenceSheet:
    table = variables.TABLE if options.variables is None else variables.extended(str(options.variables))
    sides = []
    notes = []
    for pack in (bench, cmp):
        own = pack.environment()
        if not pack.is_ours and own.items() >= _SET_BY_8_1_1.items():
            own = {name: value for name, value in own.items() if name not in _SET_BY_8_1_1}
            names = ", ".join(_SET_BY_8_1_1)
            notes.append(said("set-by-published-command", pack.path, names))
        sides.append(own)
    part = environment_variables.compare(sides[0], sides[1], table)
    part.notes += notes
    return part


def _packages(bench: Pack, cmp: Pack, options: Options) -> DifferenceSheet:
    kinds = {environment_variables.device_kind(pack.environment()) for pack in (bench, cmp) if "env" in pack}
    return packages.compare(bench.packages(), cmp.packages(), len(kinds) > 1, options.packages)


_COMPARERS: dict[str, Callable[[Pack, Pack, Options], DifferenceSheet]] = {
    "env": _environment,
    "pip": _packages,
    "dataset": lambda bench, cmp, options: statistics.compare("dataset", bench, cmp, options.tolerance),
    "weights": lambda bench, cmp, options: statistics.compare("weights", bench, cmp, options.tolerance),
    "hyperparameters": lambda bench, cmp, _: settings.compare(bench, cmp),
    "random": lambda bench, cmp, _: random_calls.compare(bench, cmp),
    "random_state": lambda bench, cmp, _: random_calls.compare_states(bench, cmp),
}
