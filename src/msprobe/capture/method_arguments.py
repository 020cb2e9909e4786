"""What the methods of a debugger may be given, whatever the framework."""

from __future__ import annotations

from typing import Any

from msprobe.errors import InvalidInputError, NotAvailableError


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
        raise InvalidInputError(
            f"start(): token_range must be [a, b] with whole numbers 0 <= a <= b, found {token_range!r}."
        )
    return int(token_range[0]), int(token_range[1])


def check_rank_id(rank_id: Any) -> None:
    """Raise InvalidInputError unless ``rank_id`` is None or an int from 0."""
    if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
        raise InvalidInputError(f"start(): rank_id must be an int from 0, found {rank_id!r}.")


def check_scheduled_tokens(scheduled_tokens: Any) -> None:
    """Raise NotAvailableError unless ``scheduled_tokens`` is None: no rows of tensors can be chosen."""
    if scheduled_tokens is not None:
        raise NotAvailableError(
            f"start(): scheduled_tokens={scheduled_tokens!r:.80} asks for the rows of one request; that is not"
            " available in this version: tensors are recorded whole; leave it out."
        )


def check_api(module: Any, api: Any, prefix: Any) -> None:
    """Raise InvalidInputError unless ``module.api`` can be called and ``prefix`` is None or a text."""
    if not isinstance(api, str):
        raise InvalidInputError(f"register_custom_api(): api must be a str, found {api!r}.")
    if prefix is not None and not isinstance(prefix, str):
        raise InvalidInputError(f"register_custom_api(): api_prefix must be a str, found {prefix!r}.")
    if not callable(getattr(module, api, None)):
        holder = getattr(module, "__name__", None) or type(module).__name__
        what = "has no attribute" if not hasattr(module, api) else "cannot be called:"
        raise InvalidInputError(
            f'register_custom_api(): {holder} {what} "{api}"; give a module and the name of a function.'
        )
