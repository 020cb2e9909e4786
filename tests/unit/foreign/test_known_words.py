"""Texts that name a type of elements, a layout or a format of memory."""

from __future__ import annotations

from support.row_by_row import for_each

from msprobe.foreign.known_words import is_known_constant, is_known_dtype


@for_each(
    ("kind", "text"),
    [
        ("torch.dtype", "torch.float16"),
        ("torch.dtype", "bfloat16"),
        ("torch.layout", "torch.sparse_coo"),
        ("torch.memory_format", "torch.channels_last"),
        ("mindspore.dtype", "mindspore.float32"),
        ("mindspore.dtype", "Float32"),
        ("mindspore.dtype", "BFloat16"),
        ("slice", [0, 1, None]),
        ("str", "torch.load"),
    ],
)
def test_words_of_frameworks_are_known(kind: str, text: object) -> None:
    assert is_known_constant(kind, text)


@for_each("kind", ["torch.dtype", "torch.layout", "torch.memory_format", "mindspore.dtype"])
@for_each("text", ["torch.load", "torch.set_num_threads", "os.float16", "", None, 7, ["float16"], "x" * 99])
def test_other_texts_are_not(kind: str, text: object) -> None:
    assert not is_known_constant(kind, text)


def test_types_of_elements_have_no_framework_before_them() -> None:
    assert is_known_dtype("float8_e4m3fn")
    assert is_known_dtype("hif8")
    assert not is_known_dtype("torch.float32")
    assert not is_known_dtype("set_num_threads")
