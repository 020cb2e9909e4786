"""The address of the online check, which both sides share: what it comes to, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msprobe.config.fields import AddressFields
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import Mistake, Source, shown
from msprobe.config.settings import Online

#: The training that sends, and the process that checks.
Side = Literal["client", "server"]

# What mindstudio-probe 8.1.1 documents as the default: without keys in it, no TLS is meant.
_HERE = "./"


def tls_files(side: Side) -> tuple[str, ...]:
    """The files that the folder of keys must have for this side."""
    return f"{side}.key", f"{side}.crt", "ca.crt"


def address_of(fields: AddressFields, side: Side) -> Online:
    """The address, its folder of keys empty where no TLS is meant."""
    tls = fields.tls_path
    if tls == _HERE and not any((Path(tls) / name).is_file() for name in tls_files(side)):
        tls = ""
    return Online(fields.nfs_path, fields.host, fields.port, tls)


def address_mistakes(fields: AddressFields, side: Side, path: FieldPath, source: Source) -> list[Mistake]:
    """Folders that are not there, and keys that are missing; ``path``: of the section."""
    found = []
    if fields.nfs_path and not Path(fields.nfs_path).is_dir():
        text = f"found {shown(fields.nfs_path)}, which is no existing folder; make one that both sides see"
        found.append(source.mistake((*path, "nfs_path"), text))
    tls = address_of(fields, side).tls_path
    missing = [name for name in tls_files(side) if tls and not (Path(tls) / name).is_file()]
    if missing and not fields.nfs_path:
        text = (
            f'found {shown(tls)}, which has no {", ".join(missing)}; allowed: a folder with them, or "" for plain TCP'
        )
        found.append(source.mistake((*path, "tls_path"), text))
    return found


def missing_address(fields: AddressFields, switch: str, path: FieldPath, source: Source) -> list[Mistake]:
    """The online check is switched on by the field ``switch``, and nobody says where it is."""
    if fields.nfs_path or (fields.host and fields.port > 0):
        return []
    text = (
        'found true without an address; give "host" and "port" of the process that checks, or "nfs_path", a folder '
        "that both sides see"
    )
    return [source.mistake((*path, switch), text)]
