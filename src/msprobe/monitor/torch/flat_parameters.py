"""Parameters that FullyShardedDataParallel (FSDP1) keeps as pieces of flat ones.

Read from the attributes of its handles, which are private: where one is missing, as in another release of torch,
pieces are measured as they lie in this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.torch.modules.user_modules import modules
from msprobe.guard import pass_on
from msprobe.messages import said


@dataclass(frozen=True)
class WholeParameter:
    """Where a parameter is whole: ``groups`` of ranks that have its pieces, and its ``shape`` there."""

    groups: tuple[Any, ...]
    shape: tuple[int, ...]


class FlatParameters:
    """The flat parameters of models, and what of them each of the models' own parameters is."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        #: id(parameter) -> where it is whole.
        self.pieces: dict[int, WholeParameter] = {}
        # Each flat parameter with the parameters in it: parameter, begin and end in it, shape.
        self._parts: list[tuple[torch.Tensor, list[tuple[torch.Tensor, int, int, tuple[int, ...]]]]] = []
        self._handles: list[Any] = []
        try:
            for model in models:
                for module in modules(model):
                    if type(module).__name__ == "FullyShardedDataParallel":
                        self._add(module)
        except (AttributeError, TypeError, ValueError) as error:
            log.warning(said("fsdp-parameters-unreadable", error))

    def _add(self, module: Any) -> None:
        handle = module._handle
        if handle is None:
            return
        flat = handle.flat_param
        groups = (handle.process_group,) if handle.uses_sharded_strategy else ()
        if flat._params is None:
            if groups:
                self.pieces[id(flat)] = WholeParameter(groups, (sum(flat._numels_with_padding),))
            return
        shapes, parameters, begin = iter(flat._shapes), iter(flat._params), 0
        parts = []
        for length, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask, strict=True):
            if not is_padding:
                parameter, shape = next(parameters), tuple(next(shapes))
                parts.append((parameter, begin, begin + length, shape))
                if groups:
                    self.pieces[id(parameter)] = WholeParameter(groups, shape)
            begin += length
        self._parts.append((flat, parts))

    def attach(self, show: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        """Call ``show(parameter, gradient)`` when a backward pass has brought the whole gradient of one."""
        for flat, parts in [] if self._handles else self._parts:
            if flat.requires_grad:
                hook = _Hook(parts, show)
                self._handles.append(flat.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def detach(self) -> None:
        """No more."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()


class _Hook:
    """What torch calls for one flat parameter."""

    def __init__(
        self,
        parts: list[tuple[torch.Tensor, int, int, tuple[int, ...]]],
        show: Callable[[torch.Tensor, torch.Tensor], None],
    ) -> None:
        self._parts = parts
        self._show = show

    def __call__(self, flat: torch.Tensor) -> None:
        try:
            for parameter, gradient in self._slices(flat.grad):
                self._show(parameter, gradient)
        except Exception as error:
            pass_on(error)
            log.once(("monitor", "flat"), "error", said("fsdp-gradients-not-measured", error))

    def _slices(self, gradient: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if gradient is None or gradient.dim() != 1 or gradient.numel() < self._parts[-1][2]:
            return
        with torch.no_grad():
            for parameter, begin, end, shape in self._parts:
                yield parameter, gradient[begin:end].view(shape)
