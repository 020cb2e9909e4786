"""What a pack has without a training: environment variables, packages, hyper-parameters of files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.environment.configuration import environment_variables, packages
from msprobe.environment.configuration.pack import DYNAMIC, ENVIRONMENT, PACKAGES, STATIC, as_json
from msprobe.environment.configuration.secrets import redacted_settings
from msprobe.environment.hyperparameters import reading


def static_entries(
    environ: Mapping[str, str], paths: Sequence[str | os.PathLike[str]] = (), keep_secrets: bool = False
) -> dict[str, bytes]:
    """The entries of a pack: ``env``, ``pip``, and the hyper-parameters of the files if there are any.

    ``environ`` is what the program was started with. ``keep_secrets``: nothing is hidden. Raises InvalidInputError.
    """
    entries = {
        ENVIRONMENT: as_json(environment_variables.collected(environ, keep_secrets)),
        PACKAGES: packages.as_text(packages.collected(environ)),
    }
    if paths:
        settings = reading.read(list(paths))
        entries[STATIC] = as_json(settings if keep_secrets else redacted_settings(settings))
    return entries


def dynamic_entry(settings: Mapping[str, Any]) -> dict[str, bytes]:
    """The entry with the hyper-parameters of the running program; what JSON cannot hold becomes null."""
    return {DYNAMIC: as_json(redacted_settings(settings))}


def contents(entries: Mapping[str, bytes]) -> list[str]:
    """What entries hold, in words: ``70 environment variables (3 hidden)``."""
    variables = json.loads(entries[ENVIRONMENT])
    hidden = sum("***" in value for value in variables.values())
    counted = [f"{len(variables)} environment variables" + (f" ({hidden} hidden)" if hidden else "")]
    counted.append(f"{entries[PACKAGES].count(chr(10).encode())} versions")
    if STATIC in entries:
        counted.append(f"{len(json.loads(entries[STATIC]))} hyper-parameters")
    return counted
