"""The parameters of a model that each optimizer of the program updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from msprobe.capture.identity import IdentityMap
from msprobe.capture.torch.optimizers.optimizer_cycle import all_optimizers, is_hooked, parameters_of

Named = Sequence[tuple[str, torch.Tensor]]


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient that an optimizer uses: ``main_grad`` where a wrapper lets gradients gather there, as Megatron does,
    else ``grad``.
    """
    gradient: torch.Tensor | None = getattr(parameter, "main_grad", None)
    return parameter.grad if gradient is None else gradient


class UpdatedParameters:
    """Knows by their places which parameters of a model an optimizer updates.

    ``read``: gives names and parameters, in their order. It is asked again when an optimizer steps that updates none of
    them: wrapping the model may have replaced them.
    """

    def __init__(self, read: Callable[[], Named]) -> None:
        self._read = read
        # By optimizer, and how many parameters it had in its groups then.
        self._known: IdentityMap[tuple[tuple[int, ...], Sequence[int]]] = IdentityMap()
        self._learn()

    def places(self, optimizer: torch.optim.Optimizer) -> Sequence[int]:
        """The places of those that ``optimizer`` updates, which steps. All, if the optimizers of the program update
        none: they have copies (float32 ones beside half ones).
        """
        is_new = optimizer not in self._known
        places = self._places_of(optimizer)
        if not places and is_new:
            self._learn()
            places = self._places_of(optimizer)
        return places or self._all_if_copied()

    def trained_by(self, optimizer: torch.optim.Optimizer) -> frozenset[int]:
        """The same of those that are trained."""
        return frozenset(place for place in self.places(optimizer) if self.named[place][1].requires_grad)

    def optimizers(self) -> Iterator[torch.optim.Optimizer]:
        """The optimizers that exist and update one."""
        for optimizer in all_optimizers():
            if is_hooked(optimizer) and self._places_of(optimizer):
                yield optimizer

    def _learn(self) -> None:
        self.named = self._read()
        self._places = {id(parameter): place for place, (_, parameter) in enumerate(self.named)}
        self._known.clear()

    def _places_of(self, optimizer: torch.optim.Optimizer) -> Sequence[int]:
        sizes = tuple(len(group["params"]) for group in optimizer.param_groups)
        known = self._known.get(optimizer)
        if known is not None and known[0] == sizes:
            return known[1]
        ids = {id(parameter) for parameter in parameters_of(optimizer)}
        places = sorted(self._places[identity] for identity in ids if identity in self._places)
        self._known[optimizer] = (sizes, places)
        return places

    def _all_if_copied(self) -> Sequence[int]:
        if any(places for _, places in self._known.values()) or next(self.optimizers(), None) is not None:
            return ()
        return range(len(self.named))
