"""A pickle costs no more than its bytes: what is hashed, copied, repeated and nested is counted."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hostile.limits import Called
from hostile.made import pt, tensor_pickle, text, two_dumps
from msprobe.store.pickles import Opaque, PickleError, read_pickle

N = 1000
START = b"\x80\x02"


def nested(levels: int, last: bytes, count: int = N) -> bytes:
    """A tuple of many times one tuple of many times ...: 8 KB that stand for a thousand to the fourth."""
    begin = START + b"}" * (last == b"Ns.") + b"\x8f(" * (last == b"\x90.") + b"(" * (last == b"\x91.")
    return begin + b"N" + (b"q\x010" + b"(" + b"h\x01" * count + b"t") * levels + last


def doubled(levels: int, open_list: bytes = b"]", put: bytes = b"e") -> bytes:
    """A list of twice one list of twice one list ..., as the only member of a dict."""
    found = START + b"}" + text("model") + b"N"
    for _ in range(levels):
        found += b"q\x010" + open_list + b"(h\x01h\x01" + put
    return found + b"s."


def with_letters(count: int, letters: int) -> bytes:
    """A dict of many names that all have one long text."""
    found = START + text("x" * letters) + b"q\x010}("
    return found + b"".join(text(str(n)) + b"h\x01" for n in range(count)) + b"u."


def called(name: bytes, argument: bytes, count: int, then: bytes = b"") -> bytes:
    """A list of what calls of a name with one large argument, which is in the memo, give."""
    found = START + argument + b"q\x010](c" + name + b"q\x02"
    return found + b"0" + (b"h\x02(h\x01tR" + then) * count + b"e."


def arrays(count: int) -> bytes:
    """Arrays of numpy that all have the same megabyte of text for their values."""
    kind = b"cnumpy\ndtype\n(" + text("u1") + b"\x89\x88tR"
    found = START + text("x" * (1 << 20)) + b"q\x010](" + kind + b"q\x030"
    one = b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01J\x00\x00\x10\x00\x85h\x03\x89h\x01tb"
    return found + one * count + b"e."


def numbers_of_one_hash(count: int) -> bytes:
    """Keys that all have the hash 0."""
    keys = ((2**61 - 1) * n for n in range(1, count))
    return START + b"}(" + b"".join(b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in keys) + b"u."


def tuples_of_one_hash(bits: int) -> bytes:
    """Keys that are tuples of -1 and -2, which have one hash."""
    items = (b"J\xff\xff\xff\xff", b"J\xfe\xff\xff\xff")
    keys = (b"(" + b"".join(items[n >> bit & 1] for bit in range(bits)) + b"t" for n in range(1 << bits))
    return START + b"}(" + b"".join(key + b"N" for key in keys) + b"u."


LONG_TEXT = text("x" * (1 << 16))
LONG_LIST = b"](" + b"N" * (1 << 16) + b"e"
HOSTILE = {
    "a key of a dict": nested(3, b"Ns.", 100),
    "an item of a set": nested(3, b"\x90.", 100),
    "an item of a frozenset": nested(3, b"\x91.", 100),
    "a key that is hashed many times": START + b"(" + b"N" * N + b"tq\x010}(" + b"h\x01N" * N + b"u.",
    "lists of lists": doubled(24),
    "dicts of dicts": START + b"N" + b"".join(b"q\x010}(K\x01h\x01K\x02h\x01u" for _ in range(24)) + b".",
    "objects of objects": START + b"N" + b"q\x010cx\ny\n(h\x01h\x01tR" * 24 + b".",
    "one text many times": with_letters(1000, 1 << 16),
    "a text that is encoded many times": called(b"_codecs\nencode\n", LONG_TEXT, 1000),
    "a list that is copied many times": called(b"torch\nSize\n", LONG_LIST, 1000),
    "pairs that are copied many times": called(b"collections\nOrderedDict\n", LONG_LIST, 1000),
    "arrays of one text": arrays(100),
    "arguments that are a list": START + b"cx\ny\n](" + b"N" * 100 + b"eR.",
    "numbers of one hash": numbers_of_one_hash(1000),
    "tuples of one hash": tuples_of_one_hash(14),
    "a list for a key": START + b"}]Ns.",
    "a whole number of gigabytes": START + b"\x8b\xff\xff\xff\x7f.",
    "a whole number below no bytes": START + b"\x8b\xff\xff\xff\xff.",
    "a text of gigabytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b".",
    "bytes beside the pickle": b"\x80\x05\x97.",
    "an extension": START + b"\x82\x01.",
    "a name from outside": START + b"Pname\n.",
    "a mark for a value": START + b"(\x85.",
    "nothing on the stack": START + b"0.",
    "a memo that is empty": START + b"h\x07.",
    "no end": START + b"]" * 10,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_more_than_its_bytes_is_refused(name: str) -> None:
    from msprobe.environment.checkpoint.torch_files import REBUILD

    with pytest.raises(PickleError):
        read_pickle(memoryview(HOSTILE[name]), REBUILD)


def test_what_trainings_share_is_read() -> None:
    """Tied weights, names and settings that many groups have in common, keys that are small tuples."""
    settings = b"(G?\xf0\0\0\0\0\0\0G?\xf0\0\0\0\0\0\0tq\x010"
    groups = b"](" + b"".join(b"}" + text("betas") + b"h\x01s" for _ in range(N)) + b"e"
    found, _ = read_pickle(memoryview(START + settings + groups + b"."), {})
    assert len(found) == N
    keys = b"}(" + b"".join(b"(" + text(f"layer.{n}") + b"K\x01tN" for n in range(N)) + b"u"
    found, _ = read_pickle(memoryview(START + keys + b"."), {})
    assert len(found) == N
    whole, _ = read_pickle(memoryview(START + b"]q\x01(" + text("x" * 5000) + b"q\x02h\x02h\x02h\x02h\x02e."), {})
    assert len(whole) == 5


def test_what_holds_itself_is_read_once() -> None:
    found, _ = read_pickle(memoryview(START + b"]q\x01h\x01a."), {})
    assert found[0] is found


def test_what_an_object_holds_is_not_in_its_text() -> None:
    found, _ = read_pickle(memoryview(START + b"cx\ny\n(" + text("secret" * 1000) + b"tR."), {})
    assert isinstance(found, Opaque)
    assert len(repr(found)) < 200


def deep(levels: int) -> bytes:
    return START + b"]" * levels + b"a" * (levels - 1) + b"."


def place_that_is_nested() -> bytes:
    """The name of a storage is the tuple of a thousand to the third."""
    inside = nested(3, b"")[2:] + b"q\x050"
    return START + inside + tensor_pickle()[2:].replace(text("0"), b"h\x05")


FILES = {
    "key": nested(4, b"Ns."),
    "set": nested(4, b"\x90."),
    "frozenset": nested(4, b"\x91."),
    "doubled": doubled(60),
    "doubled tuples": doubled(60, b"", b"t"),
    "deep": deep(200_000),
    "place": place_that_is_nested(),
    "hashes": numbers_of_one_hash(60_000),
}


@pytest.mark.parametrize("name", FILES)
def test_weights_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    one, two = pt(tmp_path / "one.pt"), pt(tmp_path / "two.pt", FILES[name])
    Called("config_check", "-c", one, two, "-o", tmp_path / "out.json", cwd=tmp_path).demand_refused()


@pytest.mark.parametrize("name", ["key", "doubled", "deep", "place"])
def test_values_of_a_dump(tmp_path: Path, name: str) -> None:
    Called(*two_dumps(tmp_path, pickle=FILES[name]), cwd=tmp_path).demand_quick()


@pytest.mark.parametrize("name", ["key", "doubled", "frozenset"])
def test_description_of_a_distributed_checkpoint(tmp_path: Path, name: str) -> None:
    for side in ("one", "two"):
        (tmp_path / side).mkdir()
        (tmp_path / side / ".metadata").write_bytes(FILES[name])
    words = "config_check", "-c", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "out.json"
    Called(*words, cwd=tmp_path).demand_refused()


@pytest.mark.parametrize("name", ["key", "doubled", "letters"])
def test_arguments_of_a_training(tmp_path: Path, name: str) -> None:
    """``training_args.bin``, as it is packed for a configuration check."""
    data = {**FILES, "letters": with_letters(20_000, 1 << 20)}[name]
    pt(tmp_path / "training_args.bin", data)
    words = "config_check", "-d", tmp_path / "training_args.bin", "-o", tmp_path / "pack.zip"
    Called(*words, cwd=tmp_path).demand_quick()


def test_older_files_that_are_a_row_of_pickles(tmp_path: Path) -> None:
    for side in ("one", "two"):
        (tmp_path / f"{side}.pt").write_bytes(FILES["key"])
    words = "config_check", "-c", tmp_path / "one.pt", tmp_path / "two.pt", "-o", tmp_path / "out.json"
    Called(*words, cwd=tmp_path).demand_refused()
