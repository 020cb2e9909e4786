"""Archives of the plainest form are read without the general reader, and no others are."""

from __future__ import annotations

import io
import zipfile

from support.row_by_row import for_each

from msprobe.foreign.stored_archive import content_of, stored_entries


def _archive(contents: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        archive.comment = comment
    return file.getvalue()


CONTENTS = {"a/data.pkl": b"described", "a/data/0": bytes(range(256)), "a/empty": b""}


def test_entries_have_their_contents_and_checksums() -> None:
    data = memoryview(_archive(CONTENTS))
    found = stored_entries(data)
    assert found is not None
    assert {name: bytes(content_of(data, entry)) for name, entry in found.items()} == CONTENTS
    expected = {one.filename: one.CRC for one in zipfile.ZipFile(io.BytesIO(data)).infolist()}
    assert {name: entry.crc for name, entry in found.items()} == expected


@for_each(
    "data",
    [b"", b"PK", _archive({}), _archive(CONTENTS, zipfile.ZIP_DEFLATED), _archive(CONTENTS, comment=b"more"),
     _archive(CONTENTS) + b"behind", b"before" + _archive(CONTENTS), _archive({"\u00e4": b"1"})],
)  # fmt: skip
def test_others_are_left_to_the_general_reader(data: bytes) -> None:
    assert stored_entries(memoryview(data)) is None


def test_whatever_byte_is_changed_nothing_but_a_value_error_comes_of_it() -> None:
    whole = _archive(CONTENTS)
    for place in range(len(whole)):
        for value in (0, 0xFF, whole[place] ^ 1):
            data = memoryview(whole[:place] + bytes((value,)) + whole[place + 1 :])
            for entry in (stored_entries(data) or {}).values():
                try:
                    assert len(content_of(data, entry)) == entry.size
                except ValueError:
                    continue


def test_entries_that_lie_over_one_another_are_not_read() -> None:
    data = bytearray(_archive({"a": b"1" * 50, "b": b"2" * 50}))
    second = data.rindex(b"PK\1\2")
    data[second + 42 : second + 46] = bytes(4)
    assert stored_entries(memoryview(data)) is None
