"""The parts of the C extension, and how to do without one of them: what does each save?"""

from __future__ import annotations

#: Part -> what is put in its place in :mod:`msprobe.capture.native`, by name: what is there without the extension.
#: "all" is measured by the environment variable MSPROBE_NATIVE=0.
PARTS: dict[str, tuple[str, ...]] = {
    "memo": ("Memo",),
    "numbers": ("numbers",),
    "encode": ("encode",),
    "around": ("Around",),
    "write_files": ("write_files",),
    "gather": ("gather",),
    "memory": ("memory",),
    "pattern": ("pattern", "is_dense"),
}


def leave_out(parts: list[str]) -> None:
    """Have this process record as if these parts had not been built. Before anything of the recorder is imported."""
    from msprobe.capture import native

    for part in parts:
        for name in PARTS[part]:
            setattr(native, name, native.PYTHON[name])
