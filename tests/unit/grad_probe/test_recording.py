"""What the probe writes of a PyTorch training: the acceptance checks of its specification."""

from __future__ import annotations

import hashlib
import itertools
import math
import stat
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.probed import Weights, configured, files, probe_one, probing, read, step  # noqa: E402
from torch import nn  # noqa: E402

from msprobe.pytorch import PrecisionDebugger  # noqa: E402

USERS_GRADIENT = [9.3, 5.4, -1.0, -12.3]
BOM = b"\xef\xbb\xbf"


@pytest.fixture(autouse=True)
def _no_debugger_stays() -> Any:
    yield
    PrecisionDebugger.reset()


# ---------------------------------------------------------------- layout, headers, values


@pytest.mark.parametrize(
    ("level", "header"),
    [
        ("L0", b"param_name,MD5,max,min,norm,shape"),
        ("L1", b"param_name,max,min,norm,shape"),
        ("L2", b'param_name,"(-inf, -1]","(-1, 0]","(0, 1]","(1, inf)",=0,max,min,norm,shape'),
    ],
)
def test_files_and_headers_of_a_level(tmp_path: Path, level: str, header: bytes) -> None:
    rank = probe_one(tmp_path, [1.0, -1.0], [2.0, -2.0], grad_level=level)
    directions = {"step0/w.npy", "step1/w.npy"} if level != "L0" else set()
    assert files(rank) == {"grad_summary_0.csv", "grad_summary_1.csv"} | directions
    data = (rank / "grad_summary_0.csv").read_bytes()
    assert data.startswith(BOM + header + b"\r\n")
    assert data.count(b"\r\n") == 2


def test_the_users_example(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, USERS_GRADIENT, grad_level="L2", bounds=[-10, 0, 10])
    assert (rank / "grad_summary_0.csv").read_bytes() == (
        BOM + b'param_name,"(-inf, -10]","(-10, 0]","(0, 10]","(10, inf)",=0,max,min,norm,shape\r\n'
        b"w,0.25,0.25,0.5,0.0,0.0,9.300000190734863,-12.300000190734863,16.368873596191406,[4]\r\n"
    )
    direction = np.load(rank / "step0" / "w.npy")
    assert direction.dtype == np.bool_
    assert direction.tolist() == [True, True, False, False]


def test_a_value_on_a_bound_is_in_the_interval_that_ends_there(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, [-2, -1, -0.5, -0.0, 0.0, 0.5, 1, 1.5, 2.0], grad_level="L2")
    row = read(rank / "grad_summary_0.csv")[0]
    shares = [float(row[name]) for name in ("(-inf, -1]", "(-1, 0]", "(0, 1]", "(1, inf)", "=0")]
    assert shares == [2 / 9, 3 / 9, 2 / 9, 2 / 9, 2 / 9]


def test_bounds_are_rounded_as_the_gradient_is(tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.float64, torch.float32):
        folder = tmp_path / str(dtype)
        folder.mkdir(exist_ok=True)
        gradient = torch.tensor([0.01, -0.01, 0, 0.02], dtype=dtype)
        rank = probe_one(folder, gradient, grad_level="L2", bounds=[-0.01, 0, 0.01])
        row = read(rank / "grad_summary_0.csv")[0]
        for label in ("(-inf, -0.01]", "(-0.01, 0]", "(0, 0.01]", "(0.01, inf)"):
            assert row[label] == "0.25"


def test_float64_is_divided_by_bounds_of_its_own_precision(tmp_path: Path) -> None:
    above = torch.tensor([0.1, math.nextafter(0.1, 1)], dtype=torch.float64)
    row = read(probe_one(tmp_path, above, grad_level="L2", bounds=[0.1]) / "grad_summary_0.csv")[0]
    assert (row["(-inf, 0.1]"], row["(0.1, inf)"]) == ("0.5", "0.5")


def test_many_bounds_give_what_few_give(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gradient = torch.randn(1000)
    gradient[7] = math.nan
    bounds = [number / 10 for number in range(-20, 21)]
    row = read(probe_one(tmp_path, gradient, grad_level="L2", bounds=bounds) / "grad_summary_0.csv")[0]
    labels = [f"({low}, {high}]" for low, high in itertools.pairwise(bounds)]
    for label, low, high in zip(labels, bounds[:-1], bounds[1:], strict=True):
        inside = (gradient > torch.tensor(low)) & (gradient <= torch.tensor(high))
        assert float(row[label]) == inside.sum().item() / 1000
    assert float(row["(2.0, inf)"]) == ((gradient > 2).sum().item() + 1) / 1000


def test_without_bounds_there_is_one_interval_without_nan(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, [1.0, math.nan, 0.0, -1.0], grad_level="L2", bounds=[])
    assert (rank / "grad_summary_0.csv").read_bytes() == (
        BOM + b'param_name,"(-inf, inf)",=0,max,min,norm,shape\r\nw,0.75,0.25,nan,nan,nan,[4]\r\n'
    )


def test_the_checksum_is_the_crc_of_the_float32_bytes(tmp_path: Path) -> None:
    data = (probe_one(tmp_path, [1.0], grad_level="L0") / "grad_summary_0.csv").read_bytes()
    assert data == BOM + b"param_name,MD5,max,min,norm,shape\r\nw,aca16a6a,1.0,1.0,1.0,[1]\r\n"


def test_the_checksum_of_strided_and_half_gradients_is_that_of_their_values(tmp_path: Path) -> None:
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    expected = f"{zlib.crc32(values.numpy().tobytes()):08x}"
    for place, gradient in enumerate(
        (values.t().contiguous().t(), values.to(torch.bfloat16), values.to(torch.float64))
    ):
        folder = tmp_path / str(place)
        folder.mkdir()
        assert read(probe_one(folder, gradient, grad_level="L0") / "grad_summary_0.csv")[0]["MD5"] == expected


def test_md5_where_it_is_asked_for(tmp_path: Path) -> None:
    row = read(probe_one(tmp_path, [1.0], grad_level="L0", checksum="md5") / "grad_summary_0.csv")[0]
    assert row["MD5"] == hashlib.md5(np.float32([1.0]).tobytes()).hexdigest()


def test_nan_and_infinities(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, [math.nan, 1.0, math.inf, -math.inf], grad_level="L2")
    row = read(rank / "grad_summary_0.csv")[0]
    assert list(row.values()) == ["w", "0.25", "0.0", "0.25", "0.5", "0.0", "nan", "nan", "nan", "[4]"]
    assert np.load(rank / "step0" / "w.npy").tolist() == [False, True, True, False]


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(tmp_path: Path, dtype: torch.dtype, level: str) -> None:
    gradient = torch.tensor([1, -1, 0.3, 0], dtype=dtype)
    rank = probe_one(tmp_path, gradient, grad_level=level)
    row = read(rank / "grad_summary_0.csv")[0]
    assert (float(row["max"]), float(row["min"])) == (1.0, -1.0)
    assert float(row["norm"]) == pytest.approx(float(gradient.double().norm()), rel=1e-6)
    if level != "L0":
        assert np.load(rank / "step0" / "w.npy").tolist() == [True, False, True, False]


def test_the_norm_in_the_gradients_own_type_where_it_is_asked_for(tmp_path: Path) -> None:
    gradient = torch.tensor([1, -1, 0.3, 0], dtype=torch.bfloat16)
    assert read(probe_one(tmp_path, gradient, compat_norm=True) / "grad_summary_0.csv")[0]["norm"] == "1.4453125"


def test_a_scalar_and_a_matrix(tmp_path: Path) -> None:
    model = Weights(one=(), many=(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model, grad_level="L1") as rank:
        step(optimizer, p0=2.0, p1=torch.ones(4, 3))
    lines = (rank / "grad_summary_0.csv").read_bytes().split(b"\r\n")
    assert lines[1] == b"one,2.0,2.0,2.0,[]"
    assert lines[2] == b'many,1.0,1.0,3.464101552963257,"[4, 3]"'
    assert np.load(rank / "step0" / "one.npy").shape == ()
    assert np.load(rank / "step0" / "many.npy").shape == (4, 3)


@pytest.mark.parametrize("kind", ["ternary", "packed"])
def test_other_forms_of_directions(tmp_path: Path, kind: str) -> None:
    values = [1.0, 0.0, -2.0, math.nan, 5.0, 1.0, 1.0, -0.0, 3.0]
    found = np.load(probe_one(tmp_path, values, direction=kind) / "step0" / "w.npy")
    if kind == "ternary":
        assert found.dtype == np.int8
        assert found.tolist() == [1, 0, -1, 2, 1, 1, 1, 0, 1]
    else:
        assert found.dtype == np.uint8
        assert found.tolist() == [0b10001110, 0b10000000]


def test_modes_of_files_and_folders(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, [1.0])
    for path in (rank, *rank.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640)


# ---------------------------------------------------------------- which steps and parameters


def test_steps_that_are_asked_for(tmp_path: Path) -> None:
    rank = probe_one(tmp_path, *[[1.0]] * 6, top={"step": [1, "3-4"]}, grad_level="L0")
    assert files(rank) == {"grad_summary_1.csv", "grad_summary_3.csv", "grad_summary_4.csv"}


def test_behind_the_last_step_no_hook_is_left(tmp_path: Path) -> None:
    from torch.optim import optimizer as hooks

    before = len(hooks._global_optimizer_pre_hooks)
    model = Weights(w=(1,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model, {"step": [0]}) as rank:
        step(optimizer, p0=[1.0])
        assert len(hooks._global_optimizer_pre_hooks) == before
        step(optimizer, p0=[1.0])
        assert files(rank) == {"grad_summary_0.csv", "step0/w.npy"}


def test_stop_takes_the_hooks_away_and_one_that_answers_a_start_does_not(tmp_path: Path) -> None:
    model = Weights(w=(1,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    debugger = PrecisionDebugger(configured(tmp_path))
    debugger.monitor(model)
    for _ in range(2):
        debugger.start(model)
        debugger.stop()
        step(optimizer, p0=[1.0])
        debugger.step()
    PrecisionDebugger.reset()
    assert len(list((tmp_path / "out" / "rank0").glob("*.csv"))) == 2


def test_a_single_process_is_rank_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe_one(tmp_path, [1.0], top={"rank": [1]})
    assert not (tmp_path / "out").exists()
    assert "nothing was written" in capsys.readouterr().out


def test_a_parameter_that_there_is_not_is_reported_with_names_near_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model, param_list=["0.weight", "1.wieght"]) as rank:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert [row["param_name"] for row in read(rank / "grad_summary_0.csv")] == ["0.weight"]
    assert 'no parameter "1.wieght"; near it are 1.weight' in capsys.readouterr().out


def test_unused_frozen_and_shared_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.unused = nn.Linear(3, 3)
            self.frozen = nn.Linear(3, 3).requires_grad_(False)
            self.tied = nn.Linear(3, 3, bias=False)
            self.tied.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.tied(self.frozen(self.first(x)))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model) as rank:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert [row["param_name"] for row in read(rank / "grad_summary_0.csv")] == ["first.weight", "first.bias"]
    assert "grad is None: unused.weight, unused.bias" in capsys.readouterr().out


def test_main_grad_goes_before_grad(tmp_path: Path) -> None:
    model = Weights(w=(1,))
    model.w.main_grad = torch.tensor([7.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model) as rank:
        step(optimizer, p0=[1.0])
    assert read(rank / "grad_summary_0.csv")[0]["max"] == "7.0"


def test_a_step_without_gradients_has_a_header(tmp_path: Path) -> None:
    model = Weights(w=(1,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with probing(tmp_path, model) as rank:
        optimizer.step()
    assert (rank / "grad_summary_0.csv").read_bytes() == BOM + b"param_name,max,min,norm,shape\r\n"


# ---------------------------------------------------------------- several optimizers, scalers, closures


def test_an_optimizer_of_another_model_does_not_count(tmp_path: Path) -> None:
    model, other = Weights(w=(1,)), Weights(w=(1,))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.0) for one in (other, model)]
    with probing(tmp_path, model) as rank:
        for _ in range(2):
            for optimizer in optimizers:
                step(optimizer, p0=[1.0])
    assert files(rank) == {"grad_summary_0.csv", "grad_summary_1.csv", "step0/w.npy", "step1/w.npy"}


def test_two_optimizers_of_one_model_make_one_step(tmp_path: Path) -> None:
    model = Weights(a=(1,), b=(1,))
    optimizers = [torch.optim.SGD([one], lr=0.0) for one in model.parameters()]
    with probing(tmp_path, model) as rank:
        for number in (1.0, 2.0):
            for optimizer in reversed(optimizers):
                step(optimizer, p0=[number])
        # The second step is there before anything follows.
        rows = [(row["param_name"], row["max"]) for row in read_when_written(rank / "grad_summary_1.csv")]
    assert rows == [("a", "2.0"), ("b", "2.0")]
    assert len(list(rank.glob("*.csv"))) == 2


def read_when_written(file: Path) -> list[dict[str, str]]:
    for _ in range(200):
        if file.exists():
            break
        time.sleep(0.05)
    return read(file)


def test_an_optimizer_that_steps_more_often_makes_more_steps(tmp_path: Path) -> None:
    model = Weights(a=(1,), b=(1,))
    often, seldom = (torch.optim.SGD([one], lr=0.0) for one in model.parameters())
    with probing(tmp_path, model) as rank:
        for number in range(6):
            step(often, p0=[float(number)])
            if number % 3 == 2:
                step(seldom, p0=[1.0])
    steps = [[row["param_name"] for row in read(rank / f"grad_summary_{n}.csv")] for n in range(7)]
    assert sum(names.count("a") for names in steps) == 6
    assert sum(names.count("b") for names in steps) == 2


def test_a_step_that_a_scaler_skips_does_not_count(tmp_path: Path) -> None:
    model = Weights(w=(2,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with probing(tmp_path, model) as rank:
        for number, factor in enumerate((1.0, math.inf, 3.0)):
            optimizer.zero_grad()
            scaler.scale((model.w * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert number < 3
    assert [read(rank / f"grad_summary_{n}.csv")[0]["max"] for n in (0, 1)] == ["1.0", "3.0"]
    assert len(list(rank.glob("*.csv"))) == 2


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_with_a_closure_the_gradients_are_those_of_the_step(tmp_path: Path, kind: Any) -> None:
    model = Weights(w=(2,))
    optimizer = kind(model.parameters(), lr=0.0)
    factors = iter((1.0,) * 30) if kind is torch.optim.LBFGS else iter((1.0, 2.0))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model.w * next(factors)).sum()
        loss.backward()
        return loss

    with probing(tmp_path, model) as rank:
        optimizer.step(closure)
        if kind is torch.optim.SGD:
            optimizer.step(closure)
    expected = ["1.0", "2.0"] if kind is torch.optim.SGD else ["1.0"]
    assert [read(rank / f"grad_summary_{n}.csv")[0]["max"] for n in range(len(expected))] == expected


def test_an_optimizer_of_copies_of_the_parameters_counts(tmp_path: Path) -> None:
    model = Weights(w=(2,)).to(torch.bfloat16)
    copy = nn.Parameter(model.w.detach().float())
    optimizer = torch.optim.SGD([copy], lr=0.0)
    with probing(tmp_path, model) as rank:
        model.w.main_grad = torch.tensor([5.0, -5.0])
        copy.grad = model.w.main_grad
        optimizer.step()
    assert read(rank / "grad_summary_0.csv")[0]["max"] == "5.0"


def test_a_model_whose_parameters_are_replaced_is_read_again(tmp_path: Path) -> None:
    model = Weights(w=(1,))
    with probing(tmp_path, model) as rank:
        model.w = nn.Parameter(torch.zeros(1))
        step(torch.optim.SGD(model.parameters(), lr=0.0), p0=[3.0])
    assert read(rank / "grad_summary_0.csv")[0]["max"] == "3.0"


def test_several_models(tmp_path: Path) -> None:
    models = [Weights(w=(1,)), Weights(w=(1,))]
    optimizer = torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.0)
    with probing(tmp_path, models) as rank:
        step(optimizer, p0=[1.0], p1=[2.0])
    rows = [(row["param_name"], row["max"]) for row in read(rank / "grad_summary_0.csv")]
    assert rows == [("0.w", "1.0"), ("1.w", "2.0")]
