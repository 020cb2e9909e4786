"""Details files that mindstudio-probe 8.1.1 and 26.2.0 wrote of dumps of a small model, and what they made of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from msprobe.precheck import details_table, precision_compare

FILES = Path(__file__).parent / "files_of_8_1_1"
FILES_OF_26_2 = Path(__file__).parent / "files_of_26_2"
VERSIONS = {"8.1.1": FILES, "26.2": FILES_OF_26_2}


def rows(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[0]: row for row in csv.reader(file)}


@pytest.mark.parametrize("kind", ["result", "details"])
@pytest.mark.parametrize("version", list(VERSIONS))
def test_their_files_get_their_verdict(tmp_path: Path, version: str, kind: str) -> None:
    files = VERSIONS[version]
    paths = precision_compare.compare(
        files / "npu_details.csv", files / "gpu_details.csv", tmp_path, version, "20260101000000"
    )
    ours = rows(paths[kind == "details"])
    theirs = rows(files / f"compared_{kind}.csv")
    assert list(ours) == list(theirs)
    # The message is the last cell, in words of each.
    assert [row[:-1] for row in ours.values()] == [row[:-1] for row in theirs.values()]


@pytest.mark.parametrize("standard", ["strict", "8.1.1"])
def test_files_with_the_metrics_of_26_2_are_judged_by_them_in_every_standard(tmp_path: Path, standard: str) -> None:
    npu, gpu = FILES_OF_26_2 / "npu_details.csv", FILES_OF_26_2 / "gpu_details.csv"
    judged = {row.name: row for row in precision_compare.judged(npu, gpu, standard)}
    # Of topk 8.1.1 compares bits, of matmul units of rounding: 26.2 has neither in its file.
    for name in ("Torch.topk.0.backward.output.0", "Tensor.__matmul__.2.forward.output.0"):
        assert (judged[name].status, judged[name].standard) == ("error", "benchmark")
    healthy = precision_compare.judged(gpu, gpu, standard)
    assert {row.status for row in healthy if row.name != "Torch.exp.0.forward.output.0"} == {"pass", "SKIP"}


@pytest.mark.parametrize("word", ["hif8", "torch_npu.HiFloat8Tensor", "torch.hifloat8", "torch.float8_e5m2"])
def test_results_of_8_bit_floats_are_judged_in_units_of_rounding_as_26_2_does(tmp_path: Path, word: str) -> None:
    """By any name that hif8 has: 26.2 counts in its units for all types of 8 bits."""
    name = "Torch.cat.0.forward.output.0"
    cells = {
        **dict.fromkeys(details_table.REQUIRED, " "),
        "API Name": name,
        "DEVICE Dtype": word,
        "Shape": "(2, 3)",
    }
    paths = []
    for share in ("0.5", "0.25"):
        numbers = {"ULP误差平均值": "1.0", "ULP误差大于阈值占比": share}
        paths.append(tmp_path / f"{share}.csv")
        with paths[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(cells))
            writer.writeheader()
            writer.writerow({**cells, **numbers})
    (worse,), (better,) = (precision_compare.judged(*pair, "26.2") for pair in (paths, paths[::-1]))
    assert (worse.standard, worse.status, better.status) == ("ulp", "error", "pass")


def test_an_api_that_the_other_file_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    lacking = tmp_path / "gpu.csv"
    with (FILES / "gpu_details.csv").open(encoding="utf-8-sig", newline="") as file:
        kept = [row for row in csv.reader(file) if not row[0].startswith("Torch.softmax")]
    with lacking.open("w", newline="") as file:
        csv.writer(file).writerows(kept)
    result, _ = precision_compare.compare(FILES / "npu_details.csv", lacking, tmp_path, "8.1.1", "20260101000000")
    row = rows(result)["Torch.softmax.0"]
    assert row[1:3] == ["SKIP", "SKIP"]
    assert "no row" in row[3]
    assert rows(result)["Functional.linear.0"][1] == "pass"
