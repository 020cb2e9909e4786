from __future__ import annotations

import gc
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.json_text import written

from msprobe import __version__
from msprobe.messages import said
from msprobe.store import durable, layout, ownership, processes
from msprobe.store.encode import encode
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter

HEADER: dict[str, object] = {
    "task": "statistics",
    "level": "mix",
    "framework": "pytorch",
    "dump_data_dir": None,
}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(exclude_categories=()), max_size=12)
tmp_path_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(autouse=True)
def _everything_is_on_the_disk_afterwards() -> Any:
    yield
    durable.drain()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "step0" / "rank0"


def load(path: Path) -> Any:
    """The content of a file, which must have exactly the text of the format."""
    text = path.read_text()
    content = json.loads(text)
    assert text.rstrip("\n") == written(content)
    return content


def process() -> dict[str, Any]:
    return processes.this_process().as_dict()


@given(puts=st.lists(st.tuples(names, values), max_size=8), header=st.dictionaries(names, values, max_size=3))
@tmp_path_is_fine
def test_the_file_is_the_text_of_the_whole(tmp_path: Path, puts: list[tuple[str, Any]], header: dict[str, Any]) -> None:
    header.pop("msprobe", None)
    header.pop("data", None)
    writer = DumpWriter(tmp_path / "rank0", header)
    for number, (name, tree) in enumerate(puts):
        if number % 2:
            writer.put(name, tree)
        else:
            writer.put_encoded(name, encode(tree, 2))
    writer.publish(final=False)
    ours = {
        "version": __version__,
        "format": 1,
        "process": process(),
        "records": len(dict(puts)),
        "complete": False,
    }
    expected = {**header, "data": dict(puts), "msprobe": ours}

    def text() -> str:
        return written(expected)

    def found() -> str:
        return (tmp_path / "rank0" / "dump.json").read_bytes().decode("utf-8")

    def escaped(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    assert found() == escaped(text())
    assert writer.count == len(dict(puts))
    writer.publish(final=True)
    ours["complete"] = True
    assert found() == escaped(text()) + "\n"
    assert writer.count == len(dict(puts))


def test_a_later_record_of_the_same_name_keeps_the_place_of_the_first(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    for name, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        writer.put(name, value)
    writer.publish(final=True)
    assert list(load(folder / "dump.json")["data"].items()) == [("a", 3), ("b", 2), ("c", 4)]


def test_nothing_is_created_before_the_first_record(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    assert not folder.parent.exists()
    writer.put("a", 1)
    assert folder.exists()


def test_a_step_without_records_has_files_without_records(folder: Path) -> None:
    DumpWriter(folder, HEADER).publish(final=True)
    assert load(folder / "dump.json")["data"] == {}
    assert load(folder / "stack.json") == {}
    assert load(folder / "construct.json") == {}


def test_stacks_are_grouped_by_their_frames(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.define_stack(7, ["File a.py, line 1, in f, \n x = 1", "File b.py"])
    writer.define_stack(9, ["other"])
    writer.define_stack(11, ["File a.py, line 1, in f, \n x = 1", "File b.py"])
    for name, stack in (("a", 7), ("b", 9), ("c", 7), ("d", 11), ("e", 12345)):
        writer.put_stack(name, stack)
    writer.publish(final=True)
    assert load(folder / "stack.json") == {
        "0": [["a", "c", "d"], ["File a.py, line 1, in f, \n x = 1", "File b.py"]],
        "1": [["b"], ["other"]],
    }


def test_parents_are_names_pairs_or_nothing(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put_parent("clip_grad", None)
    writer.put_parent("Torch.add.0.forward", "Module.a.Linear.forward.0")
    writer.put_parent("Module.b.forward.0", ["Module.a.Linear.forward.0", 3])
    writer.put_parent("clip_grad", "optimizer")
    writer.publish(final=True)
    assert list(load(folder / "construct.json").items()) == [
        ("clip_grad", "optimizer"),
        ("Torch.add.0.forward", "Module.a.Linear.forward.0"),
        ("Module.b.forward.0", ["Module.a.Linear.forward.0", 3]),
    ]


def test_debug_variables_go_to_a_file_of_their_own(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER | {"level": "debug"}, kind="debug")
    writer.put("x.0.debug", None)
    writer.put_stack("x.0.debug", 0)
    writer.put_parent("x.0.debug", None)
    writer.publish(final=True)
    durable.drain()
    assert [path.name for path in folder.iterdir()] == ["debug.json"]
    assert load(folder / "debug.json")["data"] == {"x.0.debug": None}


def test_files_without_stacks_and_parents(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER, with_stacks=False, with_construct=False)
    writer.put("a", 1)
    writer.define_stack(0, ["frame"])
    writer.put_stack("a", 0)
    writer.put_parent("a", None)
    writer.publish(final=True)
    durable.drain()
    assert [path.name for path in folder.iterdir()] == ["dump.json"]


def test_a_step_that_is_given_up_leaves_nothing(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    writer.give_up()
    assert not folder.exists()
    assert not folder.parent.exists()


def test_a_step_that_is_given_up_leaves_what_others_have_beside_it(folder: Path) -> None:
    other = DumpWriter(folder.parent / "rank1", HEADER)
    other.put("a", 1)
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    writer.give_up()
    other.publish(final=True)
    assert [path.name for path in folder.parent.iterdir()] == ["rank1"]
    again = DumpWriter(folder, HEADER)
    again.put("b", 1)
    again.publish(final=True)
    assert load(folder / "dump.json")["data"] == {"b": 1}


def test_our_own_facts_take_what_the_header_adds(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER | {"msprobe": {"torch": "2.13.0"}})
    writer.put("a", 1)
    writer.publish(final=True)
    found = load(folder / "dump.json")
    assert list(found) == [*HEADER, "data", "msprobe"], "old readers meet what they know first"
    assert found["msprobe"]["torch"] == "2.13.0"
    assert list(found["msprobe"])[-1] == "complete"


def test_strict_json_has_no_bare_tokens(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER, strict_json=True)
    writer.put("a", {"Max": float("nan"), "Min": float("-inf"), "text": "NaN"})
    writer.put_encoded("b", b'{\n   "Max": Infinity\n  }')
    writer.publish(final=True)

    def refuse(token: str) -> None:
        raise AssertionError(token)

    found = json.loads((folder / "dump.json").read_text(), parse_constant=refuse)
    assert found["data"] == {"a": {"Max": "NaN", "Min": "-Infinity", "text": "NaN"}, "b": {"Max": "Infinity"}}


def test_a_finished_step_leaves_no_journal(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    (journal,) = layout.journals(folder)
    assert journal.name.startswith(f"dump-{os.getpid()}-")
    assert {path.name for path in folder.iterdir()} == {journal.name}
    writer.publish(final=False)
    assert layout.journals(folder)
    writer.publish(final=True)
    durable.drain()
    assert sorted(path.name for path in folder.iterdir()) == ["construct.json", "dump.json", "stack.json"]


def test_folders_and_files_have_their_modes_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        writer = DumpWriter(folder, HEADER)
        writer.put("a", 1)
        writer.error("x")
        writer.publish(final=True)
    finally:
        os.umask(before)
    durable.drain()
    assert {folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777} == {0o750}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}


def test_publishing_a_thousand_times_in_a_step_stays_linear(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    from msprobe.store import record_files as module

    def counted(path: Any, pieces: Any, fsync: bool = True) -> int:
        nonlocal written
        count: int = original(path, pieces, fsync)
        written += count
        return count

    original = module.write_atomically
    monkeypatch.setattr(module, "write_atomically", counted)
    writer = DumpWriter(folder, HEADER)
    for number in range(1000):
        writer.put(f"Torch.add.{number}.forward", {"x": "y" * 300})
        writer.publish(final=False)
    writer.publish(final=True)
    size = (folder / "dump.json").stat().st_size
    assert written < 8 * size, f"{written / size:.1f} times the size of the file"
    assert len(load(folder / "dump.json")["data"]) == 1000


def test_finishing_what_was_just_published_rewrites_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    writer.publish(final=False)
    before = (folder / "dump.json").stat().st_ino
    writer.publish(final=True)
    assert (folder / "dump.json").stat().st_ino == before
    assert load(folder / "dump.json")["msprobe"]["complete"] is True


def test_a_file_that_someone_replaced_is_written_again_at_the_end(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    writer.publish(final=False)
    (folder / "dump.json").write_text("{}")
    writer.publish(final=True)
    assert load(folder / "dump.json")["data"] == {"a": 1}


def test_records_after_the_end_are_dropped(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    writer.publish(final=True)
    before = (folder / "dump.json").read_bytes()
    writer.put("b", 1)
    writer.put_stack("b", 0)
    writer.publish(final=True)
    assert (folder / "dump.json").read_bytes() == before
    durable.drain()
    assert not layout.journals(folder)


def test_a_value_that_cannot_be_written_raises_and_leaves_the_dump_whole(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.put("a", 1)
    with pytest.raises(TypeError):
        writer.put("b", {"x": {1, 2}})
    writer.put("c", 3)
    writer.publish(final=True)
    assert load(folder / "dump.json")["data"] == {"a": 1, "c": 3}


def test_hundreds_of_steps_leave_nothing_behind_in_the_process(tmp_path: Path) -> None:
    def run(steps: range) -> None:
        for step in steps:
            writer = DumpWriter(tmp_path / f"step{step}" / "rank", HEADER)
            writer.define_stack(0, ["the same frames", "in every step"])
            writer.put_call("Torch.add.0.forward", {"step": step}, 0, None)
            writer.publish(final=False)
            writer.publish(final=True)
        durable.drain()
        del writer
        gc.collect()

    run(range(10))
    descriptors = len(os.listdir("/proc/self/fd"))
    objects = len(gc.get_objects())
    held = dict(ownership._held)
    run(range(10, 310))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert len(gc.get_objects()) < objects + 60
    assert ownership._held == held
    assert len(list(tmp_path.glob("step*/rank/*"))) == 3 * 310


def test_a_record_with_its_origin_in_one_call_is_the_same_as_in_three(tmp_path: Path) -> None:
    one, three = DumpWriter(tmp_path / "one" / "rank", HEADER), DumpWriter(tmp_path / "three" / "rank", HEADER)
    origins: list[tuple[int | None, Any]] = [(0, None), (None, "a"), (1, ["a", 2]), (7, False), (0, "é\ud800")]
    for writer in (one, three):
        writer.define_stack(0, ["frame 0"])
        writer.define_stack(1, ["frame 1"])
    for number, (stack, parent) in enumerate(origins):
        one.put_call(f"n{number}", {"number": number}, stack, parent)
        three.put(f"n{number}", {"number": number})
        if stack is not None:
            three.put_stack(f"n{number}", stack)
        if parent is not False:
            three.put_parent(f"n{number}", parent)
    parts = [open_dump(tmp_path / name).part() for name in ("one", "three")]
    assert dict(parts[0].records()) == dict(parts[1].records()) == {f"n{n}": {"number": n} for n in range(5)}
    assert parts[0].parents() == parts[1].parents()
    assert [parts[0].stack(f"n{n}") for n in range(5)] == [parts[1].stack(f"n{n}") for n in range(5)]
    one.publish(final=True)
    three.publish(final=True)
    for file in ("dump.json", "stack.json", "construct.json"):
        assert (one.folder / file).read_bytes() == (three.folder / file).read_bytes()


def test_threads_do_not_disturb_each_other(folder: Path) -> None:
    writer = DumpWriter(folder, HEADER)
    writer.define_stack(0, ["frame"])

    def work(thread: int) -> None:
        for number in range(500):
            name = f"Torch.t{thread}.{number}.forward"
            writer.put(name, {"value": [thread, number]})
            writer.put_stack(name, 0)
            writer.put_parent(name, None)
            if number % 100 == 50:
                writer.publish(final=False)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.publish(final=True)
    data = load(folder / "dump.json")["data"]
    assert data == {
        f"Torch.t{thread}.{number}.forward": {"value": [thread, number]} for thread in range(6) for number in range(500)
    }
    assert set(load(folder / "construct.json")) == set(data) == set(load(folder / "stack.json")["0"][0])


def test_an_error_text_is_kept_and_its_file_does_not_grow_for_ever(folder: Path) -> None:
    (folder).mkdir(parents=True)
    (folder / "dump_error_info.log").write_text("of an earlier run\n")
    writer = DumpWriter(folder, HEADER, existing="overwrite")
    writer.error("first\nsecond line")
    writer.error("lone surrogate \ud800")
    lines = (folder / "dump_error_info.log").read_text().splitlines()
    assert lines == ["first", "second line", "lone surrogate \\ud800"]
    for _ in range(3000):
        writer.error("x" * 1000)
    text = (folder / "dump_error_info.log").read_text()
    assert len(text) < (1 << 20) + 100
    assert text.endswith(f"{said('further-errors-left-out')}\n")
