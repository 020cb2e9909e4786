"""Values that nobody but their owner should read, replaced by something that still distinguishes equal from
different.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

_NAMES = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)|COOKIE", re.IGNORECASE)
# Settings are called pad_token and num_key_value_heads, so only what looks like a secret is one.
_SETTINGS = re.compile(r"(?:^|[._-])(?:key|token|secret|passwd|password|credentials?|api_?key)$", re.IGNORECASE)
_LOOKS_SECRET = re.compile(r"(?=.*[A-Za-z])[\w+/=.:@!#%^&*-]{8,}", re.ASCII)
_IN_ADDRESSES = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# Slow and short on purpose: whoever guesses finds many passwords of one hash.
_ROUNDS = 4000
_HASH_DIGITS = 8


def redacted_environment(variables: Mapping[str, str], known: Collection[str] = ()) -> dict[str, str]:
    """The variables, those that are secret by their name as :func:`hidden`, and users in addresses too.

    ``known`` are names that are no secret, whatever they are called.
    """
    redacted = {}
    for name, value in variables.items():
        if _NAMES.search(name) and name not in known and value:
            redacted[name] = hidden(name, value)
        else:
            redacted[name] = _IN_ADDRESSES.sub(lambda match, name=name: hidden(name, match[0]), value)  # type: ignore[misc]
    return redacted


def redacted_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters, those that are secret by their name and look like one as :func:`hidden`."""
    return {
        name: hidden(name, value)
        if isinstance(value, str) and _SETTINGS.search(name) and _LOOKS_SECRET.fullmatch(value)
        else value
        for name, value in settings.items()
    }


def hidden(name: str, value: str) -> str:
    """``***`` and 32 bits of a hash that is salted with the name: equal values stay equal.

    >>> hidden("A_TOKEN", "x") == hidden("A_TOKEN", "x") != hidden("B_TOKEN", "x")
    True
    """
    salt = f"msprobe config_check {name}".encode("utf-8", "replace")
    digest = hashlib.pbkdf2_hmac("sha256", value.encode("utf-8", "surrogateescape"), salt, _ROUNDS)
    return f"***{digest.hex()[:_HASH_DIGITS]}"
