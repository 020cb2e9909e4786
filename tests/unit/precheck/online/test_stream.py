"""A recorder whose records go over the wire leaves, on the other side, the dump that it would have written itself."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from torch import nn

from msprobe.errors import NotAvailableError
from msprobe.precheck.online import arriving
from msprobe.precheck.online.arriving import Arriving
from msprobe.precheck.online.frames import WireFrame
from msprobe.precheck.online.sink import Stream, StreamSink
from msprobe.precheck.online.spool import ReceivedStep, Spool
from msprobe.precheck.online.tcp import TcpSender
from msprobe.precheck.online.tcp_receiver import TcpReceiver
from msprobe.pytorch import PrecisionDebugger


@pytest.fixture(autouse=True)
def _one_debugger() -> Iterator[None]:
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


def train(folder: Path, sink: Any = None, steps: int = 2, **settings: Any) -> list[torch.Tensor]:
    """A small training in bfloat16 and float32, with writes in place; its weights."""
    PrecisionDebugger.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    adam = torch.optim.Adam(model.parameters())
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="mix", **settings)
    if sink is not None:
        debugger.recorder.session.record_into(sink)
    for _ in range(steps):
        with debugger.recording(model):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
            adam.step()
            adam.zero_grad()
    PrecisionDebugger.reset()
    return [one.detach().clone() for one in model.parameters()]


def content(folder: Path) -> Any:
    """What a dump says, without where it lies."""
    # What is sent has no rows, which are for the comparison of dumps.
    found = json.loads(re.sub(r',"row":\d+', "", (folder / "dump.json").read_text()))
    found.pop("dump_data_dir")
    return found, json.loads((folder / "stack.json").read_text()), json.loads((folder / "construct.json").read_text())


@pytest.mark.parametrize("settings", [{}, {"async_dump": True, "list": ["linear", "relu"]}], ids=str)
def test_what_arrives_is_the_dump(tmp_path: Path, settings: dict[str, Any]) -> None:
    receiver = TcpReceiver("127.0.0.1", 0)
    found: list[ReceivedStep] = []
    thread = threading.Thread(target=lambda: found.extend(Spool(tmp_path / "spool").steps(receiver.frames())))
    thread.start()
    stream = Stream(lambda: TcpSender("127.0.0.1", receiver.port))
    # From one line, as call stacks tell.
    weights, wanted = [
        train(tmp_path / name, sink, **settings) for name, sink in (("none", StreamSink(stream)), ("dump", None))
    ]
    stream.close()
    thread.join(60)
    receiver.close()
    assert not (tmp_path / "none").exists()
    assert all(map(torch.equal, weights, wanted))
    assert [one.step for one in found] == [0, 1]
    for one in found:
        own = tmp_path / "dump" / f"step{one.step}" / "rank"
        assert content(one.folder) == content(own)
        files = sorted(path.name for path in (own / "dump_tensor_data").iterdir())
        assert sorted(path.name for path in (one.folder / "dump_tensor_data").iterdir()) == files
        assert len(files) > 10
        for name in files:
            ours, theirs = (torch.load(place / "dump_tensor_data" / name) for place in (one.folder, own))
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)
        one.drop()
        assert not one.folder.exists()


def test_a_training_goes_on_when_nobody_listens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def connect() -> Any:
        raise NotAvailableError("nobody listens at here:1")

    wanted = train(tmp_path / "dump")
    stream = Stream(connect)
    assert all(map(torch.equal, train(tmp_path / "none", StreamSink(stream)), wanted))
    stream.close()
    assert mentions(capfd.readouterr().out, "online-sends-no-more") == 1


def test_a_training_waits_for_room_and_then_goes_on_alone(capfd: pytest.CaptureFixture[str]) -> None:
    gate = threading.Event()

    class Stuck:
        def send(self, frame: WireFrame) -> None:
            gate.wait(30)

        def close(self) -> None:
            """Nothing."""

    stream = Stream(Stuck, patience=0.2, most=4096)
    for number in range(10):
        stream.put(WireFrame("tensor", number, 0, {}, b"x" * 2000))
    assert stream.failed
    gate.set()
    stream.close()
    assert mentions(capfd.readouterr().out, "frame-not-taken", seconds=0.2)


BEGIN = {
    "header": {"task": "tensor"},
    "extra": {},
    "kind": "dump",
    "with_stacks": True,
    "with_construct": True,
    "with_tensors": True,
}


def test_a_frame_that_cannot_be_kept_is_refused_and_harms_no_other_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sound = WireFrame("record", 0, 0, {"name": "Torch.add.0.forward", "stack": None, "parent": None}, b'{"a": 1}')
    refused: list[tuple[str, str, bool]] = []
    given = [
        WireFrame("begin", 0, 0, BEGIN, sender="stranger"),
        WireFrame("begin", 0, 0, BEGIN, sender="rank"),
        replace(sound, sender="rank"),
        WireFrame("run", 0, 0, {"command": "true"}, sender="stranger"),
        WireFrame("end", 0, 0, {"is_complete": True}, sender="rank"),
    ]
    spool = Spool(tmp_path, refuse=lambda *given: refused.append(given))
    (step,) = spool.steps(given)
    assert json.loads((step.folder / "dump.json").read_text())["data"] == {"Torch.add.0.forward": {"a": 1}}
    assert [(sender, is_of_disk) for sender, _, is_of_disk in refused] == [("stranger", False)]
    assert "of step 0, rank 0 is wrong" in capfd.readouterr().out


def test_a_step_that_the_disk_does_not_take_is_refused_and_named(tmp_path: Path) -> None:
    refused: list[tuple[str, str, bool]] = []
    (tmp_path / "spool").write_bytes(b"")  # no folder can be made in it
    record = WireFrame("record", 0, 0, {"name": "a", "stack": None, "parent": None}, b'{"a": 1}', "one")
    given = [
        WireFrame("begin", 0, 0, BEGIN, sender="one"),
        record,
        WireFrame("end", 0, 0, {"is_complete": True}, sender="one"),
    ]
    (step,) = Spool(tmp_path / "spool", refuse=lambda *said: refused.append(said)).steps(given)
    assert step.problem
    assert {(sender, is_of_disk) for sender, _, is_of_disk in refused} == {("one", True)}


@pytest.mark.parametrize("name", ["../../outside.pt", "/tmp/outside.pt", "a/../../b.pt", "..\\b.pt", ".pt", "\x00.pt"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    frames = [
        WireFrame("begin", 3, 1, BEGIN),
        WireFrame("tensor", 3, 1, {"name": name, "dtype": "int8", "shape": [4]}, b"1234"),
        WireFrame("link", 3, 1, {"name": f"x{name}", "existing": name}),
        WireFrame("end", 3, 1, {"is_complete": True}),
    ]
    (step,) = Spool(tmp_path / "spool").steps(frames)
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]
    folder = step.folder / "dump_tensor_data"
    assert all(path.parent == folder for path in (tmp_path / "spool").rglob("*.pt"))
    assert step.folder.parent == tmp_path / "spool"


def test_of_steps_that_do_not_end_what_came_is_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sound = {"name": "Torch.add.0.forward", "stack": None, "parent": None}
    frames = [WireFrame("begin", 0, rank, BEGIN) for rank in range(5)]
    frames += [WireFrame("record", 0, rank, sound, b'{"a": 1}') for rank in range(1, 5)]
    frames.append(WireFrame("end", 0, 1, {"is_complete": False, "is_wanted": False}))
    frames.append(WireFrame("end", 0, 2, {"is_complete": False}))
    frames += [
        WireFrame("begin", 0, 3, BEGIN),
        WireFrame("end", 0, 3, {"is_complete": True}),
    ]  # the program was started anew
    found = list(Spool(tmp_path, ranks=(0, 1, 2, 3)).steps(frames))
    assert [(one.rank, one.is_whole) for one in found] == [(2, False), (3, False), (3, True)]
    counts = [len(json.loads((one.folder / "dump.json").read_text())["data"]) for one in found]
    assert counts == [1, 1, 0]
    said = capfd.readouterr().out
    assert mentions(said, "online-step-did-not-end", step="step 0 of rank 0")
    assert mentions(said, "online-step-ended-early", step="step 0 of rank 2", count="1")
    assert len(list(tmp_path.rglob("dump.json"))) == 3


def test_steps_come_while_one_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    coming = iter([ReceivedStep(number, 0, tmp_path) for number in range(5)])
    steps = Arriving(coming, tmp_path)
    assert next(iter(steps)).step == 0
    while steps.waiting < 5:  # with the end
        time.sleep(0.01)
    assert [one.step for one in steps] == [1, 2, 3, 4]
    # A full disk: one step is taken, and the next when that is checked.
    monkeypatch.setattr(arriving, "LEAST_FREE_BYTES", 1 << 80)
    steps = Arriving(iter([ReceivedStep(number, 0, tmp_path) for number in range(5)]), tmp_path)
    said = ""
    while "is nearly full" not in said:
        said += capfd.readouterr().out
    assert steps.waiting == 1
    assert [one.step for one in steps] == [0, 1, 2, 3, 4]

    def broken() -> Iterator[ReceivedStep]:
        raise NotAvailableError("gone")
        yield

    with pytest.raises(NotAvailableError, match="gone"):
        list(Arriving(broken(), tmp_path))
