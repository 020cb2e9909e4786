from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import mentions, raising

from msprobe.compare.problems import FileAndFolderError, InvalidPathError
from msprobe.compare.sides import MissingDumpError, files_of, is_folder_pair, open_pair, pair_ranks

FIELDS = ("npu_path", "bench_path")


def folders(root: Path, side: str, *names: str) -> Path:
    for name in names:
        (root / side / name).mkdir(parents=True)
    (root / side).mkdir(exist_ok=True)
    return root / side


def names(root: Path, ours: tuple[str, ...], theirs: tuple[str, ...], strict: bool = True) -> list[tuple[str, str]]:
    found, _ = pair_ranks(folders(root, "a", *ours), folders(root, "b", *theirs), strict)
    return [(pair.candidate.name, pair.reference.name) for pair in found]


def test_ranks_pair_by_number_and_in_its_order(tmp_path: Path) -> None:
    ranks = ("rank10", "rank2", "rank0")
    assert names(tmp_path, ranks, ranks) == [(name, name) for name in ("rank0", "rank2", "rank10")]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(("rank",), ("rank0",)), (("rank3",), ("rank7",)), (("rank",), ("rank",))]
)
def test_one_rank_pairs_with_the_one_of_the_other_side(
    ours: tuple[str, ...], theirs: tuple[str, ...], tmp_path: Path
) -> None:
    assert names(tmp_path, ours, theirs) == [(ours[0], theirs[0])]


def test_ranks_that_one_side_lacks_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert names(tmp_path, ("rank0", "rank1"), ("rank1", "rank2")) == [("rank1", "rank1")]
    said = capsys.readouterr().out
    assert "rank0" in said
    assert "rank2" in said


def test_processes_stand_in_for_ranks_in_the_newer_form(tmp_path: Path) -> None:
    assert names(tmp_path, ("proc17",), ("proc4",), strict=False) == [("proc17", "proc4")]


@pytest.mark.parametrize(
    ("ours", "theirs", "strict", "word"),
    [
        (("rank0",), ("rank0", "rank1"), True, "1 ranks.* 2"),
        (("rank0", "junk"), ("rank0",), True, "junk"),
        (("rank007",), ("rank007",), True, "rank007"),
        ((), (), True, "no rank folders"),
        (("rank0", "rank1"), ("rank2", "rank3"), False, "no rank in common"),
    ],
)
def test_folders_that_do_not_answer_to_each_other(
    ours: tuple[str, ...], theirs: tuple[str, ...], strict: bool, word: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPathError, match=word):
        names(tmp_path, ours, theirs, strict)


def test_kinds_of_paths(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text("{}")
    assert is_folder_pair(tmp_path, tmp_path, FIELDS)
    assert not is_folder_pair(file, str(file), FIELDS)
    with raising(FileAndFolderError, "file-against-folder", kind="a file"):
        is_folder_pair(file, tmp_path, FIELDS)
    with raising(MissingDumpError, "path-of-field-missing", field="bench_path"):
        is_folder_pair(file, tmp_path / "none", FIELDS)
    for wrong in (None, 5, ""):
        with raising(InvalidPathError, "field-is-no-path", field="npu_path"):
            is_folder_pair(wrong, file, FIELDS)  # type: ignore[arg-type]


def test_files_of_different_kinds_are_not_compared(tmp_path: Path) -> None:
    for name in ("dump.json", "debug.json", "other.json"):
        (tmp_path / name).write_text('{"task": "statistics", "data": {}}')
    with raising(InvalidPathError, "files-of-two-kinds"):
        open_pair(tmp_path / "dump.json", tmp_path / "debug.json")
    with raising(InvalidPathError, "file-of-dump-named"):
        open_pair(tmp_path / "dump.json", tmp_path / "other.json")
    assert set(files_of(tmp_path)) == {"dump", "debug"}


def test_the_folder_of_a_rank_stands_for_itself_in_the_newer_form(tmp_path: Path) -> None:
    for side in "ab":
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text('{"task": "statistics", "data": {}}')
    ((pair,), _) = pair_ranks(tmp_path / "a", tmp_path / "b", strict=False)
    assert (pair.candidate, pair.reference) == (tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("strict", [True, False])
def test_the_root_of_a_dump_is_answered_with_its_steps(strict: bool, tmp_path: Path) -> None:
    with pytest.raises(InvalidPathError) as caught:
        names(tmp_path, ("step0", "step1"), ("step0",), strict)
    assert mentions(caught.value.message, "give-step-folder")
    assert "step0" in caught.value.message
