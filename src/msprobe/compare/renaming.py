"""The name of the same record under another stem, or in the other direction; see :mod:`entry_names`."""

from __future__ import annotations

from msprobe.compare.entry_names import EntryName


def with_stem(name: EntryName, stem: str) -> str:
    """The whole name of a record that is called ``stem`` instead.

    >>> from msprobe.compare.entry_names import read_name
    >>> with_stem(read_name("Cell.fc.Dense.backward.1"), "Module.fc.Linear")
    'Module.fc.Linear.backward.1'
    """
    return _written(name._replace(stem=stem))


def in_direction(name: EntryName, direction: str) -> str:
    """The name of the same call forward or backward.

    >>> from msprobe.compare.entry_names import read_name
    >>> in_direction(read_name("Torch.tanh.3.backward"), "forward")
    'Torch.tanh.3.forward'
    """
    return _written(name._replace(direction=direction))


def _written(name: EntryName) -> str:
    if name.kind == "module":
        return f"{name.stem}.{name.direction}.{name.number}"
    if name.kind == "parameters":
        return f"{name.stem}.parameters_grad" + ("" if name.number is None else f".{name.number}")
    if name.kind == "api":
        return f"{name.stem}.{name.number}.{name.direction}"
    if name.kind == "optimizer":
        return f"{name.stem}.{name.number}.forward"
    return f"{name.stem}.{name.number}.debug" if name.kind == "saved" else name.stem
