from __future__ import annotations

from pathlib import Path

import pytest
from support.graph_dumps import BUILT, TRAINING, make_dump

from msprobe.cli import main
from msprobe.messages import said


def run(*words: object, framework: str = "mindspore") -> int:
    return main(["-f", framework, "code_mapping", *map(str, words)])


def test_the_result_and_what_was_found_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--ir", BUILT, "--dump_data", make_dump(tmp_path), "--output", tmp_path / "out") == 0
    path, counts = capsys.readouterr().out.splitlines()
    assert Path(path.removeprefix(said("code-mapping-file", ""))).is_file()
    assert counts == f"{said('kernels-found-in-graph', 135, 152)}; {said('kernels-are-parameters', 17)}"


def test_kernels_that_stay_without_lines_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = make_dump(tmp_path)
    (dump / "rank_0" / "Net" / "0" / "0" / "Tanh.Default_other_Tanh-op0.0.0.1.input.0.X.npy").touch()
    assert run("--ir", TRAINING, "--dump_data", dump, "--output", tmp_path) == 2
    assert capsys.readouterr().out.splitlines()[-2].split("; ") == [
        said("kernels-found-in-graph", 104, 153),
        said("kernels-are-parameters", 17),
        said("kernels-of-graphs-apart", 31),
        said("kernels-not-found", 1),
    ]


def test_the_result_goes_to_the_current_folder_if_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run("--ir", BUILT, "--dump_data", make_dump(tmp_path)) == 0
    assert len(list((tmp_path / "here").glob("code_mapping_*.csv"))) == 1


@pytest.mark.parametrize("words", [[], ["--ir", "x"], ["--dump_data", "x"], ["--ir", "x", "--dump_data", "y", "z"]])
def test_a_missing_or_unknown_argument_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == 2
    assert "(see `msprobe code_mapping -h`)" in capsys.readouterr().err


def test_errors_are_one_line_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = make_dump(tmp_path)
    out = tmp_path / "out"
    for words, told in (
        (["--ir", __file__, "--dump_data", dump], "no graph nodes found in"),
        (["--ir", tmp_path / "absent.ir", "--dump_data", dump], "does not exist"),
        (["--ir", TRAINING, "--dump_data", tmp_path / "absent"], "does not exist"),
        (["--ir", TRAINING, "--dump_data", BUILT], "holds no .npy files"),
    ):
        assert run(*words, "--output", out) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert not out.exists()


def test_it_is_a_command_of_mindspore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--ir", TRAINING, "--dump_data", make_dump(tmp_path), framework="pytorch") == 2
    assert "-f mindspore" in capsys.readouterr().err
