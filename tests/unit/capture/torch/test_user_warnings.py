"""Warnings and tracebacks of the user's program are told of the lines they would be told of without us."""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msprobe.capture import native
from msprobe.pytorch import PrecisionDebugger

MODULES = nn.modules.module.__file__
Told = list[tuple[str, str, int]]


class Loud(nn.Module):
    """Warns of every level of its callers."""

    def forward(self, x: Tensor) -> Tensor:
        for level in range(1, 9):
            warnings.warn(f"forward {level}", stacklevel=level)
        warnings.warn("by place", UserWarning, 4)
        return x * 1


class LoudFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        for level in range(1, 6):
            warnings.warn(f"function {level}", stacklevel=level)
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        for level in range(1, 8):
            warnings.warn(f"backward {level}", stacklevel=level)
        return g


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def hook(module: nn.Module, args: Any) -> None:
    for level in range(1, 6):
        warnings.warn(f"hook {level}", stacklevel=level)


def of_cpp(x: Tensor) -> None:
    torch.range(0, 2)
    torch.add(x.detach(), 1, out=torch.empty(7))
    for _ in range(2):
        torch.range(0, 3)


def of_torch(x: Tensor) -> None:
    F.softmax(x)
    F.log_softmax(x)
    F.nll_loss(F.log_softmax(x, 1), torch.tensor([0, 1]), size_average=False)
    nn.Softmax()(x)
    with Mode():
        F.softmax(x)
    nn.utils.clip_grad_norm([torch.ones(2, requires_grad=True)], 1.0)
    F.l1_loss(x, x[:1])
    nn.init.uniform(x.clone())


def training(x: Tensor) -> None:
    model = nn.Sequential(Loud(), nn.Sequential(Loud()))
    model(x)
    LoudFunction.apply(x).sum().backward()
    torch.autograd.grad(LoudFunction.apply(x).sum(), x)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    hooked = nn.Sequential(Loud())
    hooked.register_forward_pre_hook(hook)
    hooked(x)


def told(work: Callable[[Tensor], None]) -> Told:
    """The warnings of ``work`` as they are shown; each place once."""
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        work(torch.ones(2, 3, requires_grad=True))
    # Modules call forward() in another line where they have hooks, whoever has put them there.
    return [(str(w.message).split("\n")[0], w.filename, w.lineno * (w.filename != MODULES)) for w in caught]


def told_without_and_with(
    place: Path, level: str, work: Callable[[Tensor], None], model: nn.Module | None = None
) -> tuple[Told, Told, Told]:
    """Without us, while recording, and behind it. Called from one line, which warnings may be of."""
    told(work)
    found: list[Told] = []
    for recording in (False, True, False):
        debugger = PrecisionDebugger(dump_path=str(place), level=level, task="statistics")
        if recording:
            debugger.start(model if model is not None else nn.Sequential(nn.Identity()))
        found.append(told(work))
        debugger.stop()
        PrecisionDebugger.reset()
    return found[0], found[1], found[2]


def recorded(place: Path, level: str, work: Callable[[], Any], model: nn.Module | None = None) -> Any:
    debugger = PrecisionDebugger(dump_path=str(place), level=level, task="statistics")
    debugger.start(model if model is not None else nn.Sequential(nn.Identity()))
    try:
        return work()
    finally:
        debugger.stop()
        debugger.step()
        PrecisionDebugger.reset()


@pytest.mark.parametrize("work", [of_cpp, of_torch, training])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_warnings_have_the_place_they_have_without_us(
    tmp_path: Path, level: str, work: Callable[[Tensor], None]
) -> None:
    expected, found, behind = told_without_and_with(tmp_path, level, work)
    assert len(expected) >= 3
    assert found == expected
    assert behind == expected


def test_warnings_of_a_watched_model_have_the_place_they_have_without_us(tmp_path: Path) -> None:
    """The hooks on modules bring a frame of torch's with them."""
    plain, hooked = nn.Sequential(Loud(), nn.Sequential(Loud())), nn.Sequential(Loud())
    hooked[0].register_forward_pre_hook(hook)
    both = nn.ModuleList([plain, hooked])

    def work(x: Tensor) -> None:
        for model in both:
            model(x)

    for level in ("L0", "mix"):
        expected, found, _ = told_without_and_with(tmp_path / level, level, work, both)
        assert found == expected


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_place_warns_once_as_without_us(tmp_path: Path, level: str) -> None:
    """``__warningregistry__``: by the place of the program, so two places warn twice and a loop once."""

    def work(x: Tensor) -> None:
        for _ in range(3):
            F.softmax(x)
            torch.range(0, 2)
        F.softmax(x)
        torch.range(0, 2)

    expected, found, _ = told_without_and_with(tmp_path, level, work)
    assert [text[:8] for text, _, _ in expected] == ["Implicit", "torch.ra", "Implicit", "torch.ra"]
    assert found == expected


def test_warnings_that_are_errors_are_raised_as_without_us(tmp_path: Path) -> None:
    def mine() -> None:
        warnings.warn("mine", stacklevel=1)

    def work() -> list[str]:
        lines: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for call in (lambda: torch.range(0, 2), lambda: F.softmax(torch.ones(2)), mine):
                try:
                    call()
                except UserWarning as error:
                    frames = traceback.extract_tb(error.__traceback__)
                    lines += [f"{error}", f"{frames[0].lineno} {frames[-1].name}"]
        return lines

    expected = work()
    assert len(expected) == 6
    assert recorded(tmp_path, "mix", work) == expected


def test_recording_itself_warns_of_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())

    def work() -> None:
        x = torch.ones(2, 3, requires_grad=True)
        (model(x) * 2).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for level in ("L0", "L1", "mix", "L2"):
            recorded(tmp_path / level, level, work, model)


def test_a_traceback_shows_the_users_program_alone(tmp_path: Path) -> None:
    def fails() -> list[tuple[str, str]]:
        try:
            torch.ones(2, 3) @ torch.ones(2, 3)
        except RuntimeError as error:
            return [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        return []

    expected = fails()
    found = recorded(tmp_path, "L1", fails)
    if native.built:
        assert found == expected
    else:
        assert found[0] == expected[0]


def test_log_lines_name_the_place_they_name_without_us(tmp_path: Path) -> None:
    class Logs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            logger.warning("forward")
            place()
            return x * 1

    def place() -> None:
        logger.warning("caller", stacklevel=2)

    logger = logging.Logger("of the user")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s %(pathname)s:%(lineno)d"))
    logger.addHandler(handler)
    model = nn.Sequential(Logs())

    def work() -> str:
        stream.seek(0)
        stream.truncate()
        model(torch.ones(1))
        return stream.getvalue()

    expected = work()
    assert recorded(tmp_path, "mix", work, model) == expected


def test_warn_that_was_imported_while_recording_works_for_ever(tmp_path: Path) -> None:
    kept: list[Any] = []
    recorded(tmp_path, "L1", lambda: kept.append(warnings.warn))
    assert warnings.warn is not kept[0]

    def work(x: Tensor) -> None:
        kept[-1]("kept", stacklevel=1)
        kept[-1]("kept", DeprecationWarning, stacklevel=2)
        kept[-1](message="kept", category=UserWarning, stacklevel=3)

    found: list[Told] = []
    for function in (warnings.warn, kept[0]):
        kept.append(function)
        found.append(told(work))
    assert found[0] == found[1]
    with pytest.raises(TypeError):
        kept[0]()
