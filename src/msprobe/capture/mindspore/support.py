"""What of the configuration the recorder of MindSpore can do, here and now."""

from __future__ import annotations

from msprobe import log
from msprobe.capture.mindspore.graphs.execution import Backend, backend, calls_python, device, jit_level
from msprobe.capture.mindspore.kernels import is_there
from msprobe.config.settings import KERNEL_KINDS, TENSOR_KINDS, Settings, quoted
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import joined, said
from msprobe.statistics_table import NAMES


def check_settings(settings: Settings) -> None:
    """Raise NotAvailableError or InvalidInputError for what is not there for MindSpore, whatever way it runs; one
    warning names what has no effect.
    """
    if backend() == "dynamic":
        _check_kernels(settings)
    if settings.jitter:
        raise NotAvailableError(said("jitter-for-mindspore"))
    counted = [kind for kind in settings.summary_kinds if kind not in TENSOR_KINDS]
    if counted and settings.level != "L2":
        raise InvalidInputError(
            said("kernel-statistics-at-level", quoted(counted), settings.level, quoted(TENSOR_KINDS))
        )
    _warn_without_effect(
        "For MindSpore",
        enable_dataloader=settings.enable_dataloader,
        buffers=settings.buffers,
        risk_level=settings.risk_level is not None,
        compile=settings.compile != "boundary",
        graphs=settings.graphs != "skip",
        custom_api_file=settings.custom_api_file is not None,
    )


def check_dynamic_settings(settings: Settings) -> None:
    """The same for the dynamic graph."""
    _check_kernels(settings)
    counted = [kind for kind in settings.summary_kinds if kind not in TENSOR_KINDS]
    if counted:
        raise InvalidInputError(said("kernel-statistics-at-start", quoted(counted), quoted(TENSOR_KINDS)))
    _warn_without_effect(
        said("in-dynamic-graph"),
        async_dump=settings.async_dump,
        device=settings.device != "host",
        file_format=settings.file_format == "bin",
        check_mode=settings.check_mode != "all",
    )


def check_graph_settings(settings: Settings) -> None:
    """Raise InvalidInputError or NotAvailableError for what cannot be recorded of a static graph; all mistakes in one
    message.
    """
    compiler = backend()
    if settings.level in ("L1", "mix"):
        raise InvalidInputError(said("level-of-static-graph", settings.level, said("use-dynamic-graph")))
    if jit_level() == "O2" and compiler != "ge":
        log.once(
            "O2",
            "warning",
            said("o2-only-on-ascend", device()),
        )
    if settings.level == "L0" and compiler != "ge" and not calls_python():
        raise NotAvailableError(said("l0-of-static-graph", device(), said("use-dynamic-graph")))
    mistakes = _kernel_mistakes(settings, compiler) if settings.level == "L2" else _cell_mistakes(settings, compiler)
    if mistakes:
        what = said("kernels-as-mindspore-can") if settings.level == "L2" else said("cells-whole")
        raise InvalidInputError(said("start-of-static-graph", what, joined("; ", mistakes)))


def _check_kernels(settings: Settings) -> None:
    if settings.level == "L2" and not is_there():
        raise NotAvailableError(said("l2-not-reported"))


def _cell_mistakes(settings: Settings, compiler: Backend) -> list[str]:
    mistakes: list[str] = []
    if compiler == "ge":
        mistakes.append(said("l0-with-o2"))
    if settings.task not in ("statistics", "tensor"):
        mistakes.append(said("graph-task-of-cells", settings.task))
    if settings.ranks:
        mistakes.append(said("graph-rank-empty"))
    if settings.scope:
        mistakes.append(said("graph-scope-empty"))
    if settings.api_list:
        mistakes.append(said("graph-list-empty"))
    if settings.summary_mode != "statistics":
        mistakes.append(said("graph-summary-of-cells", settings.summary_mode, quoted(NAMES)))
    if not (settings.input and settings.output):
        mistakes.append(said("graph-data-mode-of-cells"))
    _warn_without_effect(
        said("for-cells-of-static-graph"), device=settings.device != "host", file_format=settings.file_format == "bin"
    )
    return mistakes


def _kernel_mistakes(settings: Settings, compiler: Backend) -> list[str]:
    mistakes: list[str] = []
    if settings.task == "exception_dump" and device() == "CPU":
        raise NotAvailableError(said("exception-dump-on-cpu", said("use-dynamic-graph")))
    if settings.task == "overflow_check" and compiler != "ge":
        mistakes.append(said("graph-overflow-needs-o2", jit_level() or "O0", device()))
    elif settings.task not in ("statistics", "tensor", "overflow_check", "exception_dump"):
        mistakes.append(said("graph-task-of-kernels", settings.task))
    if not (settings.forward and settings.backward):
        mistakes.append(said("graph-data-mode-of-kernels"))
    if settings.summary_mode in ("xor", "xxh3"):
        mistakes.append(said("graph-summary-of-kernels", settings.summary_mode))
    unknown = [kind for kind in settings.summary_kinds if kind not in KERNEL_KINDS]
    if unknown:
        mistakes.append(said("graph-summary-unknown", quoted(unknown)))
    if not mistakes:
        _warn_of_kernels(settings, compiler)
    return mistakes


def _warn_of_kernels(settings: Settings, compiler: Backend) -> None:
    as_whole = compiler == "ge"
    calculated = settings.task == "statistics" and not as_whole and device() != "CPU"
    _warn_without_effect(
        said("for-kernels-of-static-graph"),
        scope=bool(settings.scope),
        tensor_list=bool(settings.tensor_list),
        device=settings.device != "host" and not calculated,
        file_format=settings.file_format == "bin" and not as_whole,
        check_mode=settings.check_mode != "all" and settings.task != "overflow_check",
        step=settings.task == "overflow_check" and bool(settings.steps),
    )
    kinds = [name for name in settings.api_list if "/" not in name and not name.startswith("name-regex")]
    if kinds and as_whole:
        log.once(
            "kinds of kernels",
            "warning",
            said("kernel-list-by-full-name", quoted(kinds)),
        )


def _warn_without_effect(where: str, **without_effect: bool) -> None:
    """One line that names the fields that were given and do nothing here."""
    names = [name for name, is_given in without_effect.items() if is_given]
    if names:
        log.once(("without effect", where), "warning", said("fields-without-effect", where, ", ".join(names)))
