"""``PtdbgDispatch``: operators beside the CPU in a wider type, the program unchanged."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.coded_texts import mentions
from support.row_by_row import for_each
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.precheck.dispatch.judging import judge
from msprobe.pytorch.common import seed_all
from msprobe.pytorch.online_dispatch import DispatchException, PtdbgDispatch


class Wrong(TorchDispatchMode):
    """A device whose GELU and its gradient are wrong by a factor; the reference computes in another type."""

    def __init__(self, dtype: torch.dtype, factor: float) -> None:
        super().__init__()
        self.dtype, self.factor = dtype, factor

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if "gelu" in function.overloadpacket.__name__ and result.dtype is self.dtype:
            return result * self.factor
        return result


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    (file,) = folder.glob(f"{name}*.csv")
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def train(tmp_path: Path, dtype: torch.dtype, watch: bool, factor: float = 1.0, **settings: Any) -> Any:
    """One step of a small network, in place and with several results; everything that must stay the same."""
    seed_all(0, rm_dropout=False)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)).to(dtype)
    batch = torch.randn(5, 8, dtype=dtype)
    dispatches = []
    with Wrong(dtype, factor):
        for part in ("forward", "backward"):
            if watch:
                dispatches.append(PtdbgDispatch(dump_path=tmp_path, tag=part, **settings))
                dispatches[-1].__enter__()
            if part == "forward":
                out = model(batch)
                values, _ = out.sort()
                loss = values.mul_(2).float().square().mean()
            else:
                loss.backward()  # type: ignore[no-untyped-call]
            if watch:
                dispatches[-1].__exit__(None, None, None)
    gradients = [one.grad for one in model.parameters()]
    return [loss.detach(), torch.get_rng_state(), *gradients], dispatches


#: A column of mindstudio-probe.
REACHED = "Accuracy Reached or Not"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_healthy_device_agrees_and_nothing_changes(tmp_path: Path, dtype: torch.dtype) -> None:
    alone, _ = train(tmp_path, dtype, watch=False)
    watched, (forward, backward) = train(tmp_path, dtype, watch=True, dump_mode="auto")
    assert all(map(torch.equal, alone, watched))
    for dispatch, column in ((forward, "Forward Test Success"), (backward, "Backward Test Success")):
        found = rows(dispatch.folder, "accuracy_checking_result")
        assert {row[column] for row in found} == {"True"}
        assert {row["Status"] for row in rows(dispatch.folder, "accuracy_checking_details")} == {"pass"}
        assert {row[REACHED] for row in rows(dispatch.folder, "compare_result")} == {"Yes"}
        assert list(dispatch.folder.rglob("*.npy")) == []
    names = [row["API name"] for row in rows(forward.folder, "accuracy_checking_result")]
    assert {"addmm_1", "addmm_2", "native_layer_norm_1", "gelu_1", "sort_1", "mul__1"} <= set(names)
    assert not any("dropout" in name or "bernoulli" in name for name in names)
    layer_norm = [row for row in rows(forward.folder, "compare_result") if row["NPU Name"].startswith("native_layer")]
    assert [row["NPU Name"][-2:] for row in layer_norm] == [".0", ".1", ".2"]
    assert all("test_dispatch.py" in row["stack"] for row in layer_norm)


@pytest.mark.parametrize("threads", [0, 1])
def test_a_wrong_kernel_is_named_forward_and_backward(
    tmp_path: Path, threads: int, capfd: pytest.CaptureFixture[str]
) -> None:
    _, (forward, backward) = train(tmp_path, torch.float32, True, 1.01, dump_mode="auto", process_num=threads)
    wrong = []
    for dispatch in (forward, backward):
        found = rows(dispatch.folder, "accuracy_checking_result")
        wrong += [row for row in found if "False" in row.values()]
    assert [row["API name"] for row in wrong] == ["gelu_1", "gelu_backward_1"]
    saved = sorted(path.relative_to(forward.folder).as_posix() for path in forward.folder.rglob("*.npy"))
    assert saved == ["cpu/gelu_1_output.npy", "npu/gelu_1_input.0.npy", "npu/gelu_1_output.npy"]
    device, bench = (np.load(forward.folder / side / "gelu_1_output.npy") for side in ("npu", "cpu"))
    assert np.allclose(device, bench * 1.01, rtol=1e-5, atol=1e-6)
    assert mentions(capfd.readouterr().out, "operator-disagrees", name="gelu_1")


def test_operators_that_return_nothing_are_judged_by_what_they_wrote(tmp_path: Path) -> None:
    class Halved(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function is torch.ops.aten._foreach_mul_.Tensor and args[0][0].dtype is torch.float32:
                args[0][0].mul_(0.5)
            return result

    one, other = torch.ones(3), torch.ones(4)
    with Halved(), PtdbgDispatch(dump_path=tmp_path) as dispatch:
        torch._foreach_mul_([one, other], torch.tensor(3.0))
        torch._foreach_add_([one, other], 1.0)
    assert other.tolist() == [4.0] * 4
    found = {row["API name"]: row["Forward Test Success"] for row in rows(dispatch.folder, "accuracy_checking_result")}
    assert found == {"_foreach_mul__1": "False", "_foreach_add__1": "True"}


def test_norms_under_autocast_are_no_faults(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = under_autocast(tmp_path, nn.Identity())
    assert all("True" in row.values() for row in found)
    assert {"native_layer_norm_1", "native_batch_norm_backward_1", "_softmax_1"} <= {row["API name"] for row in found}
    assert "0 do not agree;" in capfd.readouterr().out


def test_an_lstm_under_autocast_is_no_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lstm = nn.LSTM(8, 8)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            lstm(torch.randn(2, 5, 8))
    except RuntimeError as error:
        pytest.skip(f"this processor has no LSTM in bfloat16: {error}")
    found = under_autocast(tmp_path, lstm)
    unsure = {row["API name"] for row in found if "True" not in row.values()}
    assert unsure == {"mkldnn_rnn_layer_1", "mkldnn_rnn_layer_backward_1"}
    out = capfd.readouterr().out
    assert mentions(out, "operators-compared", failed=0)
    assert mentions(out, "operators-not-compared", count=1, names="mkldnn_rnn_layer")


def under_autocast(place: Path, first: nn.Module) -> list[dict[str, str]]:
    """What is found, forward and backward, of a module and norms behind it in bfloat16 by autocast."""
    seed_all(0)
    norm, conv, batch_norm = nn.LayerNorm(8), nn.Conv1d(5, 3, 3), nn.BatchNorm1d(3)
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        with PtdbgDispatch(dump_path=place, tag="forward") as dispatch:
            result = first(torch.randn(2, 5, 8))
            result = result[0] if isinstance(result, tuple) else result
            loss = batch_norm(conv(norm(result))).softmax(-1, torch.float32).square().sum()
        found += rows(dispatch.folder, "accuracy_checking_result")
    with PtdbgDispatch(dump_path=place, tag="backward") as dispatch:
        loss.backward()
    return found + rows(dispatch.folder, "accuracy_checking_result")


def test_another_executor_and_what_is_not_run_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with PtdbgDispatch(dump_path=tmp_path, bench="cpu+mkldnn=off+inject:scale=1e-2") as dispatch:
        (torch.ones(2, 2) @ torch.ones(2, 2)).ge(1)
    found = {row["API name"]: row["Forward Test Success"] for row in rows(dispatch.folder, "accuracy_checking_result")}
    assert found == {"mm_1": "False", "ge_1": "True"}
    assert mentions(capfd.readouterr().out, "operator-disagrees", name="mm_1", who="cpu+mkldnn=off+inject:scale=1e-2")
    # A second all_gather would wait for all other ranks.
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with PtdbgDispatch(dump_path=tmp_path) as dispatch:
            gathered = [torch.zeros(2)]
            dist.all_gather(gathered, torch.ones(2))
    finally:
        dist.destroy_process_group()
    assert gathered[0].tolist() == [1, 1]
    assert rows(dispatch.folder, "accuracy_checking_result") == []


def test_what_is_saved_is_chosen(tmp_path: Path) -> None:
    for mode, expected in (("all", True), ("OFF", False)):
        folder = tmp_path / mode
        folder.mkdir()
        _, (forward, _) = train(folder, torch.float32, True, dump_mode=mode)
        assert bool(list(forward.folder.rglob("*.npy"))) is expected
    (tmp_path / "list").mkdir()
    _, (forward, _) = train(tmp_path / "list", torch.float32, True, dump_mode="list", api_list=["gelu", "sort"])
    found = {path.name.partition("_")[0] for path in forward.folder.rglob("*.npy")}
    assert found == {"gelu", "sort"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"dump_mode": "weird"}, "dump_mode must be one of all, list, auto, OFF, found 'weird'"),
        ({"dump_mode": "lits"}, 'did you mean "list"?'),
        ({"dump_path": None}, "dump_path must be an existing folder, found None"),
        ({"process_num": 99}, "process_num must be a whole number from 0 to"),
        ({"api_list": "add"}, "api_list must be a list of names"),
        ({"dump_mode": "list"}, "needs api_list"),
        ({"debug": 1}, "debug must be True or False"),
        ({"tag": 3}, "tag must be a text"),
        ({"bench": 3}, "bench must be the name of a device, found 3"),
        ({"bench": "cpu+nonsense"}, "bench 'cpu+nonsense': 'nonsense' is not known"),
        ({"bench": "cpu+compile"}, "bench runs single operators in a wider type"),
        ({"bench": "cuda:99"}, "is not available here"),
    ],
)
def test_mistakes_are_reported_with_the_parameter(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(DispatchException) as found:
        PtdbgDispatch(**{"dump_path": tmp_path, **settings})
    assert named in found.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_tag_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with PtdbgDispatch(dump_path=tmp_path / "in", tag="../../out"):
        torch.ones(2).exp()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


NAN, INF = float("nan"), float("inf")


@for_each(
    ("device", "bench", "dtype", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.0], "float32", True),
        ([1.0, 2.0002], [1.0, 2.0], "float32", False),
        ([1e-5, 0.0], [0.0, 0.0], "float32", True),
        ([1e-3, 0.0], [0.0, 0.0], "float32", False),
        ([1.003], [1.0], "bfloat16", True),
        ([1.003], [1.0], "float16", False),
        ([NAN, INF, 1.0], [NAN, INF, 1.0], "float32", True),
        ([NAN, -INF, 1.0], [NAN, INF, 1.0], "float32", False),
        ([NAN, INF, 1.5], [NAN, INF, 1.0], "float32", False),
        ([NAN, 1.0], [1.0, 1.0], "float32", False),
        ([1, 2], [1, 2], "int64", True),
        ([1, 2], [1, 3], "int64", False),
        ([], [], "float32", True),
    ],
)
def test_two_results_agree_or_not(device: Any, bench: Any, dtype: str, agrees: bool) -> None:
    kind = np.int64 if dtype == "int64" else np.float32
    assert judge(np.array(device, kind), np.array(bench, kind), dtype).agrees is agrees


def test_another_shape_does_not_agree() -> None:
    assert not judge(np.zeros(3, np.float32), np.zeros((3, 1), np.float32), "float32").agrees
