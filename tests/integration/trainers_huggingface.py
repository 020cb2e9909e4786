"""Trains a tiny model with the Trainer of Hugging Face and with TRL, to test `msprobe run` and the callback.

Started under ``msprobe run``; arguments: which way, and where dumps go. Each way is trained three times from one seed:
recorded by `msprobe run`, by the callback, and by nobody. After each training a line of ``told.RANK`` in the folder of
the dumps tells its losses and weights.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from trainers_data import Rows
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from msprobe.integrations.huggingface import MsprobeCallback
from msprobe.pytorch import PrecisionDebugger

COMMON: dict[str, Any] = {
    "max_steps": 3,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "report_to": [],
    "use_cpu": True,
    "logging_steps": 1,
    "disable_tqdm": True,
    "seed": 3,
}


class Speaks(TrainerCallback):  # type: ignore[misc]
    """Generates text after each evaluation."""

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Some words."""
        with torch.no_grad():
            model.generate(torch.ones(1, 2, dtype=torch.long), max_new_tokens=2, do_sample=True, pad_token_id=0)


def new_model() -> Any:
    set_seed(3)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
        )
    )


def plain(folder: Path, callbacks: list[Any], **more: Any) -> Any:
    """The Trainer, with an evaluation before, in and behind the training, and a checkpoint after the second step."""
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        eval_strategy="steps",
        eval_steps=1,
        save_steps=2,
        eval_on_start=True,
        **COMMON,
    )
    rows = torch.utils.data.Subset(Rows(), range(2))
    trainer = Trainer(
        model=new_model(), args=arguments, train_dataset=Rows(), eval_dataset=rows, callbacks=[Speaks(), *callbacks]
    )
    if trainer.args.world_size == 1:
        # With several ranks transformers 5.23 would not wrap the model in DDP any more.
        trainer.evaluate()
    trainer.train(**more)
    return trainer


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(30)} | {"<pad>": 30, "<eos>": 31}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), pad_token="<pad>", eos_token="<eos>"
    )


def fine_tuned(folder: Path, callbacks: list[Any]) -> Any:
    """SFTTrainer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = Dataset.from_dict({"input_ids": [Rows()[i]["input_ids"].tolist() for i in range(16)]})
    arguments = SFTConfig(output_dir=str(folder / "out"), save_strategy="no", bf16=False, **COMMON)
    trainer = SFTTrainer(
        model=new_model(), args=arguments, train_dataset=rows, processing_class=tokenizer(), callbacks=callbacks
    )
    trainer.train()
    return trainer


def preferred(folder: Path, callbacks: list[Any]) -> Any:
    """DPOTrainer, whose reference model is called in each step without gradients."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    def text(seed: int) -> str:
        return " ".join(f"w{i}" for i in torch.randint(0, 30, (4,), generator=torch.Generator().manual_seed(seed)))

    columns = {key: [text(100 * at + i) for i in range(16)] for at, key in enumerate(("prompt", "chosen", "rejected"))}
    arguments = DPOConfig(output_dir=str(folder / "out"), save_strategy="no", bf16=False, **COMMON)
    trainer = DPOTrainer(
        model=new_model(),
        ref_model=new_model(),
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        processing_class=tokenizer(),
        callbacks=callbacks,
    )
    trainer.train()
    return trainer


WAYS: dict[str, Callable[..., Any]] = {"plain": plain, "sft": fine_tuned, "dpo": preferred}


def tell(folder: Path, name: str, trainer: Any) -> None:
    """One line, the same for the same training, in a file of this rank."""
    losses = [entry.get("loss", entry.get("eval_loss")) for entry in trainer.state.log_history]
    weights = [p.detach().double().sum().item().hex() for p in trainer.model.parameters()]
    rank = trainer.args.process_index
    with (folder / f"told.{rank}").open("a") as told:
        told.write(f"{name}: {[x for x in losses if x is not None]} {weights}\n")


def main() -> None:
    way, dumps = sys.argv[1], Path(sys.argv[2])
    train = WAYS[way]
    tell(dumps, "launcher", train(dumps, []))
    check = str(dumps / "pack.zip") if way == "plain" else None
    callback = MsprobeCallback(level="mix", dump_path=str(dumps / "callback"), config_check=check)
    tell(dumps, "callback", train(dumps, [callback]))
    hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks
    assert (torch.nn.Module.__call__.__qualname__, dict(hooks)) == ("Module._wrapped_call_impl", {})
    tell(dumps, "bare", train(dumps, []))
    if "resume" in sys.argv:
        PrecisionDebugger.reset()
        callback = MsprobeCallback(level="mix", dump_path=str(dumps / "resumed"))
        tell(dumps, "resumed", train(dumps, [callback], resume_from_checkpoint=str(dumps / "out" / "checkpoint-2")))


if __name__ == "__main__":
    main()
