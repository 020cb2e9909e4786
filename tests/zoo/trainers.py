"""Trainers of the `trl` library on tiny models and data in memory, stepped by the library's own loop.

The library is imported inside the builders: it takes seconds, and most tests do not need it.
"""

from __future__ import annotations

import functools
import gc
import tempfile
from typing import Any

from torch import nn

from .adapters import tiny_llama
from .case import Region, Results, TrainingCase, architecture
from .recurrent import sequences

WORDS = [f"w{i}" for i in range(17)]
ARGUMENTS: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": 2,
    "learning_rate": 1e-2,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
    "dataloader_pin_memory": False,
}
prepared: dict[str, Any] = {}


@functools.cache
def tokenizer() -> Any:
    """One word, one token; nothing is downloaded."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w3"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="w0", bos_token="w1", eos_token="w2", unk_token="w3"
    )


def stepped(trainer: Any, model: nn.Module) -> TrainingCase:
    """Each step is one call of `trainer.train()`, recorded from the beginning of its step to its end."""
    from transformers import PrinterCallback, TrainerCallback

    class Recorded(TrainerCallback):
        region: Region

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.region.begin(model)

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.region.end()

    callback = Recorded()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(callback)

    def run_step(i: int, region: Region) -> Results:
        callback.region = region
        gc.freeze()  # the library collects after each training; what is older than this one is not looked through
        try:
            outcome = trainer.train()
        finally:
            gc.unfreeze()
        return {"loss": outcome.training_loss}

    return TrainingCase(run_step, {"model": model, "parameters": list(model.parameters())})


@architecture()
def trl_supervised_fine_tuning() -> TrainingCase:
    """Two micro-batches accumulated, gradients clipped, the learning rate scheduled, recomputation on."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    model = tiny_llama()
    rows = Dataset.from_dict({"input_ids": sequences(0, count=8)[0].tolist()})
    settings = SFTConfig(
        tempfile.gettempdir(),
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        **ARGUMENTS,
    )
    return stepped(SFTTrainer(model, args=settings, train_dataset=rows, processing_class=tokenizer()), model)


@architecture()
def trl_preference_optimisation() -> TrainingCase:
    """Direct preference optimisation of an adapter; the reference is the model without it."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    class Prepared(DPOTrainer):
        """Its rows are turned into tokens once in a process."""

        def _prepare_dataset(self, *args: Any, **kwargs: Any) -> Any:
            if "rows" not in prepared:
                prepared["rows"] = super()._prepare_dataset(*args, **kwargs)
            return prepared["rows"]

    texts = [" ".join(WORDS[t] for t in row) for row in sequences(0, count=12)[0].tolist()]
    rows = Dataset.from_dict({"prompt": texts[:4], "chosen": texts[4:8], "rejected": texts[8:]})
    trainer = Prepared(
        tiny_llama(),
        args=DPOConfig(tempfile.gettempdir(), gradient_checkpointing=False, max_length=16, **ARGUMENTS),
        train_dataset=rows,
        processing_class=tokenizer(),
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]),
    )
    return stepped(trainer, trainer.model)
