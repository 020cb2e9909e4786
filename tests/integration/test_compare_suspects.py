"""What the advisor names, on recorded trainings of a transformer block with a planted defect."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.sheets import read_table
from torch import nn

from msprobe.compare.comparison import RowComparison, compare_parts
from msprobe.diagnose import compare_runs
from msprobe.pytorch import PrecisionDebugger, compare, compare_distributed
from msprobe.report.advisor import advice_text
from msprobe.report.phrases import headline, leading
from msprobe.store.reader import open_dump

Change = Callable[[torch.Tensor], torch.Tensor]
WIDTH, HEADS = 32, 4


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


class Block(nn.Module):
    """A transformer block; each change stands where a user's defect would."""

    def __init__(
        self, probabilities: Change = _same, approximate: str = "none", hidden: Change = _same, end: Change = _same
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.changes = (probabilities, approximate, hidden, end)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        probabilities, approximate, hidden, end = self.changes
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(WIDTH, dim=-1)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
        attended = probabilities(F.softmax(scores, dim=-1)) @ v
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        x = hidden(x)
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate=approximate))
        return end(x)


def record(
    folder: Path, dtype: torch.dtype = torch.float32, level: str = "L1", stop: bool = True, **changes: object
) -> Path:
    """Record one forward and backward; the folder of the step's rank. Without ``stop`` the program dies in it."""
    torch.manual_seed(0)
    model = Block(**changes).to(dtype)  # type: ignore[arg-type]
    x = torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="statistics", level=level, dump_path=str(folder))
    try:
        with debugger.recording(model):
            model(x).square().mean().backward()
            if not stop:
                shutil.copytree(folder, folder.with_name("killed"))
    finally:
        PrecisionDebugger.reset()
    if not stop:
        shutil.rmtree(folder)
        folder.with_name("killed").rename(folder)
    return folder / "step0" / "rank"


def compared(candidate: Path, reference: Path) -> RowComparison:
    return compare_parts(open_dump(candidate).part(), open_dump(reference).part())


def named_by(found: RowComparison) -> tuple[str, str]:
    """The row that the advice names, and what it says: as the verdict on the same two dumps."""
    line, node, advice = advice_text(found).split("\n", 2)
    verdict = compare_runs(*(part.folder for part in found.parts))
    said = advice.removeprefix("Expert Advice: ")
    assert said.startswith(headline(verdict))
    named = node.removeprefix("Suspect Nodes: ")
    assert (named == "NA") == (not verdict.findings)
    if named != "NA":
        row = int(line.removeprefix("Line: "))
        assert found.candidate.name[row] == named
        assert found.candidate.entries[found.candidate.entry[row]] == leading(verdict)[0].entry
        assert leading(verdict)[0].message in said
    return named, said


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_probabilities_times_three_are_found(level: str, tmp_path: Path) -> None:
    reference = record(tmp_path / "bench", level=level)
    candidate = record(tmp_path / "npu", level=level, probabilities=lambda p: p * 3)
    found = compared(candidate, reference)
    assert named_by(found)[0].startswith("Tensor.__mul__.0.forward")


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_another_gelu_is_found_by_its_argument(level: str, tmp_path: Path) -> None:
    found = compared(record(tmp_path / "npu", level=level, approximate="tanh"), record(tmp_path / "bench", level=level))
    name, said = named_by(found)
    assert name == "Functional.gelu.0.forward.input.approximate"
    assert '"tanh"' in said
    assert '"none"' in said


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_nan_is_found_where_it_is_born(level: str, tmp_path: Path) -> None:
    found = compared(
        record(tmp_path / "npu", level=level, hidden=lambda x: x + float("nan")),
        record(tmp_path / "bench", level=level),
    )
    assert named_by(found)[0].startswith("Tensor.__add__.1.forward")


def test_an_extra_call_without_effect_is_reported_and_not_suspected(tmp_path: Path) -> None:
    candidate = record(tmp_path / "npu", end=lambda x: torch.add(x, 0.0))
    reference = record(tmp_path / "bench")
    compare({"npu_json_path": candidate / "dump.json", "bench_json_path": reference / "dump.json"}, tmp_path / "out")
    (advice,) = (tmp_path / "out").glob("advisor*.txt")
    text = advice.read_text()
    assert text.startswith("Line: NA\nSuspect Nodes: NA\n")
    assert "Torch.add.0.forward" in text
    (sheet,) = (tmp_path / "out").glob("*.xlsx")
    rows = read_table(sheet).rows
    assert {row["Result"] for row in rows if not str(row["NPU Name"]).startswith("Torch.add")} == {""}


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_fail(dtype: torch.dtype, level: str, tmp_path: Path) -> None:
    found = compared(record(tmp_path / "npu", dtype, level), record(tmp_path / "bench", level=level))
    assert found.pairing.matched.all()
    bad = [found.candidate.name[row] for row in found.failing.nonzero()[0]]
    assert not bad
    assert named_by(found)[0] == "NA"


def test_other_weights_are_named_before_what_follows_from_them(tmp_path: Path) -> None:
    reference = record(tmp_path / "bench", level="mix")
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.init, "kaiming_uniform_", lambda weight, **_: torch.nn.init.constant_(weight, 0.5))
        candidate = record(tmp_path / "npu", level="mix")
    found = compared(candidate, reference)
    assert named_by(found)[0].startswith(("Functional.linear.0.forward.input.1", "Module.qkv.Linear"))


def test_a_step_that_was_not_finished_is_compared_as_far_as_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = record(tmp_path / "bench")
    candidate = record(tmp_path / "npu", stop=False)
    assert not (candidate / "dump.json").exists()
    assert list(candidate.glob("*.journal"))
    compare_distributed(candidate.parent, reference.parent, tmp_path / "out")
    (sheet,) = (tmp_path / "out").glob("*.xlsx")
    rows = read_table(sheet).rows
    assert {row["Result"] for row in rows} == {""}
    assert len(rows) > 50
    assert "was not finished" in capsys.readouterr().out
