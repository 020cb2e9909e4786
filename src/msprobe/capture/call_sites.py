"""How a call was written, read off the instruction that makes it.

Which arguments were given by keyword, and whether an operator or a call is being executed, is not reported to a
function that is called; the code of its caller knows. A place is a code object and the offset of the instruction that
runs.
"""

from __future__ import annotations

import dis
import types
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple


class Form(NamedTuple):
    """How a call was written: the number of positional arguments, and the keywords."""

    positional: int
    keywords: tuple[str, ...]


@lru_cache(maxsize=100_000)
def form_of_call(code: types.CodeType, lasti: int) -> Form | None:
    """How the call at ``lasti`` of ``code`` was written; None if the code does not say (``f(*args)``, operators)."""
    instructions = list(dis.get_instructions(code))
    # While a Python function runs, its caller may stand on the inline cache behind the call.
    place = bisect_right(instructions, lasti, key=lambda instruction: instruction.offset) - 1
    if place < 0:
        return None
    call = instructions[place]
    count = call.arg or 0
    if call.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD"):
        keywords: tuple[str, ...] = ()
        # 3.11 and 3.12: the keywords stand in an instruction before the call, with PRECALL or EXTENDED_ARG between.
        for earlier in reversed(instructions[max(0, place - 3) : place]):
            if earlier.opname == "KW_NAMES":
                argument = earlier.argval
                keywords = argument if isinstance(argument, tuple) else code.co_consts[earlier.arg or 0]
                break
            if earlier.opname not in ("PRECALL", "EXTENDED_ARG", "CACHE"):
                break
        return Form(count - len(keywords), keywords)
    if call.opname in ("CALL_FUNCTION_KW", "CALL_KW") and place:
        argument = instructions[place - 1].argval
        if isinstance(argument, tuple):
            return Form(count - len(argument), argument)
    return None


_OPERATOR_INSTRUCTIONS = ("BINARY_", "INPLACE_", "COMPARE_OP", "UNARY_", "CONTAINS_OP")


@lru_cache(maxsize=100_000)
def made_by_operator(code: types.CodeType, lasti: int, method: str) -> bool:
    """True if what runs at ``lasti`` of ``code`` is an operator and not a call of the method named ``method``.

    Also where the operator is inside of what is called there: ``sum(tensors)``, ``operator.add(a, b)``.
    """
    if lasti < 0:
        return False
    if dis.opname[code.co_code[lasti]].startswith(_OPERATOR_INSTRUCTIONS):
        return True
    if method not in code.co_names:
        return True
    # The function of that name, of the module of operators?
    before, is_operator = None, False
    for instruction in dis.get_instructions(code):
        if instruction.offset >= lasti:
            break
        if instruction.argval == method:
            is_operator = before == "operator"
        before = instruction.argval
    return is_operator


@lru_cache(maxsize=100_000)
def called_as_builtin(code: types.CodeType, lasti: int, name: str) -> bool:
    """True if the call at ``lasti`` calls the built-in function ``name`` (``abs(x)``), not the method of that
    name.
    """
    is_name = False
    for instruction in dis.get_instructions(code):
        if instruction.offset >= lasti:
            break
        if instruction.argval == name:
            is_name = instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    return is_name
