"""Cells of mixed precision: while one runs, MindSpore rounds what is calculated, whoever asks for it."""

from __future__ import annotations

import functools
from typing import Any

from msprobe.capture.mindspore.graphs.executor import pynative_executor
from msprobe.capture.mindspore.patches import ExecutorWatch, Replacement
from msprobe.capture.mindspore.tensors import MindSporeTensors


class MixedPrecision(ExecutorWatch):
    """Notices that there are such cells, from the executor that is notified of them."""

    def __init__(self, tensors: MindSporeTensors) -> None:
        self.tensors = tensors
        executor = pynative_executor()
        kind = type(executor)
        original = vars(kind).get("set_mixed_precision_type")
        if original is None:
            # Nothing says: every copy is looked at.
            tensors.is_mixed = True
            return

        @functools.wraps(original)
        def noticed(*args: Any, **kwargs: Any) -> Any:
            tensors.is_mixed = True
            return original(*args, **kwargs)

        self._replacement = Replacement(kind, "set_mixed_precision_type", noticed)
