"""What of the configuration the recorder of MindSpore can do."""

from __future__ import annotations

from msprobe import log
from msprobe.capture.mindspore.kernels import is_there
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError, NotAvailableError


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


def check_graph_settings(settings: Settings) -> None:
    """Raise InvalidInputError for what cannot be recorded of a static graph; all mistakes in one message."""
    dynamic = "use the dynamic graph: mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
    if settings.level in ("L1", "mix"):
        raise InvalidInputError(
            f"start(): level {settings.level} records calls, which a static graph (GRAPH_MODE) does not have; choose"
            f" level L0, or {dynamic}."
        )
    mistakes = []
    if settings.level == "L2":
        if settings.task not in ("statistics", "tensor"):
            raise InvalidInputError(
                'start(): of the kernels of a static graph (GRAPH_MODE) "statistics" or "tensor" are dumped; task is'
                f' "{settings.task}".'
            )
        return
    if settings.task not in ("statistics", "tensor"):
        mistakes.append(f'task is "{settings.task}", it must be "statistics" or "tensor"')
    if settings.ranks:
        mistakes.append("rank must be []: all ranks compile the same graph")
    if settings.scope:
        mistakes.append("scope must be []")
    if settings.api_list:
        mistakes.append("list must be []")
    if settings.summary_mode == "md5":
        mistakes.append('summary_mode is "md5", it must be "statistics"')
    if not (settings.input and settings.output):
        mistakes.append('data_mode must be ["all"], ["forward"] or ["backward"]')
    if mistakes:
        raise InvalidInputError(
            f"start(): of a static graph (GRAPH_MODE) cells are recorded whole: {'; '.join(mistakes)}."
        )
