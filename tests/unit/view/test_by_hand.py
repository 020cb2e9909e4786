from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.diagnose.training import Plan
from unit.view.pages import english, opened, pair, row

from msprobe.errors import InvalidInputError
from msprobe.messages import code_of
from msprobe.view import matches as kept
from msprobe.view.matches import Matches


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs in which one call has another name."""
    return pair(tmp_path, Plan(renamed={"blocks.0.tanh": "Functional.hardtanh"}), Plan())


def lone(place: dict, side: int) -> str:
    return next(
        name
        for name, whose in zip(place["names"], place["sides"], strict=True)
        if whose == side and name.endswith("forward")
    )


def test_a_pair_made_by_hand_is_judged_as_a_pair(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with opened(*runs) as shown:
        place = shown.place(0)
        one, other = lone(place, 1), lone(place, 2)
        before = shown.version(0)
        answer = shown.match(0, one, other, False)
        assert answer["pairs"][one] == other
        assert shown.version(0) > before
        place = shown.place(0)
        number = row(place, one)
        assert place["sides"][number] == 0
        assert place["twins"][str(number)] == other
        assert "made by hand" in " ".join(map(english, place["notes"]))
        assert (other, 2) not in set(zip(place["names"], place["sides"], strict=True))
        shown.match(0, one, None, False)
        assert shown.place(0)["sides"][row(shown.place(0), one)] == 1


def test_modules_are_matched_with_what_runs_inside_and_their_backward(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        names = shown.place(0)["names"]
        module = next(name for name in names if name.startswith("Module.blocks.0.Block.forward"))
        pairs = shown.match(0, module, module.replace("blocks.0", "blocks.1"), True)["pairs"]
        assert len(pairs) > 4
        assert pairs[module].startswith("Module.blocks.1")
        backward = module.replace("forward", "backward")
        assert pairs[backward] == backward.replace("blocks.0", "blocks.1")
        place = shown.place(0)
        assert place["twins"][str(row(place, module))].startswith("Module.blocks.1")
        assert shown.match(0, module, None, True)["pairs"] == {}
        assert shown.place(0)["names"] == names


def test_what_cannot_answer_is_refused(runs: tuple[Path, Path]) -> None:
    with opened(*runs) as shown:
        names = shown.place(0)["names"]
        module = next(name for name in names if name.startswith("Module.blocks.0.Block.forward"))
        call = next(name for name in names if name.startswith("Functional.mse_loss"))
        for one, other, words in (
            ("nothing", call, "the candidate has no record 'nothing'"),
            (call, "nothing", "the reference has no record 'nothing'"),
            (module, call, "choose two of a kind"),
            (call, None, "was not matched by hand"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                shown.match(0, one, other, False)
        assert not list(runs[0].parent.glob("*.vis.config"))


def test_a_single_run_has_nothing_to_match(runs: tuple[Path, Path]) -> None:
    with opened(runs[0]) as shown, pytest.raises(InvalidInputError, match="one run alone"):
        shown.match(0, "a", "b", False)


def test_pairs_survive_the_end_and_go_into_no_input(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "matches"
    folder.mkdir()
    with opened(*runs, matches=folder) as shown:
        name = next(name for name in shown.place(0)["names"] if name.startswith("Functional.mse_loss"))
        file = Path(shown.match(0, name, name, False)["file"])
    assert file.parent == folder
    assert file.name.endswith(".vis.config")
    assert json.loads(file.read_text())[name] == name
    assert file.stat().st_mode & 0o777 == 0o640
    with opened(*runs, matches=folder) as shown:
        assert shown.matches(0)["pairs"][name] == name


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "[" * 100_000])
def test_a_side_car_file_that_holds_something_else_is_reported(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.vis.config"
    file.write_text(content)
    with pytest.raises(InvalidInputError) as caught:
        Matches(file).read()
    assert code_of(caught.value.message)[1] in ("hand-pairs-are-no-object", "hand-pairs-broken")


def test_nothing_of_one_side_has_two_partners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Matches(tmp_path / "x.vis.config")
    assert found.change({"a": "x", "b": "y"}, set()) == {"a": "x", "b": "y"}
    assert found.change({"c": "x"}, set()) == {"b": "y", "c": "x"}
    assert found.change({}, {"b"}) == {"c": "x"}
    monkeypatch.setattr(kept, "MOST_PAIRS", 1)
    with pytest.raises(InvalidInputError, match="more than 1 pairs"):
        found.change({"d": "z"}, set())
    assert found.read() == {"c": "x"}
