"""What the methods of a debugger may be given, whatever the framework."""

from __future__ import annotations

from typing import Any

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said


def check_token_range(token_range: Any) -> tuple[int, int] | None:
    """The range as a pair; raises InvalidInputError unless it is None or two ints with 0 <= a <= b."""
    if token_range is None:
        return None
    sound = (
        isinstance(token_range, (list, tuple))
        and len(token_range) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) for n in token_range)
        and 0 <= token_range[0] <= token_range[1]
    )
    if not sound:
        raise InvalidInputError(said("token-range-wrong", token_range))
    return int(token_range[0]), int(token_range[1])


def check_rank_id(rank_id: Any) -> None:
    """Raise InvalidInputError unless ``rank_id`` is None or an int from 0."""
    if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
        raise InvalidInputError(said("rank-id-wrong", rank_id))


def check_scheduled_tokens(scheduled_tokens: Any) -> None:
    """Raise NotAvailableError unless ``scheduled_tokens`` is None: no rows of tensors can be chosen."""
    if scheduled_tokens is not None:
        raise NotAvailableError(said("scheduled-tokens-not-available", scheduled_tokens))


def check_api(module: Any, api: Any, prefix: Any) -> None:
    """Raise InvalidInputError unless ``module.api`` can be called and ``prefix`` is None or a text."""
    if not isinstance(api, str):
        raise InvalidInputError(said("custom-api-is-no-text", api))
    if prefix is not None and not isinstance(prefix, str):
        raise InvalidInputError(said("custom-prefix-is-no-text", prefix))
    if not callable(getattr(module, api, None)):
        holder = getattr(module, "__name__", None) or type(module).__name__
        what = said("attribute-missing") if not hasattr(module, api) else said("attribute-not-callable")
        raise InvalidInputError(said("custom-api-missing", holder, what, api))
