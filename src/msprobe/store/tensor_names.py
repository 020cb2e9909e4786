"""The names of tensor files."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from msprobe.paths import MAX_NAME_LENGTH

_DIGEST_BYTES = 8
_SAFE = re.compile(r"[\w\-+=@%,:;()\[\] ][\w\-+=@%,:;()\[\] .]{0,254}", re.ASCII)


# The same name is asked for several times on its way, and again in the next step.
@lru_cache(maxsize=4096)
def safe_file_name(name: str) -> str:
    """``name`` as a file name that every system takes: no ``/``, no leading dot, at most 255 bytes.

    A name that is safe comes back as it is. A long one is cut and keeps its ending (``.pt``); a digest of the
    whole name keeps it apart from its neighbours. Characters that file names cannot hold become ``_``.
    """
    if _SAFE.fullmatch(name):
        return name
    clean = "".join("_" if one in "/\\" or not one.isprintable() else one for one in name)
    if not clean or clean[0] == ".":
        clean = "_" + clean[1:]
    data = clean.encode()
    if len(data) <= MAX_NAME_LENGTH:
        return clean
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    stem, dot, ending = clean.rpartition(".")
    suffix = f"{dot}{ending}" if stem and len(ending) <= 8 else ""
    room = MAX_NAME_LENGTH - len(f"~{digest}{suffix}".encode())
    return data[:room].decode(errors="ignore") + f"~{digest}{suffix}"
