"""Values as the texts of graph files: the fast ways write what the plain ones do."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from msprobe.graph.differences import percent
from msprobe.graph.parameter_texts import ParameterTexts
from msprobe.graph.value_texts import Form, fields_of, text_of, texts_of

FORMS: tuple[Form, ...] = ("8.1.1", "26.2")
NUMBERS = st.floats() | st.floats(-1e10, 1e10).map(lambda x: round(x, 5)) | st.floats(1e-6, 1e-2)
TENSORS = st.builds(
    lambda dtype, shape, numbers, gradient, more: {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": shape,
        **dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)),
        **({} if gradient is None else {"requires_grad": gradient}),
        **more,
    },
    st.sampled_from(("torch.float32", "%s\"'\u00e9")),
    st.lists(st.integers(0, 9), max_size=2),
    st.lists(NUMBERS | st.integers() | st.none() | st.just("NaN"), min_size=4, max_size=4),
    st.sampled_from((None, True, False, 1)),
    st.sampled_from(({}, {"data_name": "a.pt"}, {"md5": "0"})),
)


@given(st.lists(NUMBERS, min_size=4, max_size=4))
@example([1e-4, -0.0, 123456.7890125, 999999999.9999999])
@example([1e9, 1e16, math.inf, 9.99999999e-5])
def test_numbers_written_together_are_those_written_alone(values: list[float]) -> None:
    for form in FORMS:
        assert texts_of(values, form) == [text_of(value, form) for value in values]


@given(NUMBERS)
@example(0.054)
@example(0.0540436)
@example(0.05404361999999)
def test_per_cent_has_at_most_six_decimals_unless_it_needs_an_exponent(ratio: float) -> None:
    text = percent(ratio)
    shortest = repr(ratio * 100)
    if math.isnan(ratio):
        assert text == "N/A"
    elif "e" in shortest or len(shortest.partition(".")[2]) <= 6:
        assert text == f"{shortest}%"
    else:
        assert text == f"{ratio * 100:.6f}%"


@given(st.lists(TENSORS | st.integers() | st.none(), max_size=3))
def test_the_text_of_parameters_is_json_of_their_fields(leaves: list[Any]) -> None:
    for form in FORMS:
        texts = ParameterTexts(form, with_md5=False)
        parameters = [(f'a"\u00e9.{number}', leaf) for number, leaf in enumerate(leaves)]
        expected = {name: fields_of(leaf, form, with_md5=False) for name, leaf in parameters}
        for _ in range(2):  # what is kept of the first must not change the second
            text = texts.all_parameters(parameters)
            assert json.loads(text) == expected
        assert form == "26.2" or text.isascii()
