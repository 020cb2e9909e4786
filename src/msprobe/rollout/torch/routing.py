"""Which experts each token was given to: by the record of the engine, and by a forward pass of the trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from msprobe.messages import said
from msprobe.rollout.torch.experts import chosen, is_router, router_of
from msprobe.rollout.torch.measuring import NotKnown
from msprobe.rollout.torch.trainer import Trainer


class ExpertChoices:
    """The engine's: (request, position) -> path of the experts -> numbers of those chosen."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._of: dict[tuple[str, int], dict[str, tuple[int, ...]]] = {}
        self._logits: dict[str, Any] = {}

    def note(self, path: str, results: Sequence[Any], requests: Sequence[str], positions: Any) -> None:
        """Keep the logits of a call of a router, and its choice for each row."""
        router = self.trainer.module(path)
        logits = next((result for result in results if result is not None), None)
        if router is None or logits is None or not is_router(router):
            return
        name = self._experts(path)
        self._logits[name] = logits
        if positions is None:
            return
        places = chosen(router, logits)
        for row, (request, position) in enumerate(zip(requests, positions.tolist(), strict=False)):
            self._of.setdefault((request, position), {})[name] = tuple(places[row].tolist())

    def _experts(self, path: str) -> str:
        """The trainer's path of the experts that a router chooses for."""
        return self.trainer.named_path(f"{path.rpartition('.')[0]}.experts")

    def logits(self, path: str, tensors: Sequence[Any]) -> Any:
        """The router's logits for a call of experts: its own input, or what the router beside gave last."""
        experts = router_of(self.trainer, path).weight.shape[0]
        for tensor in (self._logits.get(self.trainer.named_path(path)), *tensors[1:]):
            if tensor is not None and tensor.shape == (len(tensors[0]), experts):
                return tensor
        raise NotKnown(said("router-logits-missing"))

    @contextmanager
    def trainer_choices(self) -> Iterator[dict[str, Any]]:
        """Path of the experts -> the trainer's choice [tokens, k] of the forward pass that runs inside the block."""
        choices: dict[str, Any] = {}
        handles = []
        for path, module in self.trainer.modules.items():
            if not is_router(module) or not self._of:
                continue
            name = self._experts(path)

            def keep(module: Any, given: Any, answer: Any, name: str = name) -> None:
                logits = answer[0] if isinstance(answer, tuple) else answer
                choices[name] = chosen(module, logits.reshape(-1, logits.shape[-1]))

            handles.append(module.register_forward_hook(keep))
        try:
            yield choices
        finally:
            for handle in handles:
                handle.remove()

    def flipped(self, request: str, first: int, count: int, theirs: dict[str, Any]) -> Any:
        """[count, 1]: 1 where a router of the trainer chose others than the engine's; None where nothing is known."""
        done = np.zeros((count, 1), np.int64)
        known = False
        for place in range(count):
            for path, mine in self._of.get((request, first + place), {}).items():
                if path in theirs and first + place < len(theirs[path]):
                    known = True
                    done[place] |= tuple(theirs[path][first + place].tolist()) != mine
        return done if known else None
