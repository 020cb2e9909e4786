"""What of the configuration the recorder of PyTorch can do."""

from __future__ import annotations

from msprobe.config.settings import TENSOR_KINDS, Settings, quoted
from msprobe.errors import InvalidInputError, NotAvailableError


def check_settings(settings: Settings) -> None:
    """Raise NotAvailableError or InvalidInputError for what is there for MindSpore only."""
    if settings.task == "exception_dump":
        raise NotAvailableError(
            'task: "exception_dump" is there for MindSpore; for PyTorch choose "statistics", "tensor", "structure",'
            ' "overflow_check" or "nan_check".'
        )
    unknown = [kind for kind in settings.summary_kinds if kind not in TENSOR_KINDS]
    if unknown:
        raise InvalidInputError(
            f"summary_mode: {quoted(unknown)} is there for the kernels of MindSpore; for PyTorch a list may have"
            f" {quoted(TENSOR_KINDS)}."
        )
