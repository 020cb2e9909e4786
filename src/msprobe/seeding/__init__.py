"""``seed_all``: the same random numbers in every run; what its versions for the frameworks do alike."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.messages import joined, said

MAX_SEED = 2**32 - 1


def check(seed: Any, **flags: Any) -> None:
    """Raises InvalidInputError, with all mistakes: ``seed`` is an int from 0 to 2**32 - 1, flags are bools."""
    mistakes = []
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        mistakes.append(said("seed-wrong", MAX_SEED, seed))
    mistakes += [said("flag-wrong", name, value) for name, value in flags.items() if not isinstance(value, bool)]
    if mistakes:
        raise InvalidInputError(said("seed-arguments-wrong", joined("; ", mistakes)))


def seed_python(seed: int, is_deterministic: bool) -> None:
    """Seed ``random`` and numpy's global generator, and set what processes that are started from here on go by."""
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(is_deterministic)
    random.seed(seed)
    np.random.seed(seed)


def report(message: str, seed: int, is_deterministic: bool, drops_nothing: bool) -> None:
    """Log what was done, with the framework's own ``message``."""
    log.info(
        said(
            message,
            seed,
            said("switched-on" if is_deterministic else "switched-off"),
            said("dropout-removed") if drops_nothing else said("dropout-kept"),
        )
    )
