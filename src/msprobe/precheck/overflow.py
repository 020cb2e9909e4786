"""Is an overflow of a recorded call also there on the CPU? What the checks of all frameworks do alike."""

from __future__ import annotations

import os
import traceback
from typing import ClassVar

from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.precheck.job import Answer

#: What a check for overflow says of a call: on neither side, on both, on one of them; or it was not run.
FINITE, NORMAL, ABNORMAL, SKIPPED = "finite", "normal", "abnormal", "SKIP"


class OverflowRunner:
    """Answers each call with one line, as its note, which is that of 8.1.1."""

    #: Errors whose text alone says why a call was not checked.
    explained: ClassVar[tuple[type[Exception], ...]]

    def run(self, key: str) -> Answer:
        """Compare both sides of one call."""
        try:
            on_device, on_cpu = self.overflows(key)
        except self.explained as problem:
            return _not_checked(key, problem)
        except MsprobeError as problem:
            return _not_checked(key, problem.message)
        except Exception as problem:
            return _not_checked(key, raised_text(problem))
        if on_device != on_cpu:
            return Answer(key, [key, ABNORMAL], notes=[said("overflow-is-abnormal", key)])
        # A call without any is normal, too.
        return Answer(key, [key, NORMAL if on_cpu else FINITE], notes=[said("overflow-is-normal", key)])

    def overflows(self, key: str) -> tuple[bool, bool]:
        """Whether the call has an infinity or NaN among its results on the device, and on the CPU."""
        raise NotImplementedError


def _not_checked(key: str, why: object) -> Answer:
    return Answer(key, [key, SKIPPED], notes=[said("overflow-not-checked", key, why)])


def raised_text(problem: Exception) -> str:
    """The class and the text of what a call raised, and the line of ours where there is no text."""
    text = " ".join(str(problem).split())[:500]
    if text:
        return f"{type(problem).__name__}: {text}"
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__} in {os.path.basename(last.filename)}:{last.lineno}"
