"""``seed_all`` for MindSpore: the same random numbers in every run, and on request no dropout."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import mint, ops

from msprobe.capture.mindspore.patches import Replacement
from msprobe.seeding import check, report, seed_python

# The classes whose objects drop elements: the word of the probability, and its value for "drop nothing".
_CLASSES = (
    (ops, "Dropout", "keep_prob", 1.0),
    (ops, "Dropout2D", "keep_prob", 1.0),
    (ops, "Dropout3D", "keep_prob", 1.0),
    (mint.nn, "Dropout", "p", 0.0),
)


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = True) -> None:
    """Seed every generator, so that two runs can be compared.

    Seeds ``random``, numpy's global generator and MindSpore, and sets ``PYTHONHASHSEED`` (for processes started from
    here on). ``mode``: deterministic kernels (``set_context(deterministic="ON")``, ``HCCL_DETERMINISTIC``).

    ``rm_dropout``: dropout becomes the identity: ``ops.Dropout``, ``Dropout2D``, ``Dropout3D`` and ``mint.nn.Dropout``
    keep every element, ``mint.nn.functional.dropout`` gives back what it gets. **This changes the training, on
    purpose.** It is the default, as in mindstudio-probe 8.1.1; in 26.2 the default is False: say which one you mean
    where both are in use. Objects that exist already, and names imported earlier, are not reached. The last call
    counts: with
    ``rm_dropout=False`` an earlier change is undone.

    Raises InvalidInputError if ``seed`` is not an int from 0 to 2**32 - 1 or one of the others is not a bool.
    """
    check(seed, mode=mode, rm_dropout=rm_dropout)
    seed_python(seed, mode)
    mindspore.set_seed(seed)
    mindspore.set_context(deterministic="ON" if mode else "OFF")
    while _removed:
        _removed.pop().take_off()
    if rm_dropout:
        _remove_dropouts()
    report("seeded-mindspore", seed, mode, rm_dropout)


_removed: list[Replacement] = []


def _remove_dropouts() -> None:
    for holder, name, word, value in _CLASSES:
        kind = getattr(holder, name, None)
        if isinstance(kind, type):
            _replace(kind, "__init__", functools.partial(_keeping_all, word=word, value=value))
    functional = mint.nn.functional
    if hasattr(functional, "dropout"):
        _replace(functional, "dropout", _identity)


def _replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    replacement = Replacement(holder, name, make(getattr(holder, name)))
    replacement.put()
    _removed.append(replacement)


def _keeping_all(original: Callable[..., None], word: str, value: float) -> Callable[..., None]:
    """A constructor that makes the probability ``value``, whatever the caller asks for. The class stays itself."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *((value, *args[1:]) if args else ()), **({**kwargs, word: value} if not args else kwargs))

    return __init__


def _identity(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dropout(input: Any, *args: Any, **kwargs: Any) -> Any:
        return input

    return dropout
