"""msprobe names the first call in which two neural-network trainings differ, and why.

    import msprobe

    verdict = msprobe.compare("runs/new/dump", "runs/old/dump")
    verdict.findings[0]
    msprobe.check("runs/new/dump")
    msprobe.open("runs/new/dump")

Importing this package loads nothing but itself: each of these names, and each sub-package, is loaded where it is used
first. To record a training: ``from msprobe.pytorch import PrecisionDebugger``.
"""

# Nothing is imported here, `__future__` and `typing` neither: `python -m msprobe` runs this file while the working
# directory is still the first place of modules.
TYPE_CHECKING = False  # as type checkers know it
if TYPE_CHECKING:
    from msprobe.results import CheckedRun as CheckedRun
    from msprobe.results import Comparison as Comparison
    from msprobe.results import Finding as Finding
    from msprobe.results import GradComparator as GradComparator
    from msprobe.results import Run as Run
    from msprobe.results import check as check
    from msprobe.results import compare as compare
    from msprobe.results import open_run as open

# The one place of the version: the build and `msprobe --version` read it here.
__version__ = "0.2.0"

__all__ = ["CheckedRun", "Comparison", "Finding", "GradComparator", "Run", "__version__", "check", "compare", "open"]

# Name here -> name in msprobe.results.
_RESULTS = {
    "CheckedRun": "CheckedRun",
    "Comparison": "Comparison",
    "Finding": "Finding",
    "GradComparator": "GradComparator",
    "Run": "Run",
    "check": "check",
    "compare": "compare",
    "open": "open_run",
}


def __getattr__(name: str) -> object:
    if name not in _RESULTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name == "compare":
        # The sub-package of this name can be called; it would take the place of a function as soon as it is imported.
        return importlib.import_module("msprobe.compare")
    result: object = getattr(importlib.import_module("msprobe.results"), _RESULTS[name])
    return result


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _look_for_neighbour() -> None:
    """mindstudio-probe installs its files into this folder: one that is not ours says so, for microseconds."""
    import sys  # is loaded, as is os: neither is searched for

    os = sys.modules.get("os")
    if os is not None and sys.argv[:1] != ["-m"] and os.path.isfile(os.path.join(__path__[0], "msprobe.py")):
        from msprobe.distribution import warn_on_import

        warn_on_import()


_look_for_neighbour()
