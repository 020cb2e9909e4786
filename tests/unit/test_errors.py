from __future__ import annotations

import copy
import pickle

import pytest

from msprobe import errors
from msprobe.core.common import exceptions

ALL = [
    errors.MsprobeError,
    errors.InvalidInputError,
    errors.PathError,
    errors.ScopeError,
    errors.NotAvailableError,
]


@pytest.mark.parametrize("kind", ALL)
def test_text_begins_with_the_mark_and_holds_the_sentence(kind: type[errors.MsprobeError]) -> None:
    error = kind("x is wrong.")
    assert str(error) == "[msprobe] x is wrong."
    assert error.message == "x is wrong."


@pytest.mark.parametrize("kind", ALL)
def test_old_except_clause_catches_every_error(kind: type[errors.MsprobeError]) -> None:
    with pytest.raises(exceptions.MsprobeException):
        raise kind("x")


def test_old_names_are_the_new_classes() -> None:
    assert exceptions.MsprobeException is errors.MsprobeError
    assert exceptions.FileCheckException is errors.PathError
    assert exceptions.ScopeException is errors.ScopeError


def test_each_class_has_its_own_code() -> None:
    codes = [kind.code for kind in ALL]
    assert all(isinstance(code, int) for code in codes)
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", ALL)
def test_errors_survive_the_way_between_processes(kind: type[errors.MsprobeError]) -> None:
    for twin in (pickle.loads(pickle.dumps(kind("a sentence"))), copy.copy(kind("a sentence"))):
        assert type(twin) is kind
        assert str(twin) == "[msprobe] a sentence"
