"""Tensors saved by name, for comparisons of reinforcement learning."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, raising

from msprobe.core import SingleSave
from msprobe.errors import InvalidInputError, PathError

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _no_instance() -> Iterator[None]:
    """Each test has the first SingleSave of a program."""
    SingleSave._instance = None
    yield
    SingleSave._instance = None


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_tensor_a_list_and_a_dict_have_files_of_their_own(tmp_path: Path) -> None:
    saver = SingleSave(tmp_path / "d")
    saver.save({"t": torch.ones(2), "l": [torch.zeros(1), torch.ones(1)], "d": {"x": torch.ones(3)}})
    at = "step0/rank0/micro_step0"
    assert files(tmp_path / "d" / "data") == [
        *(f"d/{at}/d.json", f"d/{at}/d.x.npy"),
        *(f"l/{at}/l.0.npy", f"l/{at}/l.1.npy", f"l/{at}/l.json"),
        *(f"t/{at}/t.json", f"t/{at}/t.npy"),
    ]
    found = json.loads((tmp_path / f"d/data/d/{at}/d.json").read_text())
    assert found == {"data": {"x": {"max": 1.0, "min": 1.0, "mean": 1.0, "norm": 3**0.5, "shape": [3]}}}
    assert [item["max"] for item in json.loads((tmp_path / f"d/data/l/{at}/l.json").read_text())["data"]] == [0.0, 1.0]


def test_each_call_of_a_key_is_its_next_micro_step_until_the_next_step(tmp_path: Path) -> None:
    saver = SingleSave(tmp_path)
    for _ in range(2):
        saver.save({"a": torch.ones(1)})
        saver.save({"a": torch.ones(1), "b": torch.ones(1)})
        saver.step()
    found = [name for name in files(tmp_path / "data") if name.endswith(".npy")]
    assert found == [
        *(f"a/step{s}/rank0/micro_step{m}/a.npy" for s in (0, 1) for m in (0, 1)),
        *(f"b/step{s}/rank0/micro_step0/b.npy" for s in (0, 1)),
    ]


def test_save_ex_counts_nothing(tmp_path: Path) -> None:
    saver = SingleSave(tmp_path)
    saver.save_ex({"a": torch.ones(1)})
    saver.save_ex({"a": torch.ones(1)}, micro_batch=7)
    saver.save({"a": torch.ones(1)})
    found = [name for name in files(tmp_path / "data") if name.endswith(".npy")]
    assert found == [f"a/step0/rank0/{part}a.npy" for part in ("", "micro_step0/", "micro_step7/")]


def test_the_first_one_stays(tmp_path: Path) -> None:
    first = SingleSave(tmp_path / "a")
    assert SingleSave(tmp_path / "b", fmk="mindspore") is first
    assert not (tmp_path / "b").exists()


def test_values_keep_their_type_where_numpy_has_it(tmp_path: Path) -> None:
    large = 2**53 + 1
    values: dict[str, Any] = {
        "f64": torch.tensor([0.1], dtype=torch.float64),
        "i64": torch.tensor([large]),
        "bool": torch.tensor([True]),
        "bf16": torch.tensor([1.5], dtype=torch.bfloat16),
        "f8": torch.tensor([1.5]).to(torch.float8_e4m3fn),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "view": torch.arange(6.0).reshape(2, 3).t(),
        "grad": torch.ones(2, requires_grad=True),
        "complex": torch.tensor([3 + 4j]).conj(),
        "sparse": torch.eye(2).to_sparse(),
        "parameter": torch.nn.Parameter(torch.ones(1)),
    }
    SingleSave(tmp_path).save(values)
    found = {key: np.load(tmp_path / f"data/{key}/step0/rank0/micro_step0/{key}.npy") for key in values}
    assert found["i64"].tolist() == [large]
    assert found["f64"].tolist() == [0.1]
    assert {key: found[key].dtype.name for key in ("bool", "bf16", "f8")} == {
        "bool": "float32",
        "bf16": "float32",
        "f8": "float32",
    }
    assert found["view"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert found["scalar"].shape == ()
    assert found["complex"].tolist() == [3 - 4j]
    assert found["sparse"].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    empty = json.loads((tmp_path / "data/empty/step0/rank0/micro_step0/empty.json").read_text())
    assert empty == {"data": {"max": None, "min": None, "mean": None, "norm": None, "shape": [0, 3]}}
    assert json.loads((tmp_path / "data/complex/step0/rank0/micro_step0/complex.json").read_text())["data"]["norm"] == 5


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        ([1], "single-save-no-dict", {"kind": "list"}),
        (None, "single-save-no-dict", {"kind": "NoneType"}),
        ({"k": 3}, "single-save-value", {"key": "k", "kind": "int"}),
        ({3: 1}, "single-save-key", {"key": 3}),
        ({"../k": 1}, "single-save-key", {"key": "../k"}),
        ({"": 1}, "single-save-key", {"key": ""}),
        ({"x" * 300: 1}, "single-save-key", {"key": "x" * 300}),
    ],
)
def test_what_cannot_be_saved_is_reported_and_skipped(
    tmp_path: Path, data: Any, name: str, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    SingleSave(tmp_path).save(data)
    SingleSave(tmp_path).save_ex(data)
    assert mentions(capsys.readouterr().out, name, **found) == 2
    assert files(tmp_path) == []


@pytest.mark.parametrize("value", [[torch.ones(1), 3], {"a": 3}, ([torch.ones(1)],), {"../a": torch.ones(1)}])
def test_a_container_with_something_else_is_a_type_error_and_writes_nothing(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="SingleSave: k: "):
        SingleSave(tmp_path).save({"k": value})
    assert files(tmp_path) == []


@pytest.mark.parametrize("micro", [-1, "0", 1.5])
def test_a_micro_batch_is_a_number(tmp_path: Path, micro: Any, capsys: pytest.CaptureFixture[str]) -> None:
    SingleSave(tmp_path).save_ex({"a": torch.ones(1)}, micro)
    assert mentions(capsys.readouterr().out, "single-save-micro-batch", micro_batch=micro)
    assert files(tmp_path) == []


def test_a_configuration_is_written_with_what_json_has_no_word_for_as_text(tmp_path: Path) -> None:
    SingleSave(tmp_path).save_config({"a": [1, 2], "path": tmp_path})
    assert json.loads((tmp_path / "configurations.json").read_text()) == {"a": [1, 2], "path": str(tmp_path)}


def test_saving_needs_a_folder_first() -> None:
    for call in (SingleSave.save, SingleSave.save_ex, SingleSave.save_config):
        with pytest.raises(InvalidInputError, match=r"create it first: SingleSave\(dump_path\)"):
            call({})
    with pytest.raises(InvalidInputError, match="create it first"):
        SingleSave.step()


def test_wrong_arguments_make_no_instance(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathError, match="is a file"):
        SingleSave(tmp_path / "file")
    with raising(InvalidInputError, "single-save-framework", fmk="jax"):
        SingleSave(tmp_path, fmk="jax")
    assert SingleSave(tmp_path / "good") is not None


def test_the_training_sees_nothing_of_it(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    saver = SingleSave(tmp_path)
    value = torch.ones(2, requires_grad=True) * 2
    with Watch():
        saver.save({"a": value})
    assert seen == []
    assert value.grad_fn is not None


def test_tensors_of_mindspore_are_saved_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        dtype = "Float32"

        def asnumpy(self) -> Any:
            return np.ones((2,), np.float32)

    module: Any = types.ModuleType("mindspore")
    module.Tensor, module.bfloat16, module.float32 = Tensor, "BFloat16", "Float32"
    module.communication = types.SimpleNamespace(get_rank=lambda: 5)
    monkeypatch.setitem(sys.modules, "mindspore", module)
    monkeypatch.delitem(sys.modules, "msprobe.single_save.mindspore", raising=False)
    SingleSave(tmp_path, fmk="mindspore").save({"a": Tensor()})
    assert files(tmp_path / "data") == ["a/step0/rank5/micro_step0/a.json", "a/step0/rank5/micro_step0/a.npy"]
    sys.modules.pop("msprobe.single_save.mindspore", None)
