"""Who is no rank of the training neither ends the online check nor makes it lose what a rank has sent."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.tls_keys import made_keys

from hostile.made import TENSOR
from hostile.receiver import (
    BEGIN,
    FAREWELL,
    HEAD,
    RECORD,
    Attack,
    attacked,
    checking,
    connected,
    frame,
    framed,
    honest,
    honest_frames,
    said,
    send,
)
from msprobe.precheck.online import connections
from msprobe.precheck.online.tls import context_for

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes and sockets as POSIX has them")

LATE = (1 << 63) - 1


# ---------------------------------------------------------------- the whole command


def all_at_once(port: int) -> None:
    """What each of the attacks below does, one after the other, and some connections that stay."""
    for attack in ATTACKS.values():
        with contextlib.suppress(OSError):
            attack(port)


def test_nobody_attacks(tmp_path: Path) -> None:
    text = attacked(tmp_path, lambda port: None)
    assert mentions(text, "online-checked", calls=1, steps=1, wrong=0)


def test_a_farewell_of_a_stranger_does_not_end_the_check(tmp_path: Path) -> None:
    attacked(tmp_path, lambda port: send(port, FAREWELL))


def test_numbers_outside_of_64_bits_are_refused(tmp_path: Path) -> None:
    attacked(tmp_path, lambda port: send(port, frame("begin", 10**40, step=9, **BEGIN)))


def test_numbers_that_are_infinite_are_refused(tmp_path: Path) -> None:
    stack = frame("stack", 11, step=5, stack=float("inf"), frames=["a"])
    attacked(tmp_path, lambda port: send(port, frame("begin", 10, step=5, **BEGIN), stack))


def test_all_attacks_in_turn_lose_no_honest_step(tmp_path: Path) -> None:
    attacked(tmp_path, all_at_once)


def hostile_calls() -> list[bytes]:
    """A whole step of rank 7 whose calls are of no function, need too much, or have values that are files elsewhere."""
    system = {"type": "str", "value": "touch /tmp/run"}
    made: list[tuple[str, Any, dict[str, Any]]] = [
        ("Functional.relu.0.forward", [{**TENSOR, "data_name": "../../../../etc/passwd"}], {}),
        ("Functional.relu.1.forward", [{**TENSOR, "shape": [1 << 40]}], {}),
        ("Functional.relu.2.forward", [{**TENSOR, "shape": [-1]}], {}),
        ("Functional.relu.3.forward", [{**TENSOR, "dtype": "torch.set_num_threads"}], {}),
        ("os.system.4.forward", [system], {}),
        ("Torch.load.5.forward", [system], {}),
        ("Functional.relu.6.forward", 7, {}),
        ("Functional.relu.7.forward", [{**TENSOR, "Max": "nan", "Min": None}], {"x/../../y": system}),
    ]
    frames = [begin(rank=7)]
    for number, (name, arguments, keywords) in enumerate(made, 2):
        call = {"input_args": arguments, "input_kwargs": keywords, "output": [TENSOR]}
        frames.append(frame("record", number, json.dumps(call).encode(), rank=7, **{**RECORD, "name": name}))
    return [*frames, frame("end", 100, rank=7, is_complete=True)]


def test_calls_of_a_stranger_are_left_out_one_by_one(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with connected(port) as stranger:
            assert {said(stranger, one) for one in hostile_calls()} == {b"TAKE"}
            honest(port)

    attacked(tmp_path, attack, lambda port: None, calls=9)
    (rows,) = (tmp_path / "out").glob("*result*_rank7.csv")
    assert rows.read_text().count("SKIP") == 8
    (rows,) = (tmp_path / "out").glob("*result*_rank0.csv")
    assert "Functional.relu.0,pass" in rows.read_text()


def test_a_check_in_which_no_call_was_checked_does_not_look_like_success(tmp_path: Path) -> None:
    # A whole step, with a call that is no function, and nobody comes behind it.
    call = frame("record", 2, b'{"input_args": [], "input_kwargs": {}, "output": []}', **{**RECORD, "name": "x.y.0"})
    frames = (frame("begin", 1, **BEGIN), call, frame("end", 3, is_complete=True), FAREWELL)
    text = attacked(tmp_path, lambda port: send(port, *frames), lambda port: None, calls=0, status=2)
    assert mentions(text, "online-without-calls")


# ---------------------------------------------------------------- one attack, then the honest rank


def begin(sequence: int = 1, **more: Any) -> bytes:
    return frame("begin", sequence, **{**BEGIN, **more})


def reset_in_the_middle_of_a_frame(port: int) -> None:
    with connected(port) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(honest_frames()[0][:30])


def ends_that_nobody_reads(port: int) -> None:
    with connected(port) as one:
        one.sendall(b"".join(honest_frames(step=8)[:2]))


def tensor(sequence: int, **more: Any) -> bytes:
    return frame("tensor", sequence, b"12345678", **{"name": "a.pt", "dtype": "float32", "shape": [2], **more})


ATTACKS: dict[str, Attack] = {
    "farewell": lambda port: send(port, FAREWELL),
    "farewell twice": lambda port: send(port, FAREWELL, FAREWELL),
    "begin and farewell of a rank that is none": lambda port: send(port, begin(rank=5), FAREWELL),
    "an empty step and farewell": lambda port: send(port, begin(), frame("end", 2, is_complete=True), FAREWELL),
    "begin of rank 0": lambda port: send(port, begin(step=0)),
    "the latest number there is": lambda port: send(port, begin(LATE), begin(LATE + 1)),
    "a huge rank": lambda port: send(port, begin(rank=10**30)),
    "a negative step": lambda port: send(port, begin(step=-1)),
    "end without begin": lambda port: send(port, frame("end", 1, is_complete=True), FAREWELL),
    "records of a step that has not begun": lambda port: send(port, frame("record", 1, b"{}", **RECORD), FAREWELL),
    "a tensor of no step": lambda port: send(port, tensor(1), FAREWELL),
    "a shape that is not that of the bytes": lambda port: send(port, begin(), tensor(2, shape=[3]), FAREWELL),
    "an element type that is none": lambda port: send(port, begin(), tensor(2, dtype="os.system"), FAREWELL),
    "names that are paths": lambda port: send(port, begin(), tensor(2, name="../../outside.pt"), FAREWELL),
    "a header that is nested deep": lambda port: send(port, framed(b"[" * 100_000)),
    "a header without end": lambda port: send(port, HEAD.pack(b"MSP1", (1 << 32) - 1, 0, 0)),
    "a frame of 2**63 bytes": lambda port: send(port, HEAD.pack(b"MSP1", 10, 1 << 63, 0) + b"x" * 10),
    "garbage": lambda port: send(port, b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"),
    "numbers that are texts": lambda port: send(port, frame("begin", 1, **{**BEGIN, "kind": ["dump"]})),
    "a record that is a number": lambda port: send(port, begin(), frame("record", 2, b"1", **RECORD)),
    "a kind that is none": lambda port: send(port, begin(), frame("run", 2, command="true")),
    "the word of the receiver to itself": lambda port: send(port, begin(), frame("gone", 2)),
    "a reset in the middle of a frame": reset_in_the_middle_of_a_frame,
    "answers that nobody reads": ends_that_nobody_reads,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_after_one_attack_an_honest_step_is_there(tmp_path: Path, name: str) -> None:
    with checking(tmp_path) as check:
        ATTACKS[name](check.port)
        assert not check.is_over
        honest(check.port)
    assert check.calls() == ["Functional.relu.0.forward"]
    assert {one.name for one in tmp_path.iterdir()} <= {"spool"}


def test_a_stranger_who_claims_the_rank_in_the_middle_of_its_step_changes_nothing(tmp_path: Path) -> None:
    frames = honest_frames()
    with checking(tmp_path) as check, connected(check.port) as rank, connected(check.port) as stranger:
        for number, one in enumerate(frames):
            assert said(rank, one) == (b"TAKE" if number < 5 else b"DONE")
            # The same step of the same rank, with numbers that are later than all of the rank.
            said(stranger, begin(LATE - 100 + 2 * number))
            said(stranger, tensor(LATE - 99 + 2 * number))
        stranger.close()
    assert check.calls() == ["Functional.relu.0.forward"]


def test_numbers_that_go_back_are_refused_and_the_same_one_is_taken_once(tmp_path: Path) -> None:
    with checking(tmp_path) as check:
        assert send(check.port, begin(9), begin(9), begin(8)) == [b"TAKE", b"TAKE", b"DENY"]
        # Of the same number, and of a different content.
        assert send(check.port, begin(9), begin(9, step=3)) == [b"TAKE", b"DENY"]
        honest(check.port)
    assert check.calls() == ["Functional.relu.0.forward"]


def test_steps_that_only_begin_are_bounded(tmp_path: Path) -> None:
    with checking(tmp_path) as check:
        answers = send(check.port, *(begin(n, step=n) for n in range(1, 200)))
        assert answers[0] == b"TAKE"
        assert answers[-1] == b"DENY"
        honest(check.port)
    assert check.calls() == ["Functional.relu.0.forward"]


def test_a_rank_that_is_not_wanted_is_answered_so_and_does_not_count(tmp_path: Path) -> None:
    with checking(tmp_path, ranks=(0,), senders=8) as check:
        assert send(check.port, *honest_frames(rank=3)) == [*[b"SKIP"] * 5, b"DONE"]
        assert not check.is_over
        honest(check.port)
    assert [step.rank for step in check.steps] == [0]


def test_hundreds_of_idle_connections_do_not_keep_a_rank_out(tmp_path: Path) -> None:
    with checking(tmp_path) as check:
        idle = [connected(check.port) for _ in range(300)]
        time.sleep(1.2)  # an age at which one of them makes room
        idle += [connected(check.port) for _ in range(20)]
        honest(check.port)
        sent_away = 0
        for one in idle:
            one.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                sent_away += one.recv(1) == b""
        assert sent_away >= 20
        for one in idle:
            one.close()
    assert check.calls() == ["Functional.relu.0.forward"]


@pytest.mark.parametrize("sent", [b"", HEAD.pack(b"MSP1", 100, 0, 0)[:9], HEAD.pack(b"MSP1", 100, 0, 0) + b"{"])
def test_who_stays_silent_or_slow_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "FIRST_FRAME_SECONDS", 0.2)
    with checking(tmp_path) as check:
        with connected(check.port) as slow, contextlib.suppress(ConnectionError):
            slow.sendall(sent)
            slow.settimeout(0.1)
            ended = False
            for _ in range(200):  # a byte now and then
                with contextlib.suppress(TimeoutError):
                    ended = slow.recv(12) == b""
                if ended:
                    break
                slow.sendall(b" ")
            assert ended
        monkeypatch.setattr(connections, "FIRST_FRAME_SECONDS", 30.0)
        honest(check.port)
    assert check.calls() == ["Functional.relu.0.forward"]


def test_a_handshake_that_never_ends_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_FRAME_SECONDS", 8.0)
    keys = str(made_keys(tmp_path / "keys"))
    tls, context = context_for(keys, "server"), context_for(keys, "client")
    assert context is not None
    with checking(tmp_path, tls=tls) as check, connected(check.port) as silent, connected(check.port) as garbage:
        garbage.sendall(b"\x16\x03\x01\x40\x00" + b"x" * 10)
        for one in (silent, garbage):
            with contextlib.suppress(ConnectionError):
                while one.recv(100):
                    pass
        with context.wrap_socket(connected(check.port)) as rank:
            answers = [said(rank, one) for one in honest_frames()]
        assert answers == [*[b"TAKE"] * 5, b"DONE"]
    assert check.calls() == ["Functional.relu.0.forward"]


def test_who_sends_a_record_and_stays_does_not_keep_the_check_from_ending(tmp_path: Path) -> None:
    with checking(tmp_path, grace=0.5) as check, connected(check.port) as stays:
        said(stays, begin(rank=7))
        said(stays, frame("record", 2, b'{"a": 1}', rank=7, **RECORD))
        honest(check.port)
        check.wait()
    assert [(step.rank, step.is_whole) for step in check.steps] == [(0, True), (7, False)]


def test_a_whole_step_of_a_stranger_does_not_end_the_check_of_a_rank_that_sends(tmp_path: Path) -> None:
    frames = honest_frames(step=4)
    with checking(tmp_path) as check, connected(check.port) as rank:
        for one in frames[:4]:
            assert said(rank, one) == b"TAKE"
        assert send(check.port, *honest_frames(rank=6))[-1] == b"DONE"
        time.sleep(1)
        assert not check.is_over
        assert [said(rank, one) for one in frames[4:]] == [b"TAKE", b"DONE"]
    assert [(step.rank, step.step) for step in check.steps] == [(6, 0), (0, 4)]


def test_of_a_full_disk_the_rank_hears(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"")  # where a folder should be
    with checking(tmp_path) as check:
        answers = send(check.port, *honest_frames())
        assert answers[0] == b"TAKE"
        assert answers[-2:] == [b"DENY", b"DENY"]
    assert [bool(step.problem) for step in check.steps] == [True]


def test_what_comes_when_the_check_has_ended_is_not_taken(tmp_path: Path) -> None:
    with checking(tmp_path) as check, connected(check.port) as late:
        assert said(late, begin(rank=9)) == b"TAKE"
        honest(check.port)
        # Until the check closes its port, which it does when all is judged.
        end = time.monotonic() + 30
        while not check.is_over and time.monotonic() < end:
            time.sleep(0.05)
        assert said(late, frame("record", 2, b"{}", rank=9, **RECORD)) == b"DENY"


def test_a_reason_has_no_marks_that_act_on_a_console(tmp_path: Path) -> None:
    header = {**BEGIN, "what": "begin\x1b[2J", "step": 0, "rank": 0, "sequence": 1}
    with checking(tmp_path) as check:
        with connected(check.port) as one:
            one.sendall(framed(json.dumps(header).encode()))
            answer = one.recv(1000)
        assert answer[:4] == b"DENY"
        assert b"\x1b" not in answer
        honest(check.port)
