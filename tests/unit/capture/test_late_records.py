"""Records that wait for numbers leave in their order, each when its numbers are known."""

from __future__ import annotations

from msprobe.capture.late_records import LateRecords, is_late, leaves_of


class Described:
    """A description; ``late``: its numbers are not known."""

    def __init__(self, late: bool) -> None:
        self.late = late


class Numbers:
    """Late descriptions of a framework."""

    def __init__(self) -> None:
        self.made = self.known = 0

    def receive(self) -> None:
        self.known = self.made


def taken(records: LateRecords, all_of_them: bool = False) -> list[str]:
    return [record.name for record in records.ready(all_of_them)]


def test_a_record_is_ready_when_what_was_made_before_it_is_known() -> None:
    records, numbers = LateRecords(), Numbers()
    records.numbers = numbers
    for name, made in (("a", 2), ("b", 2), ("c", 5)):
        numbers.made = made
        records.add(name, {}, None, False, None)
    assert taken(records) == []
    numbers.known = 2
    assert taken(records) == ["a", "b"]
    numbers.known = 4
    assert taken(records) == []
    assert [record.name for record in records.waiting] == ["c"]
    numbers.receive()
    assert taken(records) == ["c"]


def test_without_numbers_that_come_by_and_by_all_wait_for_all() -> None:
    records = LateRecords()
    records.add("a", {}, None, False, None)
    records.add("b", {}, None, False, None)
    assert taken(records) == []
    assert taken(records, all_of_them=True) == ["a", "b"]
    assert not records.waiting


def test_one_description_makes_a_record_late() -> None:
    known, late = Described(False), Described(True)
    assert not is_late({"input_args": [known, b"1", "text", 2.0, None], "output": [{"a": known}]})
    assert is_late({"input_args": [known], "output": [{"a": (b"", [late])}]})
    assert list(leaves_of({"a": [known, {"b": late}], "c": "text"})) == [known, late]
