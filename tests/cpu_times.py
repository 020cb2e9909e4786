"""How many CPU seconds each test takes, with the processes it starts: ``pytest --cpu-times LEG``.

Wall time depends on what else a machine does and on how many tests run side by side; CPU seconds hardly do. A test is
charged for what this process and the processes that have ended since used, and for what the process that forks programs
(:mod:`forked`) and its forks used; a fixture is charged to the test that asks for it first.

At the end come the sums of each folder beside its budget (``cpu_budgets.json``). All is kept in ``.cpu/LEG.json``;
``make cpu-times`` shows the sums that are there of all legs, and the slowest files and tests of all together. A budget
is for those who write tests: machines differ, so that one that is exceeded fails nothing.
"""

from __future__ import annotations

import contextlib
import json
import resource
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import forked

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / ".cpu"
BUDGETS = HERE / "cpu_budgets.json"
SLOWEST = 50
#: What a process needs before the first of its tests, and what no test is charged for.
BESIDES = "(start and collection)"


def used() -> float:
    """CPU seconds of this process, of its children that have ended, and of all programs that it has forked."""
    return (
        sum(
            spent.ru_utime + spent.ru_stime
            for spent in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        + forked.cpu_seconds()
    )


class CpuTimes:
    """Measures the tests of this process; where tests run in several, the one that reports has the sums of all."""

    def __init__(self, config: pytest.Config, leg: str) -> None:
        self._config = config
        self._leg = leg
        self._before = 0.0  # this process's start is charged to BESIDES
        self.tests: Counter[str] = Counter()
        self.all = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = used()
        report.cpu_seconds = now - self._before  # type: ignore[attr-defined]
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += getattr(report, "cpu_seconds", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.all += getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)

    def pytest_sessionfinish(self) -> None:
        """Before failures are shown, which stand last."""
        answers = getattr(self._config, "workeroutput", None)
        if answers is not None:
            answers["cpu_seconds"] = used()
            return
        kept = {"all": round(self.all or used(), 1), "tests": {n: round(spent, 3) for n, spent in self.tests.items()}}
        with contextlib.suppress(OSError):  # a checkout may be read-only
            KEPT.mkdir(exist_ok=True)
            (KEPT / f"{self._leg}.json").write_text(json.dumps(kept), encoding="utf-8")
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            reporter.section(f"CPU seconds of {self._leg}")
            for line in folders_of(self._leg, kept):
                reporter.write_line(line)


def folder_of(test: str) -> str:
    """The folder that has a budget: one below ``tests``, of unit tests two."""
    folders = test.partition("::")[0].split("/")[:-1]
    return "/".join(folders[: 3 if folders[1:2] == ["unit"] else 2])


def folders_of(leg: str, kept: Mapping[str, Any]) -> Iterator[str]:
    """A line for each folder of a leg, with its budget, and one for all."""
    budgets = json.loads(BUDGETS.read_text(encoding="utf-8")).get(leg, {})
    folders: Counter[str] = Counter()
    for name, seconds in kept["tests"].items():
        folders[folder_of(name)] += seconds
    folders[BESIDES] = kept["all"] - sum(folders.values())
    for folder, seconds in folders.most_common():
        budget = budgets.get(folder)
        over = budget is not None and seconds > budget
        yield f"{seconds:8.1f} s{'' if budget is None else f' of {budget}'}  {folder}{', OVER ITS BUDGET' * over}"
    yield f"{kept['all']:8.1f} s  in all, {len(kept['tests'])} tests"


def table(legs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The lines of several legs: their folders, and the slowest files and tests of all of them."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for leg, kept in legs.items():
        yield f"CPU seconds of {leg}:"
        yield from folders_of(leg, kept)
        for name, seconds in kept["tests"].items():
            files[f"{leg}: {name.partition('::')[0]}"] += seconds
            tests[f"{leg}: {name}"] += seconds
    for what, spent in (("files", files), ("tests", tests)):
        yield f"the {SLOWEST} slowest {what}:"
        for name, seconds in spent.most_common(SLOWEST):
            yield f"{seconds:8.1f} s  {name}"


def main() -> None:
    """Print what is kept."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(KEPT.glob("*.json"))}
    for line in table(kept):
        print(line)


if __name__ == "__main__":
    main()
