"""What the page shows of a step is what ``msprobe compare`` says of it, whenever it is judged."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train
from unit.view.pages import LARGER, english, pair, row

from msprobe.diagnose import compare_runs
from msprobe.diagnose.origin.step_facts import StepFacts
from msprobe.view.columns import OF_CANDIDATE, STATUSES, is_measured, rounded
from msprobe.view.dumps import Dumps
from msprobe.view.kept import KeptSteps
from msprobe.view.opening import WantedComparison, open_source

ARCHIVE = Path(__file__).parents[2] / "data" / "mindspore_and_pytorch.tar.xz"
Judged = dict[tuple[Any, Any], dict[str, tuple[str, float, float, float]]]


def compared(*runs: Path, **flags: Any) -> Judged:
    """By step and rank, and by the candidate's name, how a comparison judges each pair."""
    found: Judged = {}

    def keep(facts: StepFacts, notes: tuple[str, ...]) -> bool:
        timeline = facts.pairing.candidate
        found[timeline.step, timeline.rank] = {
            event.name: (_shown_status(one), one.input_difference, one.output_difference, one.allowed)
            for event, one in facts.judged.items()
        }
        return False

    compare_runs(*runs, keep=keep, **flags)
    return found


def _shown_status(one: Any) -> str:
    """Results that are equal are shown as such, whatever went in."""
    is_equal = not one.changed_outputs and any(is_measured(leaf) for _, leaf in one.event.outputs())
    return "same" if is_equal and one.status in ("rounding", "explained") else str(one.status)


def check_shown(shown: Dumps, expected: Judged) -> set[str]:
    """Compare the places that ``expected`` has with what is shown of them; gives all statuses."""
    places = {(place.step, place.rank): number for number, place in enumerate(shown.places)}
    statuses = set()
    for at, pairs in expected.items():
        columns = shown.place(places[at])
        for name, (status, inputs, outputs, allowed) in pairs.items():
            number = row(columns, name)
            # Nothing is said of a pair of which no numbers were recorded.
            assert columns["status"][number] in (STATUSES[status], *([0] if status == "same" else [])), (at, name)
            assert (columns["input_difference"][number], columns["output_difference"][number]) == (
                rounded(inputs),
                rounded(outputs),
            ), (
                at,
                name,
            )
            assert columns["allowed"][number] == (rounded(allowed) if outputs or allowed else None), (at, name)
            statuses.add(status)
    return statuses


def run(folder: Path, *plans: Plan) -> Path:
    return train(folder, *plans)


@pytest.fixture(params=["as the comparison kept it", "judged later"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens runs for the page; what the comparison knew is kept for it, or not, as where it went on too far."""
    if request.param == "judged later":
        monkeypatch.setattr(KeptSteps, "__call__", lambda self, facts, notes: False)
    sources = []

    def open_(*runs: Path, **flags: Any) -> Dumps:
        source = open_source(runs, wanted=WantedComparison(matches=runs[0].parent, **flags))
        assert isinstance(source, Dumps)
        sources.append(source)
        return source

    yield open_
    for source in sources:
        source.close()


def test_each_pair_has_the_same_status_and_sizes(tmp_path: Path, opened: Any) -> None:
    runs = pair(tmp_path)
    assert check_shown(opened(*runs), compared(*runs)) == {"same", "unexplained", "explained"}


def test_a_second_healthy_run_counts_in_every_step_and_rank(tmp_path: Path, opened: Any) -> None:
    off = {"blocks.1.linear": lambda array: array * np.float32(1.0001)}
    runs = pair(tmp_path, [Plan(steps=3, results=off)] * 2, [Plan(steps=3)] * 2)
    healthy = run(tmp_path / "healthy", *[Plan(steps=3, noise=1e-4)] * 2)
    expected = compared(*runs, noise=healthy)
    assert len(expected) == 6
    check_shown(opened(*runs, noise=healthy), expected)
    statuses = [{one[0] for one in judged.values()} for judged in (expected[2, 1], compared(*runs)[0, 1])]
    assert ["unexplained" in one for one in statuses] == [False, True], "the healthy run makes no difference"


def test_a_second_healthy_run_counts_after_the_step_in_which_runs_part(tmp_path: Path, opened: Any) -> None:
    runs = pair(tmp_path, Plan(steps=3, results=LARGER), Plan(steps=3))
    healthy = run(tmp_path / "healthy", Plan(steps=3, noise=1e-3))
    shown = opened(*runs, noise=healthy)
    assert shown.overview()["places"][2]["status"] == "not_compared"
    alone = compared(*(path / "step2" for path in runs), noise=healthy / "step2")
    check_shown(shown, alone)
    without = compared(*(path / "step2" for path in runs))
    assert alone != without, "the healthy run makes no difference"


def test_ranks_that_other_processes_compared_are_judged_alike(tmp_path: Path) -> None:
    off = {"blocks.1.linear": lambda array: array * np.float32(1.0001)}
    runs = pair(tmp_path, [Plan(results=off)] * 2, [Plan()] * 2)
    healthy = run(tmp_path / "healthy", *[Plan(noise=1e-4)] * 2)
    source = open_source(runs, wanted=WantedComparison(noise=healthy, jobs=2, matches=tmp_path))
    assert isinstance(source, Dumps)
    try:
        check_shown(source, compared(*runs, noise=healthy))
    finally:
        source.close()


def test_a_single_element_beyond_rounding_is_unexplained(tmp_path: Path, opened: Any) -> None:
    def one_element(array: np.ndarray) -> np.ndarray:
        found = array.copy()
        found.flat[np.abs(found).argmax()] *= np.float32(1 - 1.6e-5)
        return found

    runs = pair(tmp_path, Plan(values=True, results={"blocks.0.tanh": one_element}), Plan(values=True))
    expected = compared(*runs)
    assert expected[0, "rank"]["Torch.tanh.0.forward"][0] == "unexplained"
    check_shown(opened(*runs), expected)


def test_the_first_step_of_both_sides_follows_none(tmp_path: Path, opened: Any) -> None:
    """Between two frameworks a step that follows another is judged by how far its weights are apart."""
    with tarfile.open(ARCHIVE) as packed:
        members = [one for one in packed.getmembers() if one.name.startswith(("mix/pytorch_hea", "mix/mindspore_hea"))]
        packed.extractall(tmp_path, members, filter="data")
    runs = tmp_path / "mix" / "mindspore_healthy", tmp_path / "mix" / "pytorch_healthy"
    (runs[1] / "step0").rename(tmp_path / "step0")
    expected = compared(*runs)
    assert [step for step, _ in expected] == [1]
    check_shown(opened(*runs), expected)


def test_ranks_of_another_layout_are_not_shown_as_pairs(tmp_path: Path, opened: Any) -> None:
    for side, shape in (("one", (4, 4)), ("other", (8, 4))):
        for rank in range(2):
            rec = Recording()
            x = Value(drawn("x", 4, 4))
            with rec.module("up", "Linear", [x], {"weight": Value(drawn("up", *shape), grad=True)}) as done:
                done(x)
            rec.write(tmp_path / side / "step0" / f"rank{rank}")
    shown = opened(tmp_path / "one", tmp_path / "other")
    assert "layouts" in compare_runs(tmp_path / "one", tmp_path / "other").summary
    assert [place.side for place in shown.places] == [1, 2, 1, 2]
    assert "shown by itself" in english(shown.overview()["notes"][0])
    assert set(shown.place(0)["status"]) <= {0, OF_CANDIDATE}
