"""The configuration check inside a PyTorch training: what is in the pack, and that nothing else changes."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import random
import stat
import sys
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from msprobe.config_check.random_calls import RandomCalls  # noqa: E402
from msprobe.config_check.settings import as_settings  # noqa: E402
from msprobe.core.config_check import ConfigChecker  # noqa: E402
from msprobe.environment.configuration.comparison import compare_packs, open_packs  # noqa: E402
from msprobe.errors import InvalidInputError, MsprobeError  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = torch.rand, random.random, np.random.rand, torch.compile, list(sys.meta_path)
    yield
    ConfigChecker.remove_patches()
    assert (torch.rand, random.random, np.random.rand, torch.compile, list(sys.meta_path)) == before
    assert "uniform_" not in vars(torch.Tensor)


class Net(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.l1 = nn.Linear(4, 8, bias=bias)
        self.drop = nn.Dropout(0.25)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.125)
        self.l2 = nn.Linear(8, 2)

    def forward(self, x: Any, mask: Any = None, extra: Any = None) -> Any:
        return self.l2(self.drop(self.l1(x)) + 0.01 * torch.randn(x.shape[0], 8))


def read(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {
            name: archive.read(name).decode() if name in ("env", "pip") else json.loads(archive.read(name))
            for name in archive.namelist()
        }


def trained(path: Path, model: nn.Module | None = None, steps: int = 1, passes: int = 3, **more: Any) -> nn.Module:
    model = model or Net()
    ConfigChecker(model, None, str(path), steps=steps, **more)
    generator = torch.Generator().manual_seed(1)
    for _ in range(passes):
        model(torch.randn(3, 4, generator=generator)).sum().backward()
    return model


def test_the_first_micro_step_is_collected_and_then_nothing_is_left(tmp_path: Path) -> None:
    importlib.import_module("torch._dynamo")  # as an optimizer does; nothing is compiled
    path = tmp_path / "new" / "pack.zip"
    ConfigChecker.apply_patches("pytorch")
    torch.manual_seed(5)
    np.random.seed(6)
    for _ in range(2):
        random.random()
    model = Net()
    checker = ConfigChecker(model, None, str(path), "pytorch")
    x = torch.arange(8.0).reshape(2, 4)
    model(x, mask=torch.tensor([True, False]), extra={"k": [x.double(), 1, "a"]}).sum()
    assert not checker.is_collecting
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    found = read(path)
    assert set(found) == {
        *("env", "pip", "dataset/step0/rank0/dataset.json", "weights/step0/rank0/weight.json"),
        *("digests/step0/rank0.json", "random/rank0.json", "random_state/rank0.json"),
    }
    norm = float(torch.linalg.vector_norm(x))
    whole = {"max": 7.0, "min": 0.0, "mean": 3.5, "norm": norm}
    assert found["dataset/step0/rank0/dataset.json"] == {
        "args": {"0": whole},
        "kwargs": {
            "mask": {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0},
            "extra": {"k": {"0": whole, "1": "", "2": ""}},
        },
    }
    weights = found["weights/step0/rank0/weight.json"]
    assert list(weights) == [name for name, _ in model.named_parameters()]
    assert weights["l1.bias"] == {
        "max": model.l1.bias.max().item(),
        "min": model.l1.bias.min().item(),
        "mean": model.l1.bias.mean().item(),
        "norm": torch.linalg.vector_norm(model.l1.bias).item(),
    }
    digests = found["digests/step0/rank0.json"]
    assert set(digests["weights"]) == set(weights)
    assert set(digests["dataset"]) == {"args.0", "kwargs.mask", "kwargs.extra.k.0"}
    calls = found["random/rank0.json"]
    (called,) = calls["random.random"]
    assert called["count"] == 2
    line = _line_of("random.random()")
    assert called["stack"][-1] == ", ".join((f"File {__file__}", f"line {line}", f"in {_here()}", "random.random()"))
    # Inside of the first forward pass as well.
    assert any("in forward" in line for call in calls["torch.randn"] for line in call["stack"])
    state = found["random_state/rank0.json"]
    assert state["seeds"] == [["torch.manual_seed", 5], ["np.random.seed", 6], ["torch.manual_seed", 7]]
    assert set(state["states"]["0"]) >= {"python", "numpy", "torch"}
    assert state["dropout"] == {
        "drop": {"p": 0.25, "training": True},
        "attention.dropout": {"p": 0.125, "training": True},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def _here() -> str:
    return "test_the_first_micro_step_is_collected_and_then_nothing_is_left"


def _line_of(text: str) -> int:
    return next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == text)


def test_so_many_micro_steps_are_collected_as_are_asked_for(tmp_path: Path) -> None:
    model = trained(tmp_path / "a.zip", steps=2)
    found = read(tmp_path / "a.zip")
    assert [name for name in found if name.startswith("weights")] == [
        f"weights/step{step}/rank0/weight.json" for step in (0, 1)
    ]
    states = found["random_state/rank0.json"]["states"]
    assert states["0"]["torch"] != states["1"]["torch"]
    assert ConfigChecker.step == 2
    assert not model._forward_pre_hooks


def differing(tmp_path: Path, part: str) -> tuple[list[tuple[Any, ...]], str]:
    with (
        open_packs(tmp_path / "a.zip", tmp_path / "b.zip")[0] as one,
        open_packs(tmp_path / "a.zip", tmp_path / "b.zip")[1] as two,
    ):
        result = compare_packs(one, two)
    found = next(one for one in result.parts if one.name == part)
    return [row for row in found.rows if row[3] is not True], found.level


def test_a_weight_that_differs_is_named_and_the_inputs_are_equal(tmp_path: Path) -> None:
    trained(tmp_path / "a.zip")
    other = Net()
    with torch.no_grad():
        other.l1.weight[1, 2] += 0.01
    trained(tmp_path / "b.zip", other)
    rows, level = differing(tmp_path, "weights")
    assert [row[:4] for row in rows] == [(0, 0, "l1.weight", False)]
    assert level == "error"
    assert differing(tmp_path, "dataset")[0] == []


def test_a_weight_that_is_missing_fails_the_weights(tmp_path: Path) -> None:
    trained(tmp_path / "a.zip")
    trained(tmp_path / "b.zip", Net(bias=False))
    rows, level = differing(tmp_path, "weights")
    assert (0, 0, "l1.bias", "only bench have") in [row[:4] for row in rows]
    assert level == "error"


KINDS = ["plain", "autocast", "compiled", "compiled in place", "list"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_is_the_same_to_the_last_bit(tmp_path: Path, kind: str) -> None:
    ended = [_losses(tmp_path, kind, checks) for checks in (False, True)]
    assert ended[0] == ended[1]
    weights = read(tmp_path / "a.zip")["weights/step0/rank0/weight.json"]
    assert "l1.weight" in weights
    assert ("1.weight" in weights) == (kind == "list")


def _losses(tmp_path: Path, kind: str, checks: bool) -> list[bytes]:
    torch.compiler.reset()
    if checks:
        ConfigChecker.apply_patches()
    random.seed(3)
    model, other = Net(), nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    called = torch.compile(model, backend="eager") if kind == "compiled" else model
    if kind == "compiled in place":
        model.compile(backend="eager")
    if checks:
        ConfigChecker([model, other] if kind == "list" else called, None, str(tmp_path / "a.zip"), steps=2)
    found = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = called(torch.rand(3, 4)).float().pow(2).mean() * random.random()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().numpy().tobytes())
    return [
        *found,
        *(p.detach().numpy().tobytes() for p in model.parameters()),
        torch.get_rng_state().numpy().tobytes(),
    ]


def test_functions_are_as_they_were_before_anything_is_compiled(tmp_path: Path) -> None:
    original = torch.rand
    ConfigChecker.apply_patches()
    assert torch.rand is not original
    torch.jit.script(nn.Linear(1, 1))
    assert torch.rand is not original
    torch.compile(nn.Linear(1, 1), backend="eager")
    assert torch.rand is original


def test_what_somebody_else_replaced_meanwhile_stays() -> None:
    calls = RandomCalls(())
    original = random.random
    calls.begin()
    theirs = lambda: 0.5  # noqa: E731
    random.random = theirs
    calls.end()
    assert random.random is theirs
    random.random = original


@dataclasses.dataclass
class Optimizer:
    betas: tuple[float, float] = (0.9, 0.95)
    dtype: Any = torch.bfloat16


class Arguments:
    def __init__(self) -> None:
        self.lr, self._private = 1e-3, 2

    def to_dict(self) -> dict[str, Any]:
        return {"lr": self.lr, "schedule": {"name": "cosine"}}


def test_arguments_of_the_program_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [
        argparse.Namespace(lr=1, path=Path("a"), hf_token="abcdefgh1234"),
        Arguments(),
        {"opt": Optimizer()},
        Optimizer(),
    ]
    ConfigChecker(None, None, str(tmp_path / "a.zip"), settings=given)
    values = read(tmp_path / "a.zip")["hyperparameters/hyperparameters_dynamic.json"]
    assert values.pop("hf_token").startswith("***")
    assert values == {
        "lr": 1e-3, "path": "a", "schedule.name": "cosine", "opt.betas": [0.9, 0.95], "opt.dtype": "torch.bfloat16",
        "betas": [0.9, 0.95], "dtype": "torch.bfloat16",
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=r"settings must be .*; found int"):
        as_settings(3)
    megatron = types.ModuleType("megatron.training")
    megatron.get_args = lambda: argparse.Namespace(lr=2, model=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.training", megatron)
    ConfigChecker(None, None, str(tmp_path / "b.zip"))
    assert read(tmp_path / "b.zip")["hyperparameters/hyperparameters_dynamic.json"] == {"lr": 2, "model": None}


def test_files_of_hyper_parameters_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text("LR=1e-3\ntorchrun train.py --lr $LR\n")
    ConfigChecker(None, [str(script), str(tmp_path / "gone.sh")], str(tmp_path / "a.zip"))
    found = read(tmp_path / "a.zip")
    assert list(found) == ["env", "pip", "hyperparameters/hyperparameters_static.json"]
    assert found["hyperparameters/hyperparameters_static.json"] == {"lr": "1e-3"}
    assert "gone.sh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((3,), MsprobeError, "ConfigChecker: model must be a torch.nn.Module, or a list or tuple of them, found int."),
        ((None, "x.sh"), TypeError, "must be a list of file paths, found 'x.sh'."),
        ((None, ["a.docx"]), ValueError, '"a.docx" cannot be read for hyper-parameters'),
        ((None, None, "a.tar"), MsprobeError, "ends with .zip, found 'a.tar'."),
        ((None, None, "a.zip", "jax"), MsprobeError, "fmk must be one of pytorch, mindspore, found 'jax'."),
        ((None, None, "a.zip", "pytorhc"), MsprobeError, 'did you mean "pytorch"?'),
        ((None, None, "a.zip", "pytorch", 0), MsprobeError, "steps must be a whole number from 1 on, found 0."),
    ],
)
def test_arguments_that_cannot_be_used_are_reported_in_a_sentence(
    arguments: tuple[Any, ...], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        ConfigChecker(*arguments)
    assert text in str(caught.value)
    with pytest.raises(MsprobeError) as several:
        ConfigChecker(3, "x.sh", "a.tar", steps=0)
    assert str(several.value).count(" found ") == 4


def test_an_error_inside_ends_the_collection_and_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Net()
    checker = ConfigChecker(model, None, str(tmp_path / "a.zip"), steps=5)
    (tmp_path / "a.zip").unlink()
    (tmp_path / "a.zip").mkdir()
    for _ in range(3):
        model(torch.ones(1, 4))
    assert not checker.is_collecting
    assert mentions(capsys.readouterr().out, "config-check-ends") == 1
    (tmp_path / "file").write_text("")
    ConfigChecker(Net(), None, str(tmp_path / "file" / "a.zip"))
    assert "config_check collects nothing" in capsys.readouterr().out


def test_a_model_that_is_not_called_itself_says_when_a_step_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checker = ConfigChecker(Net(), None, str(tmp_path / "a.zip"))
    checker.collect(torch.ones(2), name=torch.zeros(1))
    checker.collect(torch.ones(2))
    assert "kwargs.name" in read(tmp_path / "a.zip")["digests/step0/rank0.json"]["dataset"]
    ConfigChecker(Net(), None, str(tmp_path / "b.zip"))
    ConfigChecker.remove_patches()
    assert mentions(capsys.readouterr().out, "config-check-without-forward")


def test_odd_tensors_are_measured_or_left_out(tmp_path: Path) -> None:
    values = {
        "empty": torch.ones(0), "complex": torch.tensor([3 + 4j]), "meta": torch.ones(2, device="meta"),
        "half": torch.ones(2, dtype=torch.float16), "sparse": torch.eye(2).to_sparse(),
        "byte": torch.tensor([255], dtype=torch.uint8),
        "nan": torch.tensor([float("nan"), 1.0]),
        "float8": torch.ones(2).to(torch.float8_e4m3fn), "turned": torch.eye(2).T,
    }  # fmt: skip
    ConfigChecker(Net(), None, str(tmp_path / "a.zip")).collect(**values)
    found = read(tmp_path / "a.zip")["dataset/step0/rank0/dataset.json"]["kwargs"]
    assert found["empty"] == dict.fromkeys(("max", "min", "mean", "norm"))
    assert found["complex"] == {"max": 4.0, "min": 3.0, "mean": 3.5, "norm": 5.0}
    assert found["meta"] == ""
    assert found["byte"]["max"] == 255.0
    assert found["half"]["norm"] == found["float8"]["norm"] == found["turned"]["norm"] == pytest.approx(2**0.5)
    assert found["nan"]["mean"] != found["nan"]["mean"]


def test_the_names_that_scripts_know_are_there(tmp_path: Path) -> None:
    from msprobe.core.config_check import checkers

    assert list(ConfigChecker.checkers) == ["env", "pip", "dataset", "weights", "hyperparameter", "random"]
    assert checkers.CHECKERS is ConfigChecker.checkers
    assert (ConfigChecker.result_filename, ConfigChecker.result_header) == ("result.xlsx", ["filename", "pass_check"])
    trained(tmp_path / "a.zip")
    ConfigChecker.compare(str(tmp_path / "a.zip"), str(tmp_path / "a.zip"), str(tmp_path / "out"))
    assert (tmp_path / "out" / "result.xlsx").exists()


def test_the_path_of_the_pack_is_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("p1.zip", "p2.zip"):
        ConfigChecker(output_zip_path=str(tmp_path / name), settings={"pack": name, "lr": 0.1, "empty": ""})
        with zipfile.ZipFile(name) as pack:
            found = json.loads(pack.read("hyperparameters/hyperparameters_dynamic.json"))
        assert found == {"lr": 0.1, "empty": ""}
