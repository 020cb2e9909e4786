"""Trains a tiny model with Lightning and with accelerate, for the tests of `msprobe run` and of the callback.

Started under ``msprobe run``; arguments: which way, and where dumps go. Each way is trained three times from the same
seed: recorded by `msprobe run`, by the callback (the recipe of docs/integrations.md), and by nobody.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger

LOSSES: list[str] = []


def batches() -> Any:
    torch.manual_seed(5)
    rows = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    return torch.utils.data.DataLoader(rows, batch_size=2)


def fit(model: Any, folder: Path, recorded: str | None, checkpoint: str | None = None, **more: Any) -> Any:
    """Lightning's Trainer, with a sanity check and validation in between."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from msprobe.integrations.lightning import MsprobeCallback

    callbacks: list[Any] = [ModelCheckpoint(folder / "out", save_top_k=-1, every_n_train_steps=2, filename="{step}")]
    if recorded == "benchmark":
        asked = {"pert_mode": ["no_change", "add_noise"]}
        callbacks.append(MsprobeCallback(task="free_benchmark", dump_path=str(folder / recorded), **asked))
    elif recorded:
        check = str(folder / "pack.zip") if recorded == "callback" else None
        callbacks.append(MsprobeCallback(level="mix", dump_path=str(folder / recorded), config_check=check))
    trainer = lightning.Trainer(
        max_steps=3,
        accelerator="cpu",
        callbacks=callbacks,
        num_sanity_val_steps=1,
        val_check_interval=2,
        limit_val_batches=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **more,
    )
    trainer.fit(model, batches(), batches(), ckpt_path=checkpoint)
    return model


def new_network(kind: str) -> Any:
    import lightning

    class Network(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.drop(torch.relu(self.first(x))))
            return found

        def loss(self, batch: Any) -> torch.Tensor:
            loss = nn.functional.mse_loss(self(batch[0]), batch[1])
            LOSSES.append(loss.item().hex())
            return loss

        def validation_step(self, batch: Any, at: int) -> None:
            self(batch[0])

    class Automatic(Network):
        def training_step(self, batch: Any, at: int) -> torch.Tensor:
            return self.loss(batch)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    class Manual(Network):
        """Two optimizers, as a GAN has them."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, at: int) -> None:
            for optimizer in self.optimizers():
                loss = self.loss(batch)
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.first, self.last)]

    lightning.seed_everything(3, verbose=False)
    return Automatic() if kind == "automatic" else Manual()


def automatic(folder: Path, recorded: str | None, **more: Any) -> Any:
    """One optimizer, two micro-batches a step."""
    return fit(new_network("automatic"), folder, recorded, accumulate_grad_batches=2, **more)


def manual(folder: Path, recorded: str | None) -> Any:
    """Two optimizers."""
    return fit(new_network("manual"), folder, recorded)


def two_ranks(folder: Path, recorded: str | None) -> Any:
    """DDP. Lightning starts the second rank as a plain script."""
    return fit(new_network("automatic"), folder, recorded, devices=2, strategy="ddp")


def accelerated(folder: Path, recorded: str | None) -> Any:
    """A loop of one's own with accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(3)
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, batches(), schedule)
    debugger = PrecisionDebugger(level="mix", dump_path=str(folder / recorded)) if recorded else None
    for x, y in loader:
        with accelerator.accumulate(model):
            if debugger is not None:
                debugger.start(model)
            loss = nn.functional.mse_loss(model(x), y)
            LOSSES.append(loss.item().hex())
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            if debugger is not None and accelerator.sync_gradients:
                debugger.stop()
                debugger.step()
            optimizer.zero_grad()
    return model


WAYS: dict[str, Callable[..., Any]] = {
    "automatic": automatic,
    "manual": manual,
    "two_ranks": two_ranks,
    "accelerated": accelerated,
}


def tell(folder: Path, name: str, model: nn.Module) -> None:
    """One line, the same for the same training, in ``told.RANK``."""
    weights = [p.detach().double().sum().item().hex() for p in model.parameters()]
    distributed = torch.distributed.is_initialized()
    rank = torch.distributed.get_rank() if distributed else 0
    with (folder / f"told.{rank}").open("a") as told:
        told.write(f"{name}: {LOSSES} {weights}\n")
    LOSSES.clear()


def main() -> None:
    way, dumps = sys.argv[1], Path(sys.argv[2])
    train = WAYS[way]
    tell(dumps, "launcher", train(dumps, None))
    tell(dumps, "callback", train(dumps, "callback"))
    if way == "accelerated":
        PrecisionDebugger.reset()
    hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks
    assert (nn.Module.__call__.__qualname__, dict(hooks)) == ("Module._wrapped_call_impl", {})
    tell(dumps, "bare", train(dumps, None))
    if way == "automatic":
        PrecisionDebugger.reset()
        tell(dumps, "benchmark", train(dumps, "benchmark"))
    if "resume" in sys.argv:
        PrecisionDebugger.reset()
        tell(dumps, "resumed", train(dumps, "resumed", checkpoint=str(dumps / "out" / "step=2.ckpt")))


if __name__ == "__main__":
    main()
