from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising
from unit.diagnose.training import Plan, train
from unit.report.verdicts import finding, verdict

import msprobe
from msprobe.errors import InvalidInputError, NotAvailableError, PathError
from msprobe.messages import explained
from msprobe.report.console import verdict_text
from msprobe.results import Comparison, Finding, Table, tables, verdicts

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J"


class Page(HTMLParser):
    """The tags of a piece of HTML, and whether they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two small runs; the candidate has a call that gives something else."""
    folder = tmp_path_factory.mktemp("pair")
    return train(folder / "candidate", Plan(results={"blocks.0.tanh": lambda x: x * np.float32(1.5)})), train(
        folder / "reference", Plan()
    )


def test_a_name_that_there_is_not_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="'opne'"):
        msprobe.opne
    assert {"compare", "check", "open"} <= set(dir(msprobe))


def test_a_comparison_says_what_the_command_prints(pair: tuple[Path, Path]) -> None:
    found = msprobe.compare(*pair)
    assert found.status == "diverged"
    assert str(found) == verdict_text(found).rstrip()
    assert repr(found).startswith(f"<Comparison {found.headline}; ")
    assert str(found.findings[0].message) in str(found).replace("\n  ", " ")
    assert str(found.findings[0]) in str(found)


def test_results_of_the_same_dumps_are_equal_and_have_one_hash(pair: tuple[Path, Path]) -> None:
    one, other = msprobe.compare(*pair), msprobe.compare(*pair)
    assert one == other
    assert hash(one) == hash(other)
    assert len({*one.findings, *other.findings}) == len(one.findings)
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(msprobe.check(pair[0])) == hash(msprobe.check(pair[0]))


def test_results_that_hold_nan_are_equal_to_their_copies(tmp_path: Path) -> None:
    """A NaN is not equal to another, and travels as another."""
    plan = Plan(steps=2, values=True, results={"blocks.0.tanh": lambda x: x * np.float32(np.nan)})
    with np.errstate(all="ignore"):
        broken = train(tmp_path / "broken", plan)
    found = msprobe.compare(broken, train(tmp_path / "other", Plan(steps=2)))
    run = msprobe.open(broken)
    record = run[0]["Torch.tanh.0.forward"]
    assert "NaN" in repr(record.content).replace("nan", "NaN")
    results: list[Any] = [found, found.findings[0], found.table, found.call_table(), found.tensor_table()]
    results += [msprobe.check(broken), run, run[0], record, record["output.0"], run[0].table]
    for result in results:
        for again in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
            assert again == result, type(result)
            assert hash(again) == hash(result), type(result)
    assert record["output.0"] != run[0]["Torch.tanh.1.forward"]["output.0"]
    assert found != msprobe.compare(tmp_path / "other", tmp_path / "other")
    # A part is its place: its files may have any size.
    assert len(pickle.dumps(run[0])) < 500 < (run[0].path / "dump.json").stat().st_size
    assert pickle.loads(pickle.dumps(record))["output.0"].values is not None


def test_tables_go_by_the_second_healthy_run_and_leave_out_what_cannot_be_read(tmp_path: Path) -> None:
    off = Plan(steps=2, results={"blocks.1.linear": lambda array: array * np.float32(1.0001)})
    new, old, healthy = (
        train(tmp_path / name, *[plan] * 2)
        for name, plan in (("new", off), ("old", Plan(steps=2)), ("healthy", Plan(steps=2, noise=1e-4)))
    )
    assert "unexplained" in msprobe.compare(new, old).call_table()["status"]
    found = msprobe.compare(new, old, noise=healthy)
    assert found.noise == str(healthy)
    assert "unexplained" not in found.call_table(step=1, rank=1)["status"]
    (new / "step0" / "rank0" / "dump.json").write_text("{")
    found = msprobe.compare(new, old)
    assert found.notes[0].startswith("candidate: step 0, rank 0 cannot be read")
    with pytest.raises(
        InvalidInputError, match="no step 0, rank 0 in common; they have step 0, rank 1; step 1, rank 0"
    ):
        found.call_table(step=0, rank=0)
    assert found.write_html(tmp_path / "page.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("path", "told"),
    [("", "is empty"), ("{folder}", "is a folder"), ("{folder}/none/out.html", "does not exist; make it first")],
)
def test_a_page_that_cannot_be_written_is_reported_before_the_work(
    pair: tuple[Path, Path], tmp_path: Path, path: str, told: str
) -> None:
    found = msprobe.compare(*pair)
    with pytest.raises(PathError, match=told):
        found.write_html(path.format(folder=tmp_path))


def test_results_cannot_be_changed(pair: tuple[Path, Path]) -> None:
    found = msprobe.compare(*pair)
    with pytest.raises(AttributeError):
        found.status = "agree"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        found.findings[0].kind = "data"  # type: ignore[misc]


def test_the_table_of_findings_has_a_row_for_each(pair: tuple[Path, Path]) -> None:
    found = msprobe.compare(*pair)
    assert [row["message"] for row in found.rows] == [one.message for one in found.findings]
    assert found.to_pandas()["kind"].tolist() == [one.kind for one in found.findings]


def test_all_calls_of_a_step_are_judged_as_the_comparison_judges_them(pair: tuple[Path, Path]) -> None:
    found = msprobe.compare(*pair)
    counts: dict[str, int] = {}
    for row in found.call_table(step=found.findings[0].step):
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    assert counts.get("unexplained", 0) == found.summary["unexplained"]
    assert counts.get("rounding", 0) == found.summary["rounding"]
    assert counts.get("explained", 0) == found.summary["explained"]


def test_a_step_that_the_runs_do_not_have_is_named(pair: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidInputError, match="no step 77"):
        msprobe.compare(*pair).call_table(step=77)


def test_a_path_without_a_dump_is_reported(tmp_path: Path) -> None:
    for ask in (msprobe.open, msprobe.check, lambda path: msprobe.compare(path, path)):
        with pytest.raises(PathError, match="does not exist"):
            ask(tmp_path / "nothing")


def test_all_paths_without_a_dump_are_reported_at_once(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"nothing.*nowhere.*neither"):
        msprobe.compare(tmp_path / "nothing", tmp_path / "nowhere", noise=tmp_path / "neither")
    for wrong in ("", None, 5, b"bytes", "a\0b", "x" * 300):
        with pytest.raises(PathError, match="the path"):
            msprobe.open(wrong)  # type: ignore[arg-type]
        with pytest.raises(PathError, match="the path"):
            msprobe.compare(pair[0], wrong)  # type: ignore[arg-type]


def test_arguments_of_another_type_are_reported(pair: tuple[Path, Path]) -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: msprobe.compare(*pair, jobs="2"), "jobs .* whole number of 1 or more, found '2'"),  # type: ignore[arg-type]
        (lambda: msprobe.compare(*pair, noise=pair[1]), "is compared itself"),
        (lambda: msprobe.compare(*pair).call_table(step="0"), "step must be a whole number, found '0'"),  # type: ignore[arg-type]
        (lambda: msprobe.check(pair[0], only=None), "only must be a list of names of checks, found None"),  # type: ignore[arg-type]
        (lambda: msprobe.check(pair[0], only=["overflow"], skip=["overflow"]), "leave no check"),
    ]
    for ask, words in cases:
        with pytest.raises(InvalidInputError, match=words):
            ask()


def test_a_part_that_is_broken_is_not_said_as_missing(tmp_path: Path) -> None:
    run = train(tmp_path / "run", Plan(steps=2))
    next(run.glob("step1/*/dump.json")).write_text("{")
    opened = msprobe.open(run)
    with pytest.raises(InvalidInputError, match="no readable JSON"):
        opened[1]
    with pytest.raises(KeyError, match="has no step 2"):
        opened[2]
    with raising(KeyError, "no-such-place"):
        opened[0, 1, 2]  # type: ignore[index]
    assert opened.step_table()["loss"][1] is None


def test_checks_are_chosen_by_name_and_unknown_names_refused(pair: tuple[Path, Path]) -> None:
    assert msprobe.check(pair[0], only=["overflow"]).summary["checks"] == ["overflow"]
    assert "overflow" not in msprobe.check(pair[0], skip=["overflow"]).summary["checks"]
    with pytest.raises(InvalidInputError, match="no check 'overflwo'"):
        msprobe.check(pair[0], only=["overflwo"])
    with pytest.raises(InvalidInputError, match="list of names"):
        msprobe.check(pair[0], only="overflow")


def test_nothing_from_a_dump_becomes_markup_in_a_notebook() -> None:
    nasty = finding(message=EVIL, where=EVIL, entry=EVIL, module=EVIL, stack=(EVIL,))
    plain = verdict(nasty, notes=(EVIL,))
    found = Comparison(**verdicts._values(plain))
    for html in (found._repr_html_(), found.findings[0]._repr_html_(), Table({EVIL: [EVIL]}, EVIL)._repr_html_()):
        assert set(Page(html).tags) <= {
            "div", "p", "b", "pre", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"
        }  # fmt: skip
        assert "\x1b" not in html


def test_what_a_notebook_shows_stays_small() -> None:
    many = Comparison(**verdicts._values(verdict(*[finding() for _ in range(2000)])))
    assert len(many._repr_html_()) < 30_000
    assert "(1999 alike)" in many._repr_html_()
    table = Table({"n": range(100_000)})
    assert "10 of 100000 rows, the first" in table._repr_html_()
    assert len(table._repr_html_()) < 2_000


def test_a_table_needs_no_package_and_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table({"a": [1, 2], "b": ["x", None]})
    assert table.rows == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert (len(table), table.names, table["a"]) == (2, ("a", "b"), (1, 2))

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(tables.importlib, "import_module", missing)
    for convert, name in ((table.to_polars, "polars"), (table.to_pandas, "pandas")):
        with raising(NotAvailableError, "table-needs-package", package=name):
            convert()


def test_a_table_for_polars_has_the_same_rows() -> None:
    pytest.importorskip("polars")
    table = Table({"a": [1, 2.5, None], "b": ["x", None, "y"]})
    assert table.to_polars().to_dicts() == table.rows


def test_a_run_is_looked_into_step_by_step(pair: tuple[Path, Path]) -> None:
    run = msprobe.open(pair[0])
    assert [part.step for part in run] == list(run.steps)
    part = run[run.steps[0]]
    assert part == run.part(run.steps[0], run.ranks(run.steps[0])[0])
    assert list(part) == [name for name in part if name in part]
    name = next(name for name in part if part[name].tensors)
    record = part[name]
    slot, tensor = next(iter(record.tensors.items()))
    assert record[slot] == tensor
    assert (tensor.dtype, tensor.shape) == ("int64", (6,))
    assert len([row for row in part.table if row["record"] == name]) == len(record.tensors)
    for told in (run, part, record):
        assert repr(told).startswith("<")
        Page(told._repr_html_())


def test_what_a_run_does_not_have_is_a_key_error_that_says_what_it_has(pair: tuple[Path, Path]) -> None:
    run = msprobe.open(pair[0])
    part = run[run.steps[0]]
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: run[99], "no step 99"),
        (lambda: part["nothing"], "no record 'nothing'"),
        (lambda: part[f"{next(iter(part))}s"], "did you mean"),
        (lambda: part[next(iter(part))]["nothing"], "no tensor 'nothing'"),
    ]
    for ask, words in cases:
        with pytest.raises(KeyError) as raised:
            ask()
        assert words in raised.value.args[0]


def test_a_finding_of_a_check_says_itself_in_full() -> None:
    told = Finding("overflow", "a NaN", "there", evidence={"check": "overflow"})
    assert f"overflow: {explained('check:overflow', 'meaning')}"[:60] in str(told)
    assert repr(told) == "<Finding overflow: a NaN>"
