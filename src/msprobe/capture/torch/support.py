"""What of the configuration the recorder of PyTorch can do."""

from __future__ import annotations

from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError, NotAvailableError


def check_settings(settings: Settings) -> None:
    """Raise NotAvailableError or InvalidInputError for what is there for MindSpore only."""
    if settings.task == "exception_dump":
        raise NotAvailableError(
            'task: "exception_dump" is there for MindSpore; for PyTorch choose "statistics", "tensor", "structure",'
            ' "overflow_check" or "nan_check".'
        )
    if settings.summary_kinds:
        kinds = ", ".join(f'"{kind}"' for kind in settings.summary_kinds)
        raise InvalidInputError(
            f'summary_mode: found [{kinds}]; a list is for MindSpore; for PyTorch choose "statistics", "md5", "xor" or'
            ' "xxh3".'
        )
