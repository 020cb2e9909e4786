"""The first file of a process that msprobe starts: ``python first.py MODULE ARGUMENT ...`` calls ``main`` of a module.

Before anything is imported, the entry that Python has put in front of the places of modules is taken away: with a file,
its folder; it would be the working directory with ``-m`` or ``-c``. ``-P`` does so from Python 3.11 on. msprobe
is the package that this file lies in, also in the Python of a different environment.
"""

# Without `from __future__ import annotations`: it imports a module, as any other import does.
import sys

if not getattr(sys.flags, "safe_path", bool(sys.flags.isolated)):
    # By the next one, which keeps the order: `msprobe run` puts the folder of the user's script there.
    sys.path[0] = sys.path[1]


def _package() -> None:
    """The msprobe of this file, wherever the places of modules lead."""
    import importlib.util
    import os

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    place = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("msprobe", place, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["msprobe"] = package
    spec.loader.exec_module(package)


def _run() -> int:
    """Call ``main`` of the module that is named."""
    import importlib

    _package()
    module = sys.argv[1]
    del sys.argv[1]
    if not module.startswith("msprobe."):
        sys.exit("first.py starts modules of msprobe alone")
    status: int = importlib.import_module(module).main()
    return status


if __name__ == "__main__":
    sys.exit(_run())
