"""What one process has said is shown by a different one, in any language."""

from __future__ import annotations

import json

import numpy as np
from support.row_by_row import for_each

from msprobe.messages import Wording, both, code_of, in_language, joined, said
from msprobe.messages.as_data import packed, unpacked


@for_each(
    "text",
    [
        "a plain text",
        said("result-without-elements"),
        said("value-differs", None, [1, "two"]),
        said("cosine-too-small", np.float32(0.5), 0.99),
        said("random-statistic-off", said("statistic-zeros"), np.float64(7.5), 6.0),
        joined("; ", [said("never-checked", "to"), said("call-skipped")]),
        both("one {}", "一 {}", 3),
        both("a {brace}", "一个 {花括号}"),
        Wording("{} {}", "a", said("an-infinity")),
    ],
)
def test_a_text_comes_back_in_both_languages(text: str) -> None:
    (back,) = unpacked(json.loads(json.dumps(packed([text]))))
    assert (back, in_language(back, "zh"), code_of(back)) == (text, in_language(text, "zh"), code_of(text))


def test_nothing_else_is_changed() -> None:
    plain = ["a", 1, 2.5, None, ["b", ["c"]]]
    assert unpacked(json.loads(json.dumps(packed(plain)))) == plain
