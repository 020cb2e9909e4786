from __future__ import annotations

import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.store.tensor_buffers import Room, TensorBuffers

CHUNK = 1 << 16


def held(buffers: TensorBuffers) -> int:
    """Bytes of the chunks nobody uses."""
    return sum(chunk.size for chunk in buffers._free)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3 * CHUNK), st.booleans()), max_size=60), st.randoms(use_true_random=False))
def test_no_two_rooms_overlap(steps: list[tuple[int, bool]], chance: random.Random) -> None:
    buffers = TensorBuffers(CHUNK, kept_bytes=4 * CHUNK)
    taken: list[tuple[Room, int]] = []
    for number, (nbytes, leave) in enumerate(steps):
        room = buffers.take(nbytes)
        assert room.data.nbytes == nbytes
        assert not room.data.readonly
        room.data[:] = bytes([number % 256]) * nbytes
        taken.append((room, number % 256))
        if leave:
            room, value = taken.pop(chance.randrange(len(taken)))
            assert bytes(room.data) == bytes([value]) * room.data.nbytes
            buffers.give_back(room)
    for room, value in taken:
        assert bytes(room.data) == bytes([value]) * room.data.nbytes
        buffers.give_back(room)
    assert held(buffers) == buffers._kept <= 4 * CHUNK


def test_what_is_kept_is_bounded_and_old_sizes_make_room() -> None:
    buffers = TensorBuffers(CHUNK, kept_bytes=8 * CHUNK)
    rooms = [buffers.take(size * CHUNK) for size in range(2, 8)]
    for room in rooms:
        buffers.give_back(room)
        assert held(buffers) == buffers._kept <= 8 * CHUNK
    assert [chunk.size // CHUNK for chunk in buffers._free] == [7], "the one that came last stays"
    again = buffers.take(7 * CHUNK)
    assert again._chunk is rooms[-1]._chunk
    assert buffers.take(7 * CHUNK)._chunk is not again._chunk


def test_threads_take_and_give_back_at_once() -> None:
    buffers = TensorBuffers(CHUNK, kept_bytes=4 * CHUNK)
    wrong = []

    def work(value: int) -> None:
        chance = random.Random(value)
        rooms: list[Room] = []
        for _ in range(500):
            room = buffers.take(chance.randrange(CHUNK))
            room.data[:] = bytes([value]) * room.data.nbytes
            rooms.append(room)
            if len(rooms) > 5:
                room = rooms.pop(chance.randrange(len(rooms)))
                if bytes(room.data) != bytes([value]) * room.data.nbytes:
                    wrong.append(value)
                buffers.give_back(room)
        for room in rooms:
            buffers.give_back(room)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert held(buffers) == buffers._kept <= 4 * CHUNK
