"""The full name of a parameter or buffer: the path of its module and its own name, as ``named_parameters`` gives it."""

from __future__ import annotations

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.steps.timeline import Event


def parameter_name(event: Event, slot: str) -> str:
    """What a slot of a module's record (``parameters.weight``, ``buffers.running_mean``) or of the record of its
    gradients (``weight.0``) holds: ``blocks.0.norm.weight``; of the model itself just ``weight``.
    """
    return joined(event.parts.path, own_name(event, slot))


def plain_name(event: Event, slot: str) -> str:
    """The same without the names of wrappers (``module``, ``_orig_mod``, ...)."""
    return joined(plain_path(event.parts.path), own_name(event, slot))


def own_name(event: Event, slot: str) -> str:
    """The name of a parameter in its module."""
    return slot.partition(".")[0 if event.direction == "gradient" else 2]


def joined(path: str, name: str) -> str:
    """A name in the module at ``path``, which is empty for the model itself."""
    return f"{path}.{name}" if path else name
