"""What of the configuration the recorder of MindSpore can do."""

from __future__ import annotations

from msprobe import log
from msprobe.capture.mindspore.kernels import is_there
from msprobe.config.settings import Settings
from msprobe.errors import NotAvailableError


def check_settings(settings: Settings) -> None:
    """Raise NotAvailableError for what is not there for MindSpore; one warning names what has no effect."""
    if settings.level == "L2" and not is_there():
        raise NotAvailableError(
            'level: "L2" records kernels, of which this MindSpore does not tell (mindspore.utils.MsDispatchMode, since'
            ' 2.10); choose "L0", "L1", "mix" or "debug".'
        )
    without_effect = [
        name
        for name, is_given in (
            ("enable_dataloader", settings.enable_dataloader),
            ("optimizer", settings.optimizer),
            ("buffers", settings.buffers),
            ("risk_level", settings.risk_level is not None),
            ("compile", settings.compile != "boundary"),
        )
        if is_given
    ]
    if without_effect:
        log.warning(f"For MindSpore these fields have no effect: {', '.join(without_effect)}.")
