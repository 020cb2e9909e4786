from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.coded_texts import raising

from msprobe.errors import PathError
from msprobe.store import file_systems, journal
from msprobe.store.journal import HEAD_BYTES, MAGIC, START_BYTES, Journal, MappedJournal, PlainJournal
from msprobe.store.journal_reader import Damage, JournalGone, JournalReader

bodies = st.lists(st.binary(min_size=1, max_size=60), max_size=12)
tmp_path_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["mapped", "plain"])
def form(request: pytest.FixtureRequest) -> type[MappedJournal] | type[PlainJournal]:
    return MappedJournal if request.param == "mapped" else PlainJournal


FIRST = b"whose it is"
# Where the second frame begins.
OPENING = START_BYTES + HEAD_BYTES + len(FIRST)
GENERATION = 0xABC


def start(path: Path, form: type[MappedJournal] | type[PlainJournal], first: bytes = FIRST) -> Journal:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
    return form(descriptor, str(path), GENERATION, first)


def write(path: Path, bodies: list[bytes], form: type[MappedJournal] | type[PlainJournal] = MappedJournal) -> bytes:
    """The content of a journal with these bodies behind the first."""
    written = start(path, form)
    for body in bodies:
        written.append(body)
    written.close()
    return path.read_bytes()


def read(path: Path) -> tuple[list[bytes], JournalReader]:
    """The bodies behind the first."""
    found, reader = read_all(path)
    assert found[:1] == [FIRST]
    return found[1:], reader


def read_all(path: Path) -> tuple[list[bytes], JournalReader]:
    reader = JournalReader(path)
    return [reader.read(begin, end) for begin, end in reader], reader


@given(bodies=bodies)
@tmp_path_is_fine
def test_what_was_appended_reads_back(tmp_path: Path, form: type[MappedJournal], bodies: list[bytes]) -> None:
    data = write(tmp_path / "j", bodies, form)
    assert len(data) == OPENING + sum(HEAD_BYTES + len(body) for body in bodies), "cut to its true length"
    found, reader = read(tmp_path / "j")
    assert found == bodies
    assert reader.damage == Damage()


@given(bodies=bodies, data=st.data())
@tmp_path_is_fine
def test_any_beginning_of_the_file_gives_the_whole_records_in_it(
    tmp_path: Path, bodies: list[bytes], data: st.DataObject
) -> None:
    whole = write(tmp_path / "j", bodies)
    cut = data.draw(st.integers(0, len(whole)), "cut")
    zeros = data.draw(st.integers(0, 40), "zeros")  # what was allocated and not yet written
    (tmp_path / "cut").write_bytes(whole[:cut] + bytes(zeros))

    expected, position = [], START_BYTES
    for body in [FIRST, *bodies]:
        position += HEAD_BYTES + len(body)
        if position <= cut or (whole[cut:position].strip(b"\0") == b"" and position <= cut + zeros):
            expected.append(body)
        else:
            break
    found, reader = read_all(tmp_path / "cut")
    assert found == expected
    # A cut right behind a record cannot be seen, and need not: nothing is lost by it.
    torn = bool(whole[:cut][START_BYTES + sum(HEAD_BYTES + len(body) for body in expected) :].strip(b"\0"))
    assert reader.damage.torn == torn


@given(bodies=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8), data=st.data())
@tmp_path_is_fine
def test_a_flipped_bit_is_detected_and_changes_no_other_record(
    tmp_path: Path, bodies: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(write(tmp_path / "j", bodies))
    place = data.draw(st.integers(len(MAGIC), len(whole) - 1), "place")
    whole[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
    (tmp_path / "j").write_bytes(whole)
    found, reader = read_all(tmp_path / "j")
    assert found != [FIRST, *bodies]
    assert reader.damage != Damage()
    remaining = iter([FIRST, *bodies])
    assert all(body in remaining for body in found), "what is left is in order and unchanged"


def test_a_damaged_body_is_passed_over(tmp_path: Path) -> None:
    bodies = [b"first", b"second", b"third"]
    whole = bytearray(write(tmp_path / "j", bodies))
    whole[whole.index(b"second")] ^= 1
    (tmp_path / "j").write_bytes(whole)
    found, reader = read(tmp_path / "j")
    assert found == [b"first", b"third"]
    assert reader.damage == Damage(frames=1)


def test_a_journal_grows_beyond_its_first_chunk(tmp_path: Path, form: type[MappedJournal]) -> None:
    bodies = [bytes([number % 255 + 1]) * 5000 for number in range(500)] + [b"x" * 3_000_000, b"end"]
    written = start(tmp_path / "j", form)
    places = [written.append(body) for body in bodies]
    for place, body in zip(places, bodies, strict=True):
        assert written.read(place, place + len(body)) == body
    written.close()
    assert read(tmp_path / "j")[0] == bodies


def resident_bytes_of_files() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell")
def test_a_long_journal_does_not_fill_the_memory_of_the_training(tmp_path: Path) -> None:
    before = resident_bytes_of_files()
    written = start(tmp_path / "j", MappedJournal)
    body = b"x" * 10_000
    places = [written.append(body) for _ in range(10_000)]
    assert resident_bytes_of_files() - before < 40_000_000, "of 100 MB"
    assert all(written.read(place, place + len(body)) == body for place in places[::100])
    written.append(b"end")
    written.close()
    assert len(read(tmp_path / "j")[0]) == 10_001


def test_a_mapped_record_is_in_the_file_at_once(tmp_path: Path) -> None:
    written = start(tmp_path / "j", MappedJournal)
    for number in range(300):
        written.append(b"%d" % number)
        assert read(tmp_path / "j")[0][-1] == b"%d" % number
    written.close()


def test_a_plain_record_is_in_the_file_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("msprobe.store.journal.time.monotonic", lambda: now)
    written = start(tmp_path / "j", PlainJournal)
    for _ in range(20):
        written.append(b"x")
        now += 0.03
    waiting = 20 - len(read(tmp_path / "j")[0])
    assert waiting <= 4, "a tenth of a second, no more"
    written.append(b"y" * 17_000)
    assert len(read(tmp_path / "j")[0]) == 21, "nor more than 16 kB"
    written.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_an_error_at_the_append_that_needs_it(
    tmp_path: Path, form: type[MappedJournal], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = start(tmp_path / "j", form)
    written.append(b"before")

    def full(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("msprobe.store.journal.os.pwrite", full)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        for _ in range(1000):
            written.append(b"x" * 1000)
    assert caught.value.errno == code
    monkeypatch.undo()
    written.close()
    assert read(tmp_path / "j")[0][0] == b"before"


@pytest.mark.parametrize("kind", ["nfs4", "fuse.s3fs", "", "overlay", "btrfs", "zfs", "xfs"])
def test_file_systems_that_promise_nothing_are_written_plainly(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A written block that is copied when it is written again needs space: a full disk would be a signal."""
    monkeypatch.setattr(file_systems, "kind_of", lambda _: kind)
    written = journal.create(str(tmp_path / "j"), 1, FIRST)
    assert isinstance(written, PlainJournal)
    written.close()


@pytest.mark.parametrize("kind", ["overlay", "btrfs", "xfs"])
def test_on_a_disk_of_this_machine_a_plain_record_is_in_the_file_at_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is killed in a container loses no more than elsewhere."""
    monkeypatch.setattr(file_systems, "kind_of", lambda _: kind)
    written = journal.create(str(tmp_path / "j"), 1, FIRST)
    for number in range(300):
        written.append(b"%d" % number)
        assert read(tmp_path / "j")[0][-1] == b"%d" % number
    written.close()


def test_a_file_that_cannot_be_mapped_is_written_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "kind_of", lambda _: "ext4")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr("msprobe.store.journal.mmap.mmap", refuse)
    written = journal.create(str(tmp_path / "j"), 1, FIRST)
    assert isinstance(written, PlainJournal)
    written.append(b"x")
    written.close()
    monkeypatch.undo()
    assert read(tmp_path / "j")[0] == [b"x"]


def test_a_journal_that_cannot_be_begun_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("msprobe.store.journal.os.pwrite", full)
    with pytest.raises(OSError, match="No space"):
        journal.create(str(tmp_path / "j"), 1, FIRST)
    assert list(tmp_path.iterdir()) == []


def test_the_mode_of_the_file_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        journal.create(str(tmp_path / "j"), 1, FIRST).close()
    finally:
        os.umask(before)
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o640


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"{}, and more of it")
    with pytest.raises(PathError, match="is no journal"):
        JournalReader(tmp_path / "j")
    with pytest.raises(PathError, match="cannot be read"):
        JournalReader(tmp_path / "nothing")


def test_an_empty_file_is_an_empty_journal(tmp_path: Path) -> None:
    (tmp_path / "j").touch()
    assert read_all(tmp_path / "j")[0] == []


def test_a_dropped_journal_costs_no_descriptor(tmp_path: Path, form: type[MappedJournal]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        start(tmp_path / "j", form).append(b"x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_plain_journal_gives_what_it_holds_when_asked(tmp_path: Path) -> None:
    written = start(tmp_path / "j", PlainJournal)
    written.append(b"first")
    written.append(b"second")
    written.flush()
    assert read(tmp_path / "j")[0] == [b"first", b"second"]
    written.close()


def name(number: int) -> str:
    return f"dump-1-{number:x}.journal"


def recycled(tmp_path: Path, bodies: list[bytes]) -> MappedJournal:
    """A journal that held ``bodies`` in a step before, and is to be used for the next."""
    written = MappedJournal(os.open(tmp_path / name(1), os.O_RDWR | os.O_CREAT), str(tmp_path / name(1)), 1, FIRST)
    for body in bodies:
        written.append(body)
    return written


@given(before=bodies, bodies=bodies, first=st.binary(min_size=1, max_size=200))
@tmp_path_is_fine
def test_a_recycled_journal_holds_what_was_appended_since(
    tmp_path: Path, before: list[bytes], bodies: list[bytes], first: bytes
) -> None:
    written = recycled(tmp_path, before)
    written.recycle(str(tmp_path / name(2)), 2, first)
    assert not (tmp_path / name(1)).exists()
    assert read_all(tmp_path / name(2))[0] == [first]
    for body in bodies:
        written.append(body)
    found, reader = read_all(tmp_path / name(2))
    assert found == [first, *bodies]
    assert reader.damage == Damage(), "nothing of the step before is left behind them"
    written.close()
    assert read_all(tmp_path / name(2))[0] == [first, *bodies]


def test_a_first_frame_may_be_larger_than_all_before(tmp_path: Path) -> None:
    written = recycled(tmp_path, [])
    large = b"x" * 1_000_000
    written.recycle(str(tmp_path / name(2)), 2, large)
    written.append(b"y")
    assert read_all(tmp_path / name(2))[0] == [large, b"y"]
    written.close()
    start(tmp_path / "new", MappedJournal, large).close()
    assert read_all(tmp_path / "new")[0] == [large]


@given(
    before=st.lists(st.binary(min_size=1, max_size=9000), min_size=1, max_size=12),
    bodies=st.lists(st.binary(min_size=1, max_size=9000), max_size=12),
    data=st.data(),
)
@tmp_path_is_fine
def test_pages_of_the_step_before_never_show_a_record_of_it(
    tmp_path: Path, before: list[bytes], bodies: list[bytes], data: st.DataObject
) -> None:
    """A machine that stops may leave any mixture of old and new pages under the new name."""
    marked = [b"old" + body for body in before]
    written = recycled(tmp_path, marked)
    old = (tmp_path / name(1)).read_bytes()
    written.recycle(str(tmp_path / name(2)), 2, FIRST)
    for body in bodies:
        written.append(b"new" + body)
    new = (tmp_path / name(2)).read_bytes()
    written.close()
    pages = range(0, len(new), 4096)
    kept = data.draw(st.lists(st.booleans(), min_size=len(pages), max_size=len(pages)), "pages that are old")
    mixture = b"".join((old if is_old else new)[at : at + 4096] for at, is_old in zip(pages, kept, strict=True))
    (tmp_path / name(2)).write_bytes(mixture)
    found, _ = read_all(tmp_path / name(2))
    remaining = iter([FIRST, *(b"new" + body for body in bodies)])
    assert all(body in remaining for body in found)


def test_a_journal_that_cannot_be_moved_stays_as_it_was(tmp_path: Path) -> None:
    written = recycled(tmp_path, [b"a"])
    with pytest.raises(OSError, match="No such file"):
        written.recycle(str(tmp_path / "nowhere" / name(2)), 2, b"new")
    assert read(tmp_path / name(1))[0] == [b"a"]
    assert written.path == str(tmp_path / name(1))
    written.close()


def test_a_reader_keeps_what_it_has_read_when_the_journal_moves_on(tmp_path: Path) -> None:
    written = recycled(tmp_path, [b"a", b"b"])
    reader = JournalReader(tmp_path / name(1))
    written.recycle(str(tmp_path / name(2)), 2, b"new")
    written.append(b"of the next step")
    assert [reader.read(begin, end) for begin, end in reader] == [FIRST, b"a", b"b"]
    written.close()


def test_a_reader_that_comes_too_late_says_that_the_step_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = recycled(tmp_path, [b"a"])
    looked = os.fstat

    def move_on(descriptor: int) -> os.stat_result:
        """The writer begins the next step while the file is being read."""
        if written.path == str(tmp_path / name(1)):
            written.recycle(str(tmp_path / name(2)), 2, b"new")
        return looked(descriptor)

    monkeypatch.setattr("msprobe.store.journal_reader.os.fstat", move_on)
    with raising(JournalGone, "journal-gone"):
        JournalReader(tmp_path / name(1))
    written.close()
