"""The ways a frame takes: over TCP, with TLS, through a folder; and what happens when one end fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions, raising
from support.tls_keys import made_keys, openssl

from msprobe.errors import InvalidInputError, NotAvailableError, PathError
from msprobe.precheck.online import frames, life, shared_folder
from msprobe.precheck.online.frames import WireFrame
from msprobe.precheck.online.shared_folder import FolderReceiver, FolderSender
from msprobe.precheck.online.tcp import TcpSender
from msprobe.precheck.online.tcp_receiver import TcpReceiver
from msprobe.precheck.online.tls import PASSPHRASE, context_for
from msprobe.store import heartbeat, processes

HOST = "127.0.0.1"


BEGIN = {"header": {}, "extra": {}, "kind": "dump", "with_stacks": False, "with_construct": False,
         "with_tensors": False}  # fmt: skip


def frame(number: int, rank: int = 0) -> WireFrame:
    return WireFrame(
        "record", number, rank, {"name": "Torch.add.0.forward", "stack": None, "parent": None}, b'{"a": 1}'
    )


def step(number: int, rank: int = 0) -> list[WireFrame]:
    """The frames of a step with one record."""
    return [
        WireFrame("begin", number, rank, BEGIN),
        frame(number, rank),
        WireFrame("end", number, rank, {"is_complete": True}),
    ]


def packed(one: WireFrame, sequence: int) -> bytes:
    return b"".join(map(bytes, frames.pack(one, sequence)))


def received(receiver: Any) -> tuple[list[WireFrame], threading.Thread]:
    """The records that come, and the thread that takes them."""
    found: list[WireFrame] = []
    thread = threading.Thread(target=lambda: found.extend(one for one in receiver.frames() if one.what == "record"))
    thread.start()
    return found, thread


def send(open_sender: Callable[[], Any], numbers: range, rank: int = 0) -> None:
    sender = open_sender()
    for number in numbers:
        for one in step(number, rank):
            sender.send(one)
    sender.close()


def test_frames_of_two_ranks_arrive_each_in_its_order() -> None:
    receiver = TcpReceiver(HOST, 0, senders=2, held=2)
    found, thread = received(receiver)
    ranks = [
        threading.Thread(target=send, args=(lambda: TcpSender(HOST, receiver.port), range(30), rank)) for rank in (0, 1)
    ]
    for rank in ranks:
        rank.start()
    for rank in [*ranks, thread]:
        rank.join(30)
    receiver.close()
    for number in (0, 1):
        assert [one.step for one in found if one.rank == number] == list(range(30))


def test_a_damaged_frame_is_asked_for_again_and_a_stranger_harms_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0)
    found, thread = received(receiver)
    with socket.create_connection((HOST, receiver.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")
    with socket.create_connection((HOST, receiver.port)) as own:
        own.sendall(packed(WireFrame("begin", 5, 0, BEGIN), 1))
        assert own.recv(12)[:4] == b"TAKE"
        whole = packed(frame(5), 2)
        own.sendall(whole[:-1] + b"?")
        assert own.recv(12)[:4] == b"MORE"
        own.sendall(whole)
        assert own.recv(12)[:4] == b"TAKE"
        # It dies here, without a farewell and in the middle of a frame.
        own.sendall(whole[:9])
    send(lambda: TcpSender(HOST, receiver.port), range(1))
    thread.join(30)
    receiver.close()
    assert [one.step for one in found] == [5, 0]
    said = capfd.readouterr().out
    assert mentions(said, "frame-asked-again")
    assert mentions(said, "connection-ended")


def test_a_sender_goes_on_when_the_connection_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = TcpReceiver(HOST, 0)
    found, thread = received(receiver)
    sender = TcpSender(HOST, receiver.port)
    first, second = step(0), step(1)
    sender.send(first[0])
    sender._socket.shutdown(socket.SHUT_RDWR)
    for one in (*first[1:], *second):
        sender.send(one)
    sender.close()
    thread.join(30)
    receiver.close()
    assert [one.step for one in found] == [0, 1]


def test_a_frame_that_is_sent_twice_is_taken_once() -> None:
    receiver = TcpReceiver(HOST, 0)
    found, thread = received(receiver)
    with socket.create_connection((HOST, receiver.port)) as own:
        for one, sequence in ((WireFrame("begin", 5, 0, BEGIN), 8), (frame(5), 9), (frame(5), 9)):
            own.sendall(packed(one, sequence))
            assert own.recv(12)[:4] == b"TAKE"
    send(lambda: TcpSender(HOST, receiver.port), range(1))
    thread.join(30)
    receiver.close()
    assert [one.step for one in found] == [5, 0]


def test_nobody_listens() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with raising(PathError, "online-cannot-listen", host=HOST, port=port):
            TcpReceiver(HOST, port)
    with raising(NotAvailableError, "peer-does-not-listen"):
        TcpSender(HOST, port, patience=0.1)


def test_a_rank_that_is_lost_and_does_not_come_back_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0, senders=2, patience=0.1)
    found, thread = received(receiver)
    for rank in (1, 1):  # it comes back once
        with socket.create_connection((HOST, receiver.port)) as lost:
            for sequence, one in enumerate(step(5, rank)):
                lost.sendall(packed(one, sequence))
                assert lost.recv(12)[:4] == b"TAKE"
    send(lambda: TcpSender(HOST, receiver.port), range(1))
    thread.join(30)
    receiver.close()
    assert [one.rank for one in found] == [1, 1, 0]
    assert mentions(capfd.readouterr().out, "rank-connection-broke", rank="1")


def test_a_check_ends_when_nothing_comes_any_more(capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0, idle=0.2)
    assert list(receiver.frames()) == []
    receiver.close()
    assert mentions(capfd.readouterr().out, "online-nothing-comes", idle=0.2)


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys and certificates of both sides, and those of a stranger's authority."""
    top = tmp_path_factory.mktemp("keys")
    for name in ("ours", "strange"):
        made_keys(top / name)
    return top


def test_frames_over_tls(keys: Path) -> None:
    folder = str(keys / "ours")
    receiver = TcpReceiver(HOST, 0, context_for(folder, "server"))
    found, thread = received(receiver)
    send(lambda: TcpSender(HOST, receiver.port, context_for(folder, "client")), range(3))
    thread.join(30)
    receiver.close()
    assert len(found) == 3


def test_another_authority_is_not_believed(keys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0, context_for(str(keys / "ours"), "server"), idle=1)
    found, thread = received(receiver)
    with raising(NotAvailableError, "peer-tls"):
        TcpSender(HOST, receiver.port, context_for(str(keys / "strange"), "client"), patience=2)
    # One that believes everybody, but has a certificate that nobody here believes.
    careless = context_for(str(keys / "strange"), "client")
    assert careless is not None
    careless.load_verify_locations(str(keys / "ours" / "ca.crt"))
    with raising(NotAvailableError, "peer-hung-up"):
        TcpSender(HOST, receiver.port, careless, patience=2).send(frame(0))
    with pytest.raises(NotAvailableError):
        TcpSender(HOST, receiver.port, None, patience=2).send(frame(0))
    thread.join(30)
    receiver.close()
    assert found == []
    assert mentions(capfd.readouterr().out, "sent-away-for-tls")


def test_keys_that_cannot_be_used(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert context_for("", "client") is None
    with raising(PathError, "tls-files-missing", missing="client.key, client.crt, ca.crt"):
        context_for(str(tmp_path), "client")
    for name in ("client.crt", "ca.crt"):
        (tmp_path / name).write_bytes((keys / "ours" / name).read_bytes())
    openssl(keys / "ours", "rsa", "-aes256", "-passout", "pass:secret", "-in", "client.key", "-out",
            str(tmp_path / "client.key"))  # fmt: skip
    monkeypatch.delenv(PASSPHRASE, raising=False)
    with pytest.raises(InvalidInputError, match=PASSPHRASE):
        context_for(str(tmp_path), "client")
    monkeypatch.setenv(PASSPHRASE, "secret")
    assert context_for(str(tmp_path), "client") is not None


# ---------------------------------------------------------------- a folder


def test_frames_through_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    receiver = FolderReceiver(str(tmp_path), senders=2)
    found, thread = received(receiver)
    (tmp_path / "rank0_000000000.frame").write_bytes(b"no frame")
    (tmp_path / "notes.txt").write_text("of somebody else")
    ranks = [
        threading.Thread(target=send, args=(lambda: FolderSender(str(tmp_path), most=3), range(9), rank))
        for rank in (0, 1)
    ]
    for rank in ranks:
        rank.start()
    for rank in [*ranks, thread]:
        rank.join(30)
    for number in (0, 1):
        assert [one.step for one in found if one.rank == number] == list(range(9))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert mentions(capfd.readouterr().out, "online-file-is-no-frame", file="rank0_000000000.frame", folder=tmp_path)


def test_a_folder_that_nobody_reads(tmp_path: Path) -> None:
    sender = FolderSender(str(tmp_path), most=2, patience=0.1)
    sender.send(frame(0))
    sender.send(frame(1))
    with raising(PathError, "nfs-path-without-reader"):
        sender.send(frame(2))
    with raising(PathError, "nfs-path-is-no-folder"):
        FolderSender(str(tmp_path / "none"))


def test_a_rank_of_another_machine_that_gives_no_sign_of_life_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "can_be_asked", lambda owner: False)
    monkeypatch.setattr(heartbeat, "SECONDS", 0.02)
    monkeypatch.setattr(life, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(shared_folder, "_LOOK", 0.02)
    heartbeat.forget_after_fork()
    living, silent = FolderSender(str(tmp_path)), FolderSender(str(tmp_path))
    living.send(frame(0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(heartbeat, "keep", lambda path: None)
        silent.send(frame(0, 1))
    found, thread = received(FolderReceiver(str(tmp_path), senders=2))
    said = ""
    while "rank 1 has died" not in said:
        said += capfd.readouterr().out
        assert thread.is_alive()
    assert mentions(said, "rank-died", rank=1)
    silent.send(frame(1, 1))  # it was only slow
    heartbeat.keep(str(next(path for path in tmp_path.glob("start_*") if json.loads(path.read_text())["rank"] == 1)))
    while not mentions(said, "rank-is-back", rank=1):
        said += capfd.readouterr().out
        assert thread.is_alive()
    living.close()
    silent.close()
    thread.join(30)
    heartbeat.forget_after_fork()
    assert [(one.rank, one.step) for one in found] == [(0, 0), (1, 0), (1, 1)]
    assert "rank 0" not in said
    assert list(tmp_path.iterdir()) == []


def test_marks_of_an_earlier_run_are_distinguished_from_those_of_this_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = {**processes.this_process().as_dict(), "started": 1}
    for number, rank in ((5, 0), (50, 1), (60, 1)):
        (tmp_path / f"start_1_{number}").write_text(json.dumps({"rank": rank, "process": gone}))
    for number in (2, 3):
        (tmp_path / f"end_1_{number}").touch()
    # Of the second one of rank 1, which died before this check began, a frame is left.
    (tmp_path / "rank1_00061.frame").write_bytes(packed(frame(0, 1), 61))
    sender = FolderSender(str(tmp_path))
    sender.send(frame(0, 0))
    found, thread = received(FolderReceiver(str(tmp_path), senders=2))
    said = ""
    while "has died" not in said:
        said += capfd.readouterr().out
    # Of two that have ended no frame was there: they do not count.
    sender.close()
    thread.join(30)
    assert [one.rank for one in found] == [1, 0]
    assert [mentions(said, "rank-of-earlier-run", rank=rank) for rank in (0, 1)] == [1, 1]
    assert said.count("rank 1 has died") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_sender_that_comes_and_goes_between_two_looks_counts(tmp_path: Path) -> None:
    send(lambda: FolderSender(str(tmp_path)), range(3))
    assert len([one for one in FolderReceiver(str(tmp_path)).frames() if one.what == "record"]) == 3
    assert list(FolderReceiver(str(tmp_path), idle=0.1).frames()) == []
