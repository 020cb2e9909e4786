"""Data of the trainings with trainers of other packages."""

from __future__ import annotations

import torch


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sentences of eight random words."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": words, "labels": words}
