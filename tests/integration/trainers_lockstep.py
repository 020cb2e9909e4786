"""Trains a tiny model with Lightning, to be run against itself: accumulated gradients, closures, validation.

Arguments: the bugs that it has.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
from torch import nn

BUGS = sys.argv[1:]


class Network(lightning.LightningModule):
    """Three layers that no forward pass of the model is around."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)

    def training_step(self, batch: Any, at: int) -> torch.Tensor:
        """The loss."""
        x = self.first(batch[0])
        x = nn.functional.elu(x) if "elu" in BUGS else torch.relu(x)
        x = torch.tanh(self.drop(x) * (1.1 if "scale" in BUGS else 1.0))
        return nn.functional.mse_loss(self.last(x), batch[1])

    def validation_step(self, batch: Any, at: int) -> None:
        """A pass without gradients."""
        self.last(self.drop(self.first(batch[0])))

    def configure_optimizers(self) -> Any:
        """An optimizer and its schedule."""
        optimizer = torch.optim.SGD(self.parameters(), 0.2 if "lr" in BUGS else 0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def main() -> None:
    """Two steps of two micro-batches each."""
    lightning.seed_everything(5)
    rows = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    batches = torch.utils.data.DataLoader(rows, batch_size=2, shuffle=True)
    trainer = lightning.Trainer(
        max_steps=2,
        accelerator="cpu",
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        num_sanity_val_steps=1,
        val_check_interval=2,
        limit_val_batches=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(Network(), batches, batches)


main()
