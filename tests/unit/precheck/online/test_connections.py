"""The ways a frame takes: over TCP, with TLS, through a folder; and what happens when one end fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tls_keys import made_keys, openssl

from msprobe.errors import InvalidInputError, NotAvailableError, PathError
from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import Frame
from msprobe.precheck.online.shared_folder import FolderReceiver, FolderSender
from msprobe.precheck.online.tcp import TcpReceiver, TcpSender
from msprobe.precheck.online.tls import PASSPHRASE, context_for

HOST = "127.0.0.1"


def frame(number: int, rank: int = 0) -> Frame:
    return Frame("tensor", number, rank, {"name": "a.pt"}, b"12345678")


def received(receiver: Any) -> tuple[list[Frame], threading.Thread]:
    found: list[Frame] = []
    thread = threading.Thread(target=lambda: found.extend(receiver.frames()))
    thread.start()
    return found, thread


def send(open_sender: Callable[[], Any], numbers: range, rank: int = 0) -> None:
    sender = open_sender()
    for number in numbers:
        sender.send(frame(number, rank))
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
        whole = b"".join(map(bytes, frames.pack(frame(5), 1)))
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
    assert "asked for once more" in said
    assert "ended without a farewell" in said


def test_a_sender_goes_on_when_the_connection_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = TcpReceiver(HOST, 0)
    found, thread = received(receiver)
    sender = TcpSender(HOST, receiver.port)
    sender.send(frame(0))
    sender._socket.shutdown(socket.SHUT_RDWR)
    sender.send(frame(1))
    sender.close()
    thread.join(30)
    receiver.close()
    assert [one.step for one in found] == [0, 1]


def test_a_frame_that_is_sent_twice_is_taken_once() -> None:
    receiver = TcpReceiver(HOST, 0)
    found, thread = received(receiver)
    with socket.create_connection((HOST, receiver.port)) as own:
        for _ in range(2):
            own.sendall(b"".join(map(bytes, frames.pack(frame(5), 9))))
            assert own.recv(12)[:4] == b"TAKE"
    send(lambda: TcpSender(HOST, receiver.port), range(1))
    thread.join(30)
    receiver.close()
    assert [one.step for one in found] == [5, 0]


def test_nobody_listens() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PathError, match=f"cannot listen at {HOST}:{port}"):
            TcpReceiver(HOST, port)
    with pytest.raises(NotAvailableError, match="nobody listens at"):
        TcpSender(HOST, port, patience=0.1)


def test_a_rank_that_is_lost_and_does_not_come_back_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0, senders=2, patience=0.1)
    found, thread = received(receiver)
    for rank in (1, 1):  # it comes back once
        with socket.create_connection((HOST, receiver.port)) as lost:
            lost.sendall(b"".join(map(bytes, frames.pack(frame(5, rank), 1))))
            assert lost.recv(12)[:4] == b"TAKE"
    send(lambda: TcpSender(HOST, receiver.port), range(1))
    thread.join(30)
    receiver.close()
    assert [one.rank for one in found] == [1, 0]
    assert "rank 1 has ended without a farewell" in capfd.readouterr().out


def test_a_check_ends_when_nothing_comes_any_more(capfd: pytest.CaptureFixture[str]) -> None:
    receiver = TcpReceiver(HOST, 0, idle=0.2)
    assert list(receiver.frames()) == []
    receiver.close()
    assert "nothing has come for 0.2 seconds" in capfd.readouterr().out


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
    with pytest.raises(NotAvailableError, match="does not agree on TLS"):
        TcpSender(HOST, receiver.port, context_for(str(keys / "strange"), "client"), patience=2)
    # One that believes everybody, but has a certificate that nobody here believes.
    careless = context_for(str(keys / "strange"), "client")
    assert careless is not None
    careless.load_verify_locations(str(keys / "ours" / "ca.crt"))
    with pytest.raises(NotAvailableError, match=r"hung up|does not agree on TLS"):
        TcpSender(HOST, receiver.port, careless, patience=2).send(frame(0))
    with pytest.raises(NotAvailableError):
        TcpSender(HOST, receiver.port, None, patience=2).send(frame(0))
    thread.join(30)
    receiver.close()
    assert found == []
    assert "does not agree on TLS and was sent away" in capfd.readouterr().out


def test_keys_that_cannot_be_used(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert context_for("", "client") is None
    with pytest.raises(PathError, match=r"has no client\.key, client\.crt, ca\.crt"):
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
    assert "is no frame and is left out" in capfd.readouterr().out


def test_a_folder_that_nobody_reads(tmp_path: Path) -> None:
    sender = FolderSender(str(tmp_path), most=2, patience=0.1)
    sender.send(frame(0))
    sender.send(frame(1))
    with pytest.raises(PathError, match="nobody reads"):
        sender.send(frame(2))
    with pytest.raises(PathError, match="is no folder"):
        FolderSender(str(tmp_path / "none"))
