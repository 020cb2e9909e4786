"""The section ``run_ut`` (26.2: ``acc_check``) of ``config.json``: all mistakes are told at once."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe.capture.api_list import shipped_list
from msprobe.errors import InvalidInputError
from msprobe.paths import check_readable_file
from msprobe.precheck.selection import Selection

_GROUPS = ("functional", "tensor", "torch", "torch_npu")
_SECTIONS = ("run_ut", "acc_check")
#: Fields of the online check: read and judged here as well, so that one config.json serves both.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
TLS_FILES = ("server.key", "server.crt", "ca.crt")
MOST_DECIMALS = 20


@dataclass(frozen=True)
class Settings:
    """What ``config.json`` says of the check. ``decimals``: of the floats in the csv files."""

    selection: Selection = field(default_factory=Selection)
    error_data_path: str = "./"
    decimals: int = 14
    is_online: bool = False
    #: Of the online check: where to listen, and which ranks are checked (all if empty).
    nfs_path: str = ""
    host: str = ""
    port: int = -1
    tls_path: str = ""
    ranks: tuple[int, ...] = ()


def load_settings(path: str | None) -> Settings:
    """Read the section of a config file; the defaults without one. Raises PathError or InvalidInputError."""
    if not path:
        return Settings()
    file = check_readable_file(path, ".json")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f'"{path}" is no readable JSON file: {problem}.') from None
    if not isinstance(content, dict):
        raise InvalidInputError(f'"{path}" must hold a JSON object, found a {type(content).__name__}.')
    section: Any = next((content[name] for name in _SECTIONS if name in content), {})
    if not isinstance(section, dict):
        raise InvalidInputError(f'"{path}": section "run_ut" must be an object, found {section!r}.')
    mistakes: list[str] = []
    selection = Selection(
        *(frozenset(_names(section.get(field, []), field, mistakes)) for field in ("white_list", "black_list"))
    )
    folder = section.get("error_data_path", "./")
    if not isinstance(folder, str) or not Path(folder or ".").is_dir():
        mistakes.append(f'"error_data_path": {folder!r} is no existing folder')
    decimals = section.get("precision", 14)
    if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= MOST_DECIMALS:
        mistakes.append(f'"precision": found {decimals!r}; allowed: a whole number from 0 to {MOST_DECIMALS}')
    _check_online(section, mistakes)
    if mistakes:
        raise InvalidInputError(f'"{path}", section "run_ut": {"; ".join(mistakes)}.')
    tls = section.get("tls_path", "")
    return Settings(
        selection,
        folder,
        decimals,
        section.get("is_online", False),
        section.get("nfs_path", ""),
        section.get("host", ""),
        section.get("port", -1),
        # The default that 8.1.1 documents; a folder without keys means none.
        "" if tls == "./" and not any(Path(tls, name).is_file() for name in TLS_FILES) else tls,
        tuple(section.get("rank_list", [0])),
    )


def _names(value: Any, field: str, mistakes: list[str]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        mistakes.append(f'"{field}": found {value!r}; allowed: a list of names of APIs')
        return []
    groups = shipped_list("msprobe.capture.torch")
    known = {name for group in _GROUPS for name in groups.get(group, ())}
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            mistakes.append(
                f'"{field}": {name!r} is no API of the list (support_wrap_ops.yaml: {", ".join(_GROUPS)}){hint}'
            )
    return value


def _check_online(section: dict[str, Any], mistakes: list[str]) -> None:
    online = section.get("is_online", False)
    if not isinstance(online, bool):
        mistakes.append(f'"is_online": found {online!r}; allowed: true or false')
    port = section.get("port", -1)
    if isinstance(port, bool) or not isinstance(port, int) or (port != -1 and not 1 <= port <= 65535):
        mistakes.append(f'"port": found {port!r}; allowed: a whole number from 1 to 65535')
    host = section.get("host", "")
    if not isinstance(host, str) or (host and not _is_host(host)):
        mistakes.append(f'"host": found {host!r}; allowed: an IPv4 address or the name of a host')
    ranks = section.get("rank_list", [0])
    if not isinstance(ranks, list) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in ranks):
        mistakes.append(f'"rank_list": found {ranks!r}; allowed: a list of ranks, whole numbers of 0 or more')
    shared = section.get("nfs_path", "")
    if online is True and not shared and not (host and port != -1):
        mistakes.append('"is_online": true needs "host" and "port" to listen at, or "nfs_path", a shared folder')
    if not isinstance(shared, str) or (shared and not Path(shared).is_dir()):
        mistakes.append(f'"nfs_path": {shared!r} is no existing folder')
    tls = section.get("tls_path", "")
    if not isinstance(tls, str):
        mistakes.append(f'"tls_path": found {tls!r}; allowed: a folder, or "" for none')
    elif tls and tls != "./":
        missing = [name for name in TLS_FILES if not (Path(tls) / name).is_file()]
        if missing:
            mistakes.append(f'"tls_path": {tls!r} lacks {", ".join(missing)}; it needs {", ".join(TLS_FILES)}')


def _is_host(host: str) -> bool:
    parts = host.split(".")
    if all(part.isdigit() for part in parts):
        return len(parts) == 4 and all(int(part) <= 255 for part in parts)
    return _HOST_NAME.fullmatch(host) is not None
