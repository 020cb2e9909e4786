"""``msprobe parse``: the shell and its commands, and the form without a shell."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from support.acl_files import EXAMPLE, NAME, Tensor, of, write
from support.coded_texts import mentions
from support.hand_made import call, tensor, write_part

from msprobe.cli import main
from msprobe.cli.parse_shell import FAILED_FILE, Shell
from msprobe.messages import said
from msprobe.report.kernel_tables import COLUMNS


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shell(*lines: str) -> int:
    return Shell().run(io.StringIO("\n".join(lines) + "\n"))


def table(folder: Path) -> list[dict[str, str]]:
    (file,) = folder.glob("batch_compare_*.csv")
    text = file.read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"))))


@pytest.mark.parametrize("words", [["-t", "npy"], []])
def test_one_shot_converts_a_file(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / NAME).write_bytes(EXAMPLE)
    assert main(["parse", "-d", NAME, "-o", "out", *words]) == 0
    kind = "npy" if words else "pt"
    assert {file.name for file in Path("out").iterdir()} == {
        f"{NAME}.{word}.{kind}" for word in ("input.0", "input.1", "output.0")
    }


def test_broken_files_are_reported_and_listed_and_the_others_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / NAME).write_bytes(EXAMPLE)
    for name, data in (("long", b"\xff" * 20), ("cut", EXAMPLE[:-1]), ("empty", b""), ("text", b"hello")):
        (folder / f"Op.{name}.1.2.3").write_bytes(data)
    assert main(["-f", "pytorch", "parse", "-d", "dump", "-t", "npy", "-o", "out"]) == 2
    assert len(list(Path("out").glob("*.npy"))) == 3
    assert Path("out", FAILED_FILE).read_text().splitlines() == [
        f"dump/Op.{name}.1.2.3" for name in ("cut", "empty", "long", "text")
    ]
    errors = [line for line in capsys.readouterr().out.splitlines() if "[ERROR]" in line]
    assert len(errors) == 4
    assert all(f"Op.{name}.1.2.3" in line for name, line in zip(("cut", "empty", "long", "text"), errors, strict=True))


def test_a_device_folder_is_sorted_by_operator_and_time(tmp_path: Path) -> None:
    for op in ("a", "b"):
        for time in (1700000000000000, 1700000000000001):
            (tmp_path / "0").mkdir(exist_ok=True)
            (tmp_path / "0" / f"Add.{op}.1.2.{time}").write_bytes(EXAMPLE)
    (tmp_path / "0" / "other.bin").write_bytes(b"x")
    assert shell("cad -m 0 -out out") == 0
    assert len(list(Path("out", "b", "1700000000000001").glob("Add.b.*.npy"))) == 3
    assert len(list(Path("out").rglob("*.npy"))) == 12


def converted(folder: Path, times: tuple[int, int], delta: float) -> None:
    for op in ("trans_Add_1", "trans_Mul_2"):
        for time in times:
            place = folder / op / str(time)
            place.mkdir(parents=True)
            for index, (io_word, values) in enumerate(
                (("input.0", np.arange(6.0)), ("input.1", np.arange(4.0)), ("output.0", np.arange(6.0) + delta))
            ):
                shaped = values.astype(np.float32).reshape(2, -1) if index != 1 else values.astype(np.float32)
                np.save(place / f"Op.{op}.1.2.{time}.{io_word}.npy", shaped)


def test_two_converted_trees_are_compared_by_operator_and_order_of_time(tmp_path: Path) -> None:
    converted(tmp_path / "a", (111111, 222222), 0.0)
    converted(tmp_path / "b", (333333, 444444), 0.001)
    assert shell("vc -m a -g b -out out") == 0
    rows = table(tmp_path / "out")
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 12
    assert [row["Md5 Consistency"] for row in rows].count("False") == 4
    times = [row["NPU File Name"].split(".")[4] for row in rows]
    assert times == sorted(times)
    (row,) = [row for row in rows if row["NPU File Name"] == "Op.trans_Add_1.1.2.111111.output.0.npy"]
    assert row["Bench File Name"] == "Op.trans_Add_1.1.2.333333.output.0.npy"
    assert (row["Mean"], row["Bench Mean"]) == ("2.5", "2.5009997")
    assert float(row["Max Abs Error"]) == pytest.approx(0.001, rel=1e-3)
    assert row["Max Relative Error"] == "1.0"
    same = next(row for row in rows if row["Md5 Consistency"] == "True")
    assert (same["Max Abs Error"], same["Max Relative Error"], same["Max ULP"]) == ("0.0", "0.0", "0")


def test_what_does_not_fit_is_a_row_with_its_reason(tmp_path: Path) -> None:
    for side, dims in (("a", (2, 3)), ("b", (3, 2))):
        write(tmp_path / side / "Add.x.1.2.100", of(np.arange(6, dtype=np.float32).reshape(dims), 1))
    write(tmp_path / "a" / "Add.alone.1.2.101", of(np.zeros(2, np.float32), 1))
    write(tmp_path / "b" / "Mul.other.1.2.101", of(np.zeros(2, np.float32), 1))
    (tmp_path / "a" / "Add.broken.1.2.102").write_bytes(b"\xff" * 30)
    (tmp_path / "b" / "Add.broken.1.2.102").write_bytes(EXAMPLE)
    assert shell("vc -m a -g b -out out") == 0
    told = {
        row["NPU File Name"] if row["NPU File Name"] != "N/A" else row["Bench File Name"]: row
        for row in table(Path("out"))
    }
    assert mentions(told["Add.x.1.2.100.input.0.npy"]["Err_message"], "kernels-do-not-fit")
    assert told["Add.alone.1.2.101.input.0.npy"]["Bench File Name"] == "N/A"
    assert told["Mul.other.1.2.101.input.0.npy"]["Err_message"] == said("other-side-has-none")
    assert "Add.broken.1.2.102" in told


def test_raw_dumps_are_compared_whatever_their_task_and_stream(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    write(tmp_path / "a" / "Add.x.1.2.100", of(values, 1))
    write(tmp_path / "b" / "Add.x.7.8.900", of(values + np.float32(1e-6) * values, 1))
    assert shell("vc -m a -g b -out out") == 0
    (row,) = table(Path("out"))
    assert row["Md5 Consistency"] == "False"
    assert int(row["Max ULP"]) > 0
    assert float(row["Within 1e-3 %"]) == 100.0
    assert float(row["Cosine"]) == pytest.approx(1.0)


def test_files_whose_names_were_too_long_go_by_their_real_names(tmp_path: Path) -> None:
    long_name = f"Add.{'x' * 250}.1.2.100"
    for side, short in (("a", "17"), ("b", "42")):
        write(tmp_path / side / short, of(np.arange(3, dtype=np.float32), 1))
        (tmp_path / side / "mapping.csv").write_text(f"{short},{long_name}\n")
    assert shell("vc -m a -g b -out out", "cad -m a -out sorted") == 0
    (row,) = table(Path("out"))
    assert row["Md5 Consistency"] == "True"
    assert [file.name for file in Path("sorted", "x" * 250, "100").iterdir()] == ["17.input.0.npy"]


def test_an_array_is_printed_and_written_as_text_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    array = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
    np.save("a.npy", array)
    assert shell("pt -n a.npy") == 0
    assert not Path("a.npy.txt").exists()
    printed = capsys.readouterr().out
    assert "[Shape: (2, 3, 4)] [Dtype: float32] [Max: 2.0] [Min: -2.0]" in printed
    assert shell("pt -n a.npy -s") == 0
    assert np.allclose(np.loadtxt("a.npy.txt"), array.reshape(6, 4), atol=1e-5)


def test_two_arrays_element_by_element(capsys: pytest.CaptureFixture[str]) -> None:
    left = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    right = left.copy()
    right.reshape(-1)[[3, 7]] += 1
    np.save("l.npy", left)
    np.save("r.npy", right)
    assert shell("cn -m l.npy -g r.npy -p 3") == 0
    printed = capsys.readouterr().out
    errors = printed.split("Top Item Table")[0].splitlines()[2:]
    assert [line.split() for line in errors] == [["3", "4.0", "5.0", "1.0"], ["7", "8.0", "9.0", "1.0"]]
    for text in ("NumCnt:   24", "AllClose: False", "ErrorPer: 0.08333333333333333  (rl= 0.001, al= 0.001)"):
        assert text in printed
    assert shell("cn -m l.npy -g r.npy -al 2 -rl 0") == 0
    assert "AllClose: True" in capsys.readouterr().out


def test_arrays_of_other_sizes_are_padded_and_zeros_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("l.npy", np.zeros(24, np.int64))
    np.save("r.npy", np.zeros(30, np.int64))
    assert shell("cn -m l.npy -g r.npy") == 0
    printed = capsys.readouterr().out
    assert printed.count("warning: ") == 2
    assert "NumCnt:   30" in printed
    assert "CosSim:   1.0  (both are zero)" in printed


def test_statistics_and_stack_of_an_api(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "Functional.conv2d.0.forward"
    write_part(
        tmp_path / "rank", {name: call(tensor(2, value=3.0))}, stacks={name: ["File /a.py, line 3, in f"]}
    ).close()
    assert shell(f"pk -f rank/dump.json -n {name}") == 0
    printed = capsys.readouterr().out
    assert "Statistic Info:" in printed
    assert "[torch.float32][[2]][3.0][3.0][3.0]" in printed
    assert "File /a.py, line 3, in f" in printed


def test_a_header_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / NAME).write_bytes(EXAMPLE)
    assert shell(f"ph -n {NAME}") == 0
    assert "input.0: size 24, dtype float32, format ND, shape (2, 3)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("foo", "Command invalid, Only support command start with cad/vc/dc/pk/cn/pt"),
        ("pt -n nope.npy", "nope.npy"),
        ("cn -m a.npy", "-g"),
        ("cn -m a.npy -g a.npy -p x -al -1", "-p: 'x'"),
        ("vc -m . -g .", "-m and -g are the same folder"),
        ("vc -m . -g nowhere", "nowhere"),
        ("dc -n a.npy -f NOPE", "there is no conversion to 'NOPE'"),
        ("dc -n a.npy -s 1,x", "-s: '1,x' is no shape"),
        ("dc -n nowhere", "nowhere"),
        ("ph -n a.npy", "a.npy"),
        ("pk -f old.pkl -n x", "give a dump.json"),
        ('pt -n "a', "no closing quotation"),
    ],
)
def test_a_mistake_is_reported_and_the_shell_goes_on(capfd: pytest.CaptureFixture[str], line: str, told: str) -> None:
    np.save("a.npy", np.zeros((0, 3), np.float32))
    assert shell(line, "pt -n a.npy") == 2
    captured = capfd.readouterr()
    assert told in captured.out + captured.err
    assert "[Shape: (0, 3)]" in captured.out


def test_blanks_in_names_and_quit(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("my array.npy", np.ones(3))
    assert shell('pt -n "my array.npy"', "", "quit", "foo") == 0
    assert "Command invalid" not in capsys.readouterr().out


def test_names_of_files_cannot_be_formulas_or_leave_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "a" / "=Add.x.1.2.100", of(np.zeros(2, np.float32), 1))
    write(tmp_path / "b" / "=Add.x.1.2.100", of(np.zeros(2, np.float32), 1))
    assert shell("vc -m a -g b -out out") == 0
    assert table(Path("out"))[0]["NPU File Name"].startswith("'=")
    (tmp_path / "0").mkdir()
    write(tmp_path / "0" / "Add...1.2.100", Tensor(b""))
    shell("cad -m 0 -out sorted/deep")
    assert {path.name for path in tmp_path.iterdir()} <= {"a", "b", "out", "0", "sorted"}


def test_arrays_are_not_taken_for_dump_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "values").mkdir()
    np.save(tmp_path / "values" / "Aten.add.0.forward.output.0.npy", np.ones(3))
    assert main(["parse", "-d", str(tmp_path / "values"), "-o", str(tmp_path / "out")]) != 0
    assert mentions(capsys.readouterr().err, "arrays-need-no-converting", count=1)
    assert not (tmp_path / "out").exists()
