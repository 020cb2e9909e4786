from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import raising

from msprobe.errors import InvalidInputError, PathError
from msprobe.precheck.columns import DETAILS_HEADER, RESULT_HEADER
from msprobe.precheck.writer import BOM, CheckFiles, CheckWriter

STAMP = "20260101000000"

#: A column of mindstudio-probe.
INDEX = "Index of max error"


def written(folder: Path, count: int) -> CheckFiles:
    files = CheckFiles.fresh(folder, STAMP)
    writer = CheckWriter(files)
    for number in range(count):
        name = f"Torch.add.{number}"
        writer.add([name, "pass", " ", ""], [[f"{name}.forward.output.{n}", "two\nlines"] for n in range(2)])
    return files


def test_files_begin_with_a_mark_of_utf_8_and_the_header_and_end_lines_with_cr_lf(tmp_path: Path) -> None:
    files = written(tmp_path, 1)
    assert files.result.read_bytes().startswith(BOM + ",".join(RESULT_HEADER).encode() + b"\r\n")
    assert files.details.read_bytes().startswith(BOM + ",".join(DETAILS_HEADER).encode() + b"\r\n")
    assert files.result.stat().st_mode & 0o777 == 0o640


def test_a_check_that_was_killed_goes_on_without_losing_or_doubling_a_row(tmp_path: Path) -> None:
    files = written(tmp_path, 3)
    whole = files.details.read_bytes(), files.result.read_bytes()
    # Killed between the details of the last call and its result, in the middle of a line.
    files.result.write_bytes(files.result.read_bytes()[:-8])
    writer = CheckWriter(CheckFiles.existing(str(files.result)))
    assert list(writer.done) == ["Torch.add.0", "Torch.add.1"]
    writer.add(["Torch.add.2", "pass", " ", ""], [[f"Torch.add.2.forward.output.{n}", "two\nlines"] for n in range(2)])
    assert (files.details.read_bytes(), files.result.read_bytes()) == whole


def test_the_columns_of_the_files_are_those_of_8_1_1_and_ours_behind_them() -> None:
    assert ",".join(RESULT_HEADER) == "API name,Forward Test Success,Backward Test Success,Message"
    assert DETAILS_HEADER == (
        "API Name",
        "Bench Dtype",
        "DEVICE Dtype",
        "Shape",
        "余弦相似度",
        "最大绝对误差",
        "双百指标",
        "双千指标",
        "双万指标",
        "二进制一致错误率",
        "误差均衡性",
        "均方根误差",
        "小值域错误占比",
        "相对误差最大值",
        "相对误差平均值",
        "inf/nan错误率",
        "相对误差错误率",
        "绝对误差错误率",
        "ULP误差最大值",
        "ULP误差平均值",
        "ULP误差大于阈值占比",
        "Status",
        "Message",
        INDEX,
        "p99 rel err",
        "Scaled error",
        "Seed",
        "Candidate",
        "Control",
        "Standard",
        "Arguments",
        "Slope",
        "Slope error",
        "Directed error",
    )


@pytest.mark.parametrize(
    "name", ["result.csv", "accuracy_checking_result_1.csv", f"accuracy_checking_details_{STAMP}.csv"]
)
def test_only_a_file_of_the_right_name_is_continued(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with raising(InvalidInputError, "result-name-wrong"):
        CheckFiles.existing(str(tmp_path / name))


@pytest.mark.parametrize("kind", ["result", "details"])
@pytest.mark.parametrize("header", ["a,b,c", "API name", "API name,Backward,Forward,Message"])
def test_a_file_with_another_header_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str, header: str) -> None:
    files = written(tmp_path, 2)
    path = getattr(files, kind)
    path.write_bytes(before := BOM + header.encode() + b"\r\n" + path.read_bytes().partition(b"\n")[2])
    with raising(InvalidInputError, "result-header-wrong"):
        CheckWriter(CheckFiles.existing(str(files.result)))
    assert path.read_bytes() == before


def test_a_details_file_of_8_1_1_is_continued_with_its_own_columns(tmp_path: Path) -> None:
    files = written(tmp_path, 1)
    of_8_1_1 = DETAILS_HEADER[: DETAILS_HEADER.index("Message") + 1]
    files.details.write_bytes(BOM + ",".join(of_8_1_1).encode() + b"\r\n")
    CheckWriter(CheckFiles.existing(str(files.result))).add(
        ["Torch.add.1", "pass", " ", ""], [["Torch.add.1.forward.output.0", *DETAILS_HEADER[1:]]]
    )
    assert files.details.read_bytes().splitlines()[-1].endswith(b",Status,Message")


def test_a_result_without_its_details_is_not_continued(tmp_path: Path) -> None:
    files = written(tmp_path, 1)
    files.details.unlink()
    with raising(PathError, "details-missing"):
        CheckFiles.existing(str(files.result))
