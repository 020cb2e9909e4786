"""Arguments and results of nodes as the JSON text that graph files hold.

A file of 100,000 nodes a side has 600,000 of them. Nearly all are tensors that differ in their statistics alone, so
what is around the statistics is made once for each type, shape and need of a gradient (bench/graph).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson

from msprobe.graph.value_texts import Form, fields_of, texts_of
from msprobe.statistics_table import USUAL_KEYS

_USUAL = ("type", "dtype", "shape", *USUAL_KEYS)
_WITH_GRADIENT = (*_USUAL, "requires_grad")
_MOST_KEPT = 10_000
_NULL = '"value":"null"'


class ParameterTexts:
    """Writes parameters in one form. ``with_md5``: digests are compared, so they are shown."""

    def __init__(self, form: Form, with_md5: bool) -> None:
        self._form: Form = form
        self._with_md5 = with_md5
        self._around: dict[Any, str] = {}

    def all_parameters(
        self, parameters: Sequence[tuple[str, Any]], more: Sequence[str] | None = None, exchange: bool = False
    ) -> str:
        """The JSON object of some parameters by their names.

        ``more``: for each, the text of further fields; they are left out of one without a value. ``exchange``: they
        belong to a ``batch_isend_irecv``.
        """
        texts: list[str] = []
        for place, (name, leaf) in enumerate(parameters):
            text = (None if exchange else self._usual(leaf)) or self._any(leaf, exchange)
            if more is not None and more[place] and text != _NULL:
                text = f"{text},{more[place]}"
            texts.append(f"{self.json(name)}:{{{text}}}")
        return f"{{{','.join(texts)}}}"

    def json(self, value: Any) -> str:
        """A value as JSON: that of 8.1.1 in ASCII."""
        try:
            text = orjson.dumps(value)
        except (TypeError, ValueError):  # lone surrogates
            return json.dumps(value)
        return text.decode() if self._form == "26.2" or text.isascii() else json.dumps(value)

    def _usual(self, leaf: Any) -> str | None:
        """The fields of a tensor with nothing but its type, its statistics and its need of a gradient; else None."""
        if type(leaf) is not dict:
            return None
        keys = tuple(leaf)
        if keys == _WITH_GRADIENT:
            kind, dtype, shape, high, low, mean, norm, gradient = leaf.values()
            if type(gradient) is not bool:
                return None
        elif keys == _USUAL:
            kind, dtype, shape, high, low, mean, norm = leaf.values()
            gradient = None
        else:
            return None
        if not (type(high) is type(low) is type(mean) is type(norm) is float and type(shape) is list):
            return None
        key = (kind, dtype, gradient, *shape)
        try:
            around = self._around.get(key)
        except TypeError:
            return None
        if around is None:
            if len(self._around) >= _MOST_KEPT:
                self._around.clear()
            around = self._around[key] = self._text_around(leaf)
        return around % tuple(texts_of((high, low, mean, norm), self._form))

    def _text_around(self, leaf: dict[str, Any]) -> str:
        fields = fields_of(leaf, self._form, self._with_md5)
        return ",".join(
            f"{self.json(key)}:" + ('"%s"' if key in USUAL_KEYS else self.json(value).replace("%", "%%"))
            for key, value in fields.items()
        )

    def _any(self, leaf: Any, exchange: bool) -> str:
        return self.json(fields_of(leaf, self._form, self._with_md5, exchange))[1:-1]


def column_texts(names: Sequence[str], texts: Sequence[str]) -> str:
    """Further fields of a parameter as JSON text without braces; the texts need no escapes."""
    return ",".join([f'"{name}":"{text}"' for name, text in zip(names, texts, strict=True)])
