from __future__ import annotations

import csv
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from support.coded_texts import mentions, raising
from support.graph_dumps import (
    BACKWARD_LINES,
    BUILT,
    DUMPED,
    FORWARD_LINES,
    LOOP_LINES,
    TRAINING,
    make_dump,
    program_line,
)

from msprobe.errors import InvalidInputError, PathError
from msprobe.report.code_mapping import map_code

COLUMNS = ["File Path", "Code Stack", "Scope Name"]
HEADER = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,L2Norm Value"
)


def sheet(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def kernel_row(kind: str, name: str, values: str = "1,-inf,0.5", time: int = 1) -> str:
    return f'{kind},{name},0,0,{time},input,0,24,float32,"(3,2)",{values},'


def statistics(folder: Path, *rows: str) -> Path:
    file = folder / "statistic.csv"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return file


ROWS = (
    kernel_row("Tanh", "Default_network-Net_Tanh-op0"),
    kernel_row("Parameter", "fc1_weight", "nan,1e-05,inf"),
    kernel_row("AddN", "Gradients_Default_network-Net_AddN-op1"),
)


def test_every_file_of_a_real_dump_but_the_parameters_has_a_code_stack(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    result = map_code(BUILT, dump, tmp_path / "new" / "out")
    (written,) = result.written
    assert written.parent == tmp_path / "new" / "out"
    assert written.name.startswith("code_mapping_")
    assert len(written.stem.removeprefix("code_mapping_")) == 14
    header, *rows = sheet(written)
    assert header == COLUMNS
    assert sorted(row[0] for row in rows) == sorted(str(path) for path in dump.rglob("*.npy"))
    for path, code, scope in rows:
        parameter = Path(path).name.startswith("Parameter.")
        assert bool(code) is bool(scope) is not parameter
    lines = {
        (int(Path(path).parent.parent.name), Path(path).name.split(".")[1]): program_line(code)
        for path, code, _ in rows
    }
    for graph, wanted in {0: FORWARD_LINES | BACKWARD_LINES, **LOOP_LINES}.items():
        assert {name: lines[graph, name] for name in wanted} == wanted
    assert (result.tally.kernels, result.tally.mapped, result.tally.parameters) == (152, 135, 17)
    assert result.tally.not_found == result.tally.without_code == result.tally.other_graphs == 0


def test_the_texts_that_the_dump_leaves_itself_say_the_same(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    codes = [
        {row[0]: row[1] for row in sheet(map_code(texts, dump, tmp_path / texts.name).written[0])}
        for texts in (BUILT, DUMPED)
    ]
    assert codes[0] == codes[1]


def test_no_result_takes_the_place_of_another(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    written = {map_code(TRAINING, dump, tmp_path).written[0] for _ in range(3)}
    assert written == set(tmp_path.glob("code_mapping_*.csv"))
    assert len(written) == 3


def test_rows_stand_in_the_order_of_execution(tmp_path: Path) -> None:
    dump = tmp_path / "rank_0" / "Net" / "0"
    names = ["9/Tanh.b.0.0.1795.output.0.X.npy", "9/Add.a.0.0.1796.input.0.X.npy", "10/Add.a.0.0.1797.input.0.X.npy"]
    for name in reversed(names):
        (dump / name).parent.mkdir(parents=True, exist_ok=True)
        (dump / name).touch()
    (written,) = map_code(TRAINING, tmp_path / "rank_0", tmp_path).written
    assert [row[0] for row in sheet(written)[1:]] == [str(dump / name) for name in names]


def test_the_text_of_one_graph_does_not_answer_for_the_kernels_of_another(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    (loop_body,) = BUILT.glob("graph_build_3_*.ir")
    result = map_code(loop_body, dump, tmp_path)
    mapped = {Path(row[0]).parent.parent.name for row in sheet(result.written[0])[1:] if row[2]}
    assert mapped == {"3"}
    assert result.tally.other_graphs == 152 - 17 - result.tally.mapped


def test_a_text_without_the_number_of_its_graph_is_asked_for_all(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    text = tmp_path / "anf_after_graph_build.ir"
    text.write_text(TRAINING.read_text().replace("@kernel_graph0", "@main"))
    assert map_code(text, dump, tmp_path).tally.other_graphs == 0


def test_each_rank_has_the_graphs_of_its_own(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    for rank in (0, 1, 3):
        # As a dump has them beside it, and as MS_DEV_SAVE_GRAPHS_PATH has them.
        folder = dump / f"rank_{rank}" / ("graphs" if rank < 3 else ".")
        folder.mkdir(parents=True, exist_ok=True)
        for text in (DUMPED if rank < 3 else BUILT).glob("*_graph_0.ir" if rank < 3 else "*build_0_*.ir"):
            (folder / text.name).write_text(text.read_text().replace("program.py:16", f"program.py:{rank + 100}"))
    for rank in (1, 2, 3):
        shutil.copytree(dump / "rank_0" / "Net" / "0", dump / f"rank_{rank}" / "Net" / "0")
    result = map_code(dump, dump, tmp_path / "out")
    lines: dict[str, set[int]] = {}
    for path, code, _ in sheet(result.written[0])[1:]:
        if "_fc1-Dense_MatMul-op0" in path:
            lines.setdefault(Path(path).relative_to(dump).parts[0], set()).add(program_line(code))
    assert lines == {"rank_0": {100}, "rank_1": {101}, "rank_2": {0}, "rank_3": {103}}
    # All of rank 2, for which there is no text, and the loop of rank 0.
    assert result.tally.other_graphs == 104 + 31


def test_a_graph_of_another_network_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "other.ir"
    text.write_text(TRAINING.read_text().replace("Default", "Other").replace("Expand", "Other"))
    assert map_code(text, make_dump(tmp_path), tmp_path).tally.mapped == 0
    assert mentions(capsys.readouterr().out, "graph-of-different-network")


def test_a_single_file_is_mapped(tmp_path: Path) -> None:
    name = "Tanh.Default_network-Net_Tanh-op0.0.0.1795191620393528.input.0.DefaultFormat.Float32.npy"
    (tmp_path / name).touch()
    (written,) = map_code(TRAINING, tmp_path / name, tmp_path).written
    ((path, code, scope),) = sheet(written)[1:]
    assert (path, program_line(code), scope) == (str(tmp_path / name), 16, "Default/network-Net/Tanh-op0")


def test_names_that_were_too_long_are_found_in_the_mapping_file(tmp_path: Path) -> None:
    (tmp_path / "12345678901234567890123456789012.npy").touch()
    (tmp_path / "777.npy").touch()
    real = "Tanh.Default_network-Net_Tanh-op0.0.0.1795191620393528.input.0.DefaultFormat.Float32.npy"
    (tmp_path / "mapping.csv").write_text(f"12345678901234567890123456789012.npy,{real}\n")
    result = map_code(TRAINING, tmp_path, tmp_path / "out")
    assert {Path(row[0]).name: row[2] for row in sheet(result.written[0])[1:]} == {
        "12345678901234567890123456789012.npy": "Default/network-Net/Tanh-op0",
        "777.npy": "",
    }


def test_a_statistics_file_gains_exactly_two_columns(tmp_path: Path) -> None:
    file = statistics(tmp_path / "rank_0" / "Net" / "0" / "0", *ROWS)
    before = sheet(file)
    result = map_code(TRAINING, tmp_path)
    assert result.written == (file,)
    after = sheet(file)
    assert after[0] == [*before[0], "Code Stack", "Scope Name"]
    assert [row[:-2] for row in after[1:]] == [row[:-1] for row in before[1:]]
    assert [row[-1] for row in after[1:]] == [
        "Default/network-Net/Tanh-op0",
        "",
        "Gradients/Default/network-Net/AddN-op1",
    ]
    assert program_line(after[1][-2]) == 16
    assert after[2][-2] == ""
    assert (result.tally.mapped, result.tally.parameters) == (2, 1)
    assert sorted(path.name for path in file.parent.iterdir()) == ["statistic.csv"]


def test_mapping_again_replaces_the_columns(tmp_path: Path) -> None:
    file = statistics(tmp_path, *ROWS)
    map_code(TRAINING, file)
    once = file.read_bytes()
    map_code(TRAINING, file)
    assert file.read_bytes() == once


def test_long_stacks_can_be_mapped_again(tmp_path: Path) -> None:
    text = tmp_path / "deep.ir"
    line = "      # In file /home/user/program.py:16, 1~2/" + "x" * 400 + "/\n"
    text.write_text("  %1(a) = Tanh(%x)\n      # scope: (Default/network-Net/Tanh-op0)\n" + line * 900)
    file = statistics(tmp_path, *ROWS)
    map_code(text, file)
    once = file.read_bytes()
    assert len(once) > 300_000
    map_code(text, file)
    assert file.read_bytes() == once


def test_of_several_texts_the_first_answers_where_the_dump_does_not_name_its_graph(tmp_path: Path) -> None:
    file = statistics(tmp_path / "flat", kernel_row("ReduceSum", "Expand__SumExt_ReduceSum-op0"))
    map_code(DUMPED, file)
    assert program_line(sheet(file)[1][-2]) == 22


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    graph = tmp_path / "rank_0" / "Net" / "0"
    file = statistics(graph / "0", *ROWS[:1] * 10_000)
    for number in range(4000):
        (graph / str(number % 10)).mkdir(exist_ok=True)
        (graph / str(number % 10) / f"Tanh.Default_network-Net_Tanh-op0.0.0.{number}.input.0.X.npy").touch()
    map_code(TRAINING, file)
    for dump in (file, graph):
        peaks = []
        for _ in range(2):  # whatever else the process does meanwhile counts, too
            tracemalloc.start()
            (written,) = map_code(TRAINING, dump, tmp_path).written
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            if peaks[-1] < written.stat().st_size:
                break
        assert min(peaks) < written.stat().st_size


def test_statistics_are_not_touched_where_there_are_values(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    file = statistics(dump / "rank_0" / "Net" / "0" / "0", *ROWS)
    before = file.read_bytes()
    assert map_code(TRAINING, dump, tmp_path / "out").written[0].suffix == ".csv"
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", 'no column "Op Name"'),
        (HEADER + "\nTanh,x\n", r":2: 2 cells, the first line has 13"),
        ("\x00\xff", "no readable csv|no column"),
    ],
)
def test_of_several_statistics_files_none_is_changed_if_one_is_wrong(tmp_path: Path, content: str, words: str) -> None:
    good = statistics(tmp_path / "0" / "0", *ROWS)
    bad = statistics(tmp_path / "1" / "0")
    bad.write_text(content, encoding="latin-1")
    before = good.read_bytes()
    with pytest.raises(InvalidInputError, match=words) as raised:
        map_code(TRAINING, tmp_path)
    assert "\n" not in str(raised.value)
    assert str(bad) in str(raised.value)
    assert good.read_bytes() == before


def test_nothing_is_written_if_the_text_is_no_graph(tmp_path: Path) -> None:
    file = statistics(tmp_path / "dump", *ROWS)
    before = file.read_bytes()
    with raising(InvalidInputError, "no-graph-nodes"):
        map_code(Path(__file__), file)
    assert file.read_bytes() == before
    with raising(InvalidInputError, "no-graph-nodes"):
        map_code(Path(__file__), make_dump(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_paths_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "x.pt").touch()
    for arguments, words in (
        ((tmp_path / "no.ir", dump), "no.ir.* does not exist"),
        ((TRAINING, tmp_path / "nothing"), "nothing.* does not exist"),
        ((TRAINING, empty), "holds no .npy files of kernels and no statistic.csv"),
        ((TRAINING, tmp_path / "x.pt"), "must end in .npy or .csv"),
        ((empty, dump), r"holds no graph_build_\*\.ir"),
        ((TRAINING, dump, TRAINING / "below"), "is a file; choose another folder"),
    ):
        with pytest.raises(PathError, match=words):
            map_code(*arguments)


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    dump = make_dump(tmp_path)
    hidden = dump / "rank_0" / "Net" / "0"
    hidden.chmod(0)
    try:
        with pytest.raises(PathError, match="cannot be read: permission denied"):
            map_code(TRAINING, dump, tmp_path)
    finally:
        hidden.chmod(0o755)


def test_of_several_compilations_the_newest_text_of_a_graph_counts(tmp_path: Path) -> None:
    for name in ("graph_build_0_0009.ir", "graph_build_0_0011.ir", "graph_build_0_0010.ir"):
        text = TRAINING.read_text()
        (tmp_path / name).write_text(text if "0011" in name else text.replace("program.py", "old.py"))
    shutil.copy(TRAINING, tmp_path / "ms_output_trace_code_graph_1.ir")
    result = map_code(tmp_path, make_dump(tmp_path), tmp_path)
    assert "old.py" not in result.written[0].read_text()
    assert result.tally.mapped == 104


def test_a_text_that_is_cut_off_and_one_of_an_early_pass_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = make_dump(tmp_path)
    text = tmp_path / "cut.ir"
    text.write_bytes(TRAINING.read_bytes()[:30000])
    assert 0 < map_code(text, dump, tmp_path).tally.not_found < 104
    assert mentions(capsys.readouterr().out, "graph-text-cut-off")
    early = TRAINING.read_text().replace(
        "# Fullname with scope: (Default/network-Net/Tanh-op0", "# Scope: (Default/network-Net"
    )
    text.write_text("".join(line for line in early.splitlines(True) if "Fullname" not in line))
    assert map_code(text, dump, tmp_path).tally.mapped > 0
    assert mentions(capsys.readouterr().out, "graph-of-early-pass")
