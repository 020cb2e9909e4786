"""The names that scripts import: ``from msprobe.pytorch import PrecisionDebugger``."""

from __future__ import annotations

from typing import Any, NoReturn

from msprobe.capture.memory import Memory
from msprobe.messages import said
from msprobe.report.compare_functions import compare, compare_distributed

try:
    from msprobe.capture.torch.debugger import PrecisionDebugger
    from msprobe.capture.torch.listening import Listening
    from msprobe.capture.torch.modules.single_module import module_dump, module_dump_end
    from msprobe.monitor.torch.trainer import TrainerMon
    from msprobe.seeding.torch import seed_all
except ModuleNotFoundError as problem:
    if (problem.name or "").partition(".")[0] != "torch":
        raise
    # What works on files does without; whoever asks for one of the others is answered below.
    _has_torch = False
else:
    _has_torch = True

__all__ = [
    "Listening",
    "Memory",
    "PrecisionDebugger",
    "TrainerMon",
    "check_api",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "seed_all",
]

# Names that scripts of other versions import from here, and what does their work.
_NOT_YET = {
    "random_save": "listing calls of random functions (packs of ConfigChecker list them: docs/config_check.md)",
    "set_fx_dump_config": "dumping FX graphs",
    "set_ge_dump_config": "dumping GE graphs",
    "acl_save": "saving tensors inside an ACL graph",
    "AclGraphDumper": "dumping ACL graphs",
}


def __getattr__(name: str) -> Any:
    if name == "check_api":
        _demand_torch(name)
        from msprobe.precheck.torch.check_api import check_api

        return check_api
    if name in __all__:
        _demand_torch(name)
    work = _NOT_YET.get(name)
    if work is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _NotYet(name, work)


def _demand_torch(name: str) -> None:
    """Raises NotAvailableError where PyTorch is not installed."""
    if not _has_torch:
        from msprobe.errors import NotAvailableError

        raise NotAvailableError(said("torch-missing", name))


class _NotYet:
    """Stands for a tool of a later version: importing the name works, using it says so."""

    def __init__(self, name: str, work: str) -> None:
        self._name = name
        self._work = work

    def _refuse(self) -> NoReturn:
        from msprobe.errors import NotAvailableError

        raise NotAvailableError(said("torch-name-not-available", self._name, self._work))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise NotAvailableError."""
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        """Raise NotAvailableError, except for the names that Python itself asks for."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()
