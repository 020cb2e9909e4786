"""The address of the online check, which both sides share: what it comes to, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

from msprobe.config.fields import AddressFields
from msprobe.config.jsonc import FieldPath
from msprobe.config.mistakes import ConfigSource, Mistake, shown
from msprobe.config.sections import Section
from msprobe.config.settings import Online
from msprobe.messages import said

#: The training that sends, and the process that checks.
Side = Literal["client", "server"]

OnlineFields = TypeVar("OnlineFields", bound=AddressFields)

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


def online_mistakes(
    section: Section[OnlineFields], switch: str, side: Side, path: FieldPath, source: ConfigSource
) -> list[Mistake]:
    """What is wrong with the address of an online check, which the field ``switch`` of a section asks for.

    ``path``: of the section. A field that is broken by itself has been reported. A training that does not send needs no
    folder that is there; of the checking side the whole section is checked.
    """
    fields, broken = section.fields, section.broken
    is_on = getattr(fields, switch) is True
    if not is_on and side == "client":
        return []
    mistakes = []
    if (
        is_on
        and not broken & {"nfs_path", "host", "port"}
        and not fields.nfs_path
        and not (fields.host and fields.port > 0)
    ):
        text = said("online-without-address")
        mistakes.append(source.mistake((*path, switch), text))
    if fields.nfs_path and not Path(fields.nfs_path).is_dir():
        text = said("online-folder-missing", shown(fields.nfs_path))
        mistakes.append(source.mistake((*path, "nfs_path"), text))
    tls = address_of(fields, side).tls_path
    missing = [name for name in tls_files(side) if tls and not (Path(tls) / name).is_file()]
    if missing and not fields.nfs_path:
        text = said("online-tls-files", shown(tls), ", ".join(missing))
        mistakes.append(source.mistake((*path, "tls_path"), text))
    return mistakes
