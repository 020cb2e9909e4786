"""The models of a recording, and what their modules are called in entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from msprobe import log
from msprobe.capture.torch.user_modules import is_scripted, named_modules_inside


class Models:
    """What was given to start: let go of when recording stops, as the user may be done with it."""

    def __init__(self) -> None:
        # A Module, several, or None.
        self.given: Any = None
        # What the names of the parameters of each begin with, if it is not the model's index.
        self.leads: Sequence[str] | None = None

    def give(self, given: Any, leads: Sequence[str] | None = None) -> None:
        """These are to be recorded next."""
        self.given, self.leads = given, leads

    def forget(self) -> None:
        """Nothing is recorded."""
        self.given = None


def name_modules(model: Any, record_root: bool) -> list[tuple[str, nn.Module]]:
    """The modules to watch and their entry names: ``Module.{[index.]path}.{Class}``."""
    several = isinstance(model, (list, tuple))
    named: list[tuple[str, nn.Module]] = []
    for index, root in enumerate(model if several else [model]):
        lead = f"{index}." if several else ""
        children = named_modules_inside(root)
        if record_root or not children or is_scripted(root):
            if not children and not record_root and not is_scripted(root):
                log.once(
                    ("leaf", type(root).__name__),
                    "warning",
                    f"The model is a single {type(root).__name__} without modules inside; it is recorded itself.",
                )
            named.append((f"Module.{lead}root.{type(root).__name__}", root))
        named += [(f"Module.{lead}{path}.{type(module).__name__}", module) for path, module in children]
    return named


def roots_besides(model: Any, named: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The models themselves and their names, as far as they are not among ``named``: listeners may want them."""
    several = isinstance(model, (list, tuple))
    known = {id(module) for _, module in named}
    return [
        (f"Module.{f'{index}.' if several else ''}root.{type(root).__name__}", root)
        for index, root in enumerate(model if several else [model])
        if isinstance(root, nn.Module) and id(root) not in known
    ]
