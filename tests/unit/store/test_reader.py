from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.coded_texts import raising
from support.growth import MOST_EXPONENT, calls_in, exponent_of

from msprobe.errors import InvalidInputError, PathError
from msprobe.store import durable, layout
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump
from msprobe.store.writer import DumpWriter

HEADER: dict[str, Any] = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [3, 8],
    "Max": 1.5,
    "Min": -1.0,
    "Mean": float("nan"),
    "Norm": 4.25,
    "requires_grad": True,
}
DATA: dict[str, Any] = {
    "Functional.linear.0.forward": {
        "input_args": [TENSOR, None],
        "input_kwargs": {},
        "is_recompute": False,
        "output": [TENSOR],
    },
    'Torch.odd"name\\.0.forward': {"input_args": [], "output": [{"type": "str", "value": ' "data": {\n  "x": 1'}]},
    "Module.l1.Linear.parameters_grad": {"weight": [TENSOR], "bias": [None]},
    "Torch.none.0.forward": None,
}
STACKS = {
    "0": [["Functional.linear.0.forward"], ["File a.py, line 1, in f, \n x", "File b.py, line 2, in g, \n y"]],
    "1": [["Torch.none.0.forward"], ["File c.py, line 3, in h, \n z"]],
}
PARENTS = {"Functional.linear.0.forward": "Module.l1.Linear.forward.0", "Module.l1.Linear.forward.0": None}

names = st.text(st.characters(exclude_categories=()), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
tmp_path_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: NaN is NaN, 1 is not 1.0, and the order of keys counts."""
    return json.dumps(left) == json.dumps(right)


def write_reference(folder: Path, indent: int | None = 1, **more: Any) -> Path:
    """A folder as mindstudio-probe leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dump.json").write_text(json.dumps({**HEADER, "data": DATA, **more}, indent=indent))
    (folder / "stack.json").write_text(json.dumps(STACKS, indent=indent))
    (folder / "construct.json").write_text(json.dumps(PARENTS, indent=indent))
    return folder


def check(part: DumpPart) -> None:
    assert part.names() == list(DATA)
    assert len(part) == len(DATA)
    assert same(dict(part.records()), DATA)
    assert all(same(part.record(name), DATA[name]) for name in DATA)
    assert part.stack("Functional.linear.0.forward") == STACKS["0"][1]
    assert part.stack("Torch.none.0.forward") == STACKS["1"][1]
    assert part.stack("Module.l1.Linear.parameters_grad") == []
    assert part.parent("Functional.linear.0.forward") == "Module.l1.Linear.forward.0"
    assert part.parent("Module.l1.Linear.forward.0") is None
    assert part.parents() == PARENTS


def write_ours(folder: Path, data: dict[str, Any] = DATA, **settings: Any) -> DumpWriter:
    writer = DumpWriter(folder, HEADER, **settings)
    for number, (names_, frames) in enumerate(STACKS.values()):
        writer.define_stack(number, frames)
        for name in names_:
            writer.put_stack(name, number)
    for child, parent in PARENTS.items():
        writer.put_parent(child, parent)
    for name, tree in data.items():
        writer.put(name, tree)
    return writer


@pytest.mark.parametrize("indent", [1, None, 4])
def test_a_dump_of_the_published_package(tmp_path: Path, indent: int | None) -> None:
    part = open_dump(write_reference(tmp_path / "step0" / "rank0", indent)).part()
    check(part)
    assert part.header == HEADER
    assert part.complete
    assert (part.step, part.rank, part.kind) == (0, 0, "dump")


def test_keys_behind_the_data_belong_to_the_header(tmp_path: Path) -> None:
    part = open_dump(write_reference(tmp_path, extra={"a": {"b": [1, {"c": 2}]}}, more=5)).part()
    check(part)
    assert part.header == {**HEADER, "extra": {"a": {"b": [1, {"c": 2}]}}, "more": 5}


def test_the_older_form_of_stacks(tmp_path: Path) -> None:
    write_reference(tmp_path)
    (tmp_path / "stack.json").write_text(json.dumps({name: frames for (name,), frames in STACKS.values()}))
    check(open_dump(tmp_path).part())


def test_a_finished_dump_of_ours(tmp_path: Path) -> None:
    write_ours(tmp_path / "step3" / "rank12").publish(final=True)
    part = open_dump(tmp_path).part()
    check(part)
    assert part.complete
    assert part.header == HEADER
    assert part.ours["records"] == len(DATA)
    assert (part.step, part.rank) == (3, 12)


def test_a_dump_that_is_being_written(tmp_path: Path) -> None:
    writer = write_ours(tmp_path / "step0" / "rank")
    part = open_dump(tmp_path).part()
    check(part)
    assert not part.complete
    assert part.header == HEADER
    writer.publish(final=False)
    writer.put("Torch.late.0.forward", {"output": []})
    writer.put("Torch.none.0.forward", {"now": "something"})
    part = open_dump(tmp_path).part()
    assert part.names() == [*DATA, "Torch.late.0.forward"]
    assert part.record("Torch.none.0.forward") == {"now": "something"}
    assert not part.complete
    writer.publish(final=True)
    assert open_dump(tmp_path).part().complete


def test_an_interrupted_dump_is_put_together_from_file_and_journal(tmp_path: Path) -> None:
    """What is lost in a damaged journal may still be in the file, and the other way round."""
    folder = tmp_path / "rank0"
    writer = write_ours(folder)
    writer.publish(final=False)
    for number in range(20):
        writer.put(f"Torch.late.{number}.forward", {"number": number})
    (journal,) = layout.journals(folder)
    data = bytearray(journal.read_bytes())
    data[data.index(b'"input_args"')] ^= 1
    data[data.index(b"Torch.late.7.") + 40] ^= 1
    journal.write_bytes(data)
    part = open_dump(folder).part()
    assert part.names() == [*DATA, *(f"Torch.late.{number}.forward" for number in range(20) if number != 7)]
    assert same(part.record("Functional.linear.0.forward"), DATA["Functional.linear.0.forward"])
    assert part.lost == 2
    assert not part.complete


def test_a_journal_that_is_about_to_be_removed_does_not_matter(tmp_path: Path) -> None:
    writer = write_ours(tmp_path / "rank")
    (journal,) = layout.journals(tmp_path / "rank")
    copy = journal.read_bytes()
    writer.publish(final=True)
    durable.drain()
    journal.write_bytes(copy)
    part = open_dump(tmp_path / "rank").part()
    check(part)
    assert part.complete


@given(data=st.dictionaries(names, values, max_size=6))
@tmp_path_is_fine
def test_what_was_written_reads_back(tmp_path: Path, data: dict[str, Any]) -> None:
    writer = DumpWriter(tmp_path / "rank0", HEADER)
    for name, tree in data.items():
        writer.put(name, tree)
    interrupted = open_dump(tmp_path).part() if data else None
    writer.publish(final=True)
    for part in (interrupted, open_dump(tmp_path).part()):
        if part is not None:
            # Two names that differ only in how a surrogate is spelt are one in a file.
            assert same(dict(part.records()), json.loads(json.dumps(data)))
            assert part.names() == list(json.loads(json.dumps(data)))


@pytest.mark.parametrize("given_as", ["root", "step", "rank", "file"])
def test_a_dump_may_be_named_in_four_ways(tmp_path: Path, given_as: str) -> None:
    folder = write_reference(tmp_path / "step7" / "rank3")
    path = {"root": tmp_path, "step": folder.parent, "rank": folder, "file": folder / "dump.json"}[given_as]
    dump = open_dump(path)
    assert dump.steps == [7]
    assert dump.ranks() == dump.ranks(7) == [3]
    check(dump.part())
    check(dump.part(7, 3))
    check(dump.part(rank=3))


def test_a_relative_path_says_step_and_rank_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_reference(tmp_path / "step7" / "rank3"))
    for path in (".", "dump.json", Path("../../step7")):
        part = open_dump(path).part()
        assert (part.step, part.rank) == (7, 3)


def test_steps_and_ranks_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for step, rank in ((10, "rank0"), (9, "rank10"), (9, "rank9"), (9, "proc5"), (9, "rank"), (100, "rank0")):
        write_reference(tmp_path / f"step{step}" / rank)
    (tmp_path / "step9" / "junk").mkdir()
    (tmp_path / "step9" / "rank77").mkdir()  # nothing in it
    (tmp_path / "notes.txt").touch()
    dump = open_dump(tmp_path)
    assert dump.steps == [9, 10, 100]
    assert dump.ranks(9) == [9, 10, "proc5", "rank"]
    assert [(part.step, part.rank) for part in dump.parts()] == [
        *((9, 9), (9, 10), (9, "proc5"), (9, "rank"), (10, 0), (100, 0))
    ]
    with pytest.raises(InvalidInputError, match="steps 9, 10, 100; name one"):
        dump.part()
    with pytest.raises(InvalidInputError, match="ranks 9, 10, proc5, rank; name one"):
        dump.part(9)
    with pytest.raises(InvalidInputError, match="no step 3; it has 9, 10, 100"):
        dump.ranks(3)
    with pytest.raises(InvalidInputError, match="no rank 8 in step 9; it has 9, 10"):
        dump.part(9, 8)


def test_debug_variables(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "step0" / "rank", HEADER | {"level": "debug"}, kind="debug")
    writer.put("x.0.debug", TENSOR)
    assert not open_dump(tmp_path).part().complete
    writer.publish(final=True)
    part = open_dump(tmp_path).part()
    assert part.kind == "debug"
    assert part.names() == ["x.0.debug"]
    assert part.stack("x.0.debug") == []
    write_reference(tmp_path / "step0" / "rank")
    assert open_dump(tmp_path).part().kind == "dump"
    assert open_dump(tmp_path).part(kind="debug").names() == ["x.0.debug"]
    assert open_dump(tmp_path / "step0" / "rank" / "debug.json").part().names() == ["x.0.debug"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r'dump\.json" is no readable JSON: .* line 1, column 1'),
        ("[1, 2]", "must hold a JSON object, found a list"),
        ("{}", 'is no dump.json: it has no "data"'),
        ('{"data": [1]}', '"data" must be an object, found a value of type list'),
        ('{"a": "b', r"is no readable JSON: unterminated string starting at line 1, column 7\."),
        ('{"task": "x",\n "data": {\n  "a": 1,\n  "b" 2\n }\n}', r"record 'a', is no readable JSON: .* at byte 3\d"),
        ('{\n "data": {\n  "a": {\n   "b": [1,\n', r"line 5, column 1"),
        ('{"a": "\x00"}', r"line 1, column 8"),
        ("{" * 100_000, r"dump\.json"),
        ('{"a": ' * 100_000, r"nested too deeply|line 1"),
    ],
)
def test_a_broken_file_is_named_with_the_place_of_the_fault(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dump.json").write_text(text)
    with pytest.raises(InvalidInputError, match=message) as caught:
        dict(open_dump(tmp_path).part().records())
    assert str(tmp_path / "dump.json") in caught.value.message


def test_a_fault_inside_a_record_is_found_at_that_record(tmp_path: Path) -> None:
    write_reference(tmp_path)
    text = (tmp_path / "dump.json").read_text()
    place = text.index('"is_recompute"')
    (tmp_path / "dump.json").write_text(text.replace('"is_recompute"', '"is_recompute'))
    part = open_dump(tmp_path).part()
    assert part.record("Torch.none.0.forward") is None
    with pytest.raises(InvalidInputError, match=r"record 'Functional.linear.0.forward',.* at byte (\d+)") as caught:
        part.record("Functional.linear.0.forward")
    assert abs(int(caught.value.message.rpartition(" ")[2].rstrip(".")) - place) < 60


def test_a_byte_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_bytes(b'{"data": {"a": "\xff"}}')
    with pytest.raises(InvalidInputError, match="byte 16 is no UTF-8"):
        open_dump(tmp_path).part()


@given(data=st.data())
@tmp_path_is_fine
def test_no_broken_dump_does_more_than_raise_our_errors(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "rank0"
    if not folder.exists():
        write_ours(folder).publish(final=False)
        for path in list(folder.iterdir()):
            path.rename(path.with_name(path.name + ".whole"))
    for whole in folder.glob("*.whole"):
        path = whole.with_suffix("")
        content = bytearray(whole.read_bytes())
        if path.suffix == ".journal":
            del content[4096:]
        for _ in range(data.draw(st.integers(0, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        del content[data.draw(st.integers(0, len(content)) | st.just(len(content))) :]
        path.write_bytes(content)
    try:
        part = open_dump(folder).part()
        part.tensors(with_values=True)
        part.parents()
        for name in part.names():
            part.stack(name)
    except (PathError, InvalidInputError):
        pass


@pytest.mark.parametrize("name", ["../escaped.pt", "/etc/passwd", "", ".", "..", "a/b.pt", "nul\0.pt"])
def test_a_data_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    part = open_dump(write_reference(tmp_path / "rank")).part()
    is_path = "/" in name and name not in (".", "..")
    with raising(InvalidInputError, "tensor-file-outside" if is_path else "tensor-file-name-wrong"):
        part.tensor_path(name)


def test_a_data_name_that_is_a_path_is_found_in_the_folder_of_the_dump(tmp_path: Path) -> None:
    """mindstudio-probe 8.1.1 writes whole paths into what op_generate extracts, of where the dump was then."""
    part = open_dump(write_reference(tmp_path / "rank")).part()
    beside, elsewhere = (tmp_path / "rank" / folder / "in.pt" for folder in ("dump_tensor_data", "kept"))
    for file in (beside, elsewhere):
        file.parent.mkdir()
        file.touch()
    (tmp_path / "in.pt").touch()
    (elsewhere.parent / "out.pt").symlink_to(tmp_path / "in.pt")
    for name in ("/moved/since/dump_tensor_data/in.pt", "step0/rank/in.pt", str(elsewhere), "../../in.pt"):
        assert part.tensor_path(name) == beside
    beside.unlink()
    assert part.tensor_path(str(elsewhere)) == elsewhere
    for name in (
        str(tmp_path / "in.pt"),
        "/moved/in.pt",
        str(elsewhere.parent / "out.pt"),
        f"{tmp_path}/rank/../in.pt",
    ):
        with raising(InvalidInputError, "tensor-file-outside"):
            part.tensor_path(name)


def test_a_link_out_of_the_dump_is_refused(tmp_path: Path) -> None:
    part = open_dump(write_reference(tmp_path / "rank")).part()
    tensors = tmp_path / "rank" / "dump_tensor_data"
    tensors.mkdir()
    (tmp_path / "secret.pt").touch()
    (tensors / "out.pt").symlink_to(tmp_path / "secret.pt")
    (tensors / "in.pt").touch()
    (tensors / "inside.pt").symlink_to(tensors / "in.pt")
    with raising(InvalidInputError, "link-leads-out-of-dump"):
        part.tensor_path("out.pt")
    assert part.has_tensor("inside.pt")
    assert part.has_tensor("in.pt")
    assert not part.has_tensor("to come.pt")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "nothing", "does not exist"),
        (lambda path: path, "holds no dump: neither"),
        (lambda path: (path / "pynative").mkdir() or path, 'folder ".*pynative" may be the dump'),
        (lambda path: (path / "stack.json").write_text("{}") and path / "stack.json", "must be named dump.json or"),
        (lambda path: (path / "dump.json").mkdir() or path, "cannot be read|not a regular file"),
        (lambda path: (path / "dump.json").symlink_to("nowhere") or path, "does not exist"),
    ],
)
def test_what_is_no_dump_is_said_to_be_none(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(PathError, match=message):
        open_dump(make(tmp_path)).part()


def test_a_pipe_in_place_of_the_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dump.json")
    with raising(PathError, "special-file"):
        open_dump(tmp_path).part()


@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
@pytest.mark.parametrize("text", ["[]", '{"0": 5}', '{"0": [1]}', '{"0": [1, 2]}', "{"])
def test_broken_files_beside_the_dump_are_named(tmp_path: Path, name: str, text: str) -> None:
    write_reference(tmp_path)
    (tmp_path / name).write_text(text)
    part = open_dump(tmp_path).part()
    if name == "construct.json" and text not in ("[]", "{"):
        assert part.parents() == json.loads(text)
        return
    with pytest.raises(InvalidInputError, match=name.replace(".", r"\.")):
        part.stack("x") if name == "stack.json" else part.parents()


def test_a_million_records_are_indexed_without_being_parsed(tmp_path: Path) -> None:
    """Here ten thousand; bench/store has the million. None is parsed before it is asked for."""
    writer = DumpWriter(tmp_path / "rank", HEADER)
    for number in range(10_000):
        writer.put_encoded(f"Torch.add.{number}.forward", b'{\n   "number": %d\n  }' % number)
    writer.publish(final=True)
    part = open_dump(tmp_path).part()
    assert len(part) == 10_000
    assert part.record("Torch.add.7777.forward") == {"number": 7777}
    assert "Torch.add.10000.forward" not in part
    with pytest.raises(KeyError):
        part.record("Torch.add.10000.forward")
    part.close()


def test_two_who_look_at_one_file_share_what_was_read_and_close_it_on_their_own(tmp_path: Path) -> None:
    folder = write_reference(tmp_path / "step0" / "rank0")
    one, other = open_dump(folder).part(), open_dump(folder).part()
    assert one._places is other._places
    names = one.names()
    one.close()
    assert [name for name, _ in other.records()] == names
    other.close()


def test_a_file_that_changed_is_read_again_while_somebody_looks_at_what_it_was(tmp_path: Path) -> None:
    folder = write_reference(tmp_path / "step0" / "rank0")
    before = open_dump(folder).part()
    (folder / "dump.json").unlink()
    write_reference(folder, level="L0")
    after = open_dump(folder).part()
    assert (before.header["level"], after.header["level"]) == ("mix", "L0")
    assert dict(before.records()) == dict(after.records())


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "\ud800", 2**70, -0.0, [[[1]]]])
def test_a_file_on_one_line_keeps_what_strict_json_does_not_know(tmp_path: Path, odd: Any) -> None:
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({**HEADER, "data": {"Torch.sum.0.forward": {"output": [odd]}}}))
    found = open_dump(folder).part().record("Torch.sum.0.forward")["output"][0]
    assert repr(found) == repr(odd) or found == odd


def test_a_file_on_one_line_may_be_nested_deeply(tmp_path: Path) -> None:
    deep: Any = 1.0
    for _ in range(400):
        deep = [deep]
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({**HEADER, "data": {"Torch.sum.0.forward": {"output": deep}}}))
    assert open_dump(folder).part().record("Torch.sum.0.forward")["output"] == deep


def _empty_dump(folder: Path, steps: int, ranks: int) -> Path:
    for step in range(steps):
        for rank in range(ranks):
            place = folder / f"step{step}" / f"rank{rank}"
            place.mkdir(parents=True)
            # Each fourth has lost its dump.json.
            (place / ("stack.json" if rank % 4 == 3 else "dump.json")).write_text("{}")
    return folder


@pytest.mark.parametrize("sizes", [((2, 8), (2, 64)), ((2, 8), (16, 8))], ids=["ranks", "steps"])
def test_opening_grows_with_the_folders_and_no_faster(tmp_path: Path, sizes: tuple[tuple[int, int], ...]) -> None:
    dumps = {steps * ranks: _empty_dump(tmp_path / f"{steps}x{ranks}", steps, ranks) for steps, ranks in sizes}
    small, large = sorted(dumps)
    assert exponent_of(lambda size: calls_in(lambda: open_dump(dumps[size])), small, large) <= MOST_EXPONENT
    assert len(open_dump(dumps[large]).hollow) == large // 4


def test_opening_looks_at_each_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _empty_dump(tmp_path / "run", 2, 8)
    seen: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place: [seen.append(os.fspath(place)), scandir(place)][1])
    dump = open_dump(folder)
    assert sorted(Path(place).relative_to(folder).as_posix() for place in set(seen)) == sorted(
        [".", *(f"step{step}" for step in range(2)), *(f"step{s}/rank{r}" for s in range(2) for r in range(8))]
    )
    # The folder itself twice: for a dump in it, and for its steps.
    assert len(seen) == 1 + 1 + 2 + 16
    assert open_dump(dump) is dump
    assert len(seen) == 1 + 1 + 2 + 16


def test_an_open_dump_is_named_as_it_was_given(tmp_path: Path) -> None:
    _empty_dump(tmp_path / "run", 1, 1)
    given = f"{tmp_path}/run/"
    assert str(open_dump(given)) == given
    assert os.fspath(open_dump(given)) == given.rstrip("/")


def test_a_link_to_nothing_in_the_place_of_a_step_or_rank_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text('{"task": "statistics", "level": "L1", "data": {}}')
    for link in ("step1", "step0/rank1", "notes"):
        (tmp_path / link).symlink_to("/nowhere")
    assert open_dump(tmp_path).steps == [0]
    said = capsys.readouterr().out
    assert f'{tmp_path / "step1"}"' in said
    assert f'{tmp_path / "step0" / "rank1"}"' in said
    assert "notes" not in said
