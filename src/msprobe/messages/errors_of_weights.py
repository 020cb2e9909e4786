"""Weights of adapters and of Megatron-core that cannot be laid beside those of a model (U201 to U205)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U201", "adapter-base-missing", "error:usage", "file base",
        '"{file}": base_model_name_or_path is {base!r}, which is no folder; write the path of the base model there.',
        '"{file}"：base_model_name_or_path 为 {base!r}，不是文件夹；请在其中写明基座模型的路径。', severity="error",
    ),
    Message(
        "U202", "adapter-unreadable", "error:usage", "file problem",
        '"{file}" is no adapter that can be read: {problem}',
        '"{file}" 不是可读的 adapter：{problem}', severity="error",
    ),
    Message(
        "U203", "adapter-of-another-model", "error:usage", "folder layers",
        '"{folder}": the adapter names {layers}, where the base model has no linear layer.',
        '"{folder}"：adapter 中的 {layers} 在基座模型中没有对应的线性层。', severity="error",
    ),
    Message(
        "U204", "megatron-names-unknown", "error:usage", "names",
        "a state dict of Megatron-core has {names}, which is no weight of a dense GPT.",
        "Megatron-core 的 state dict 含有 {names}，不是稠密 GPT 的权重。", severity="error",
    ),
    Message(
        "U205", "megatron-heads", "error:usage", "rows heads groups",
        "linear_qkv has {rows} rows, which {heads} heads in {groups} groups do not divide.",
        "linear_qkv 有 {rows} 行，不能按 {groups} 组 {heads} 个 head 划分。", severity="error",
    ),
)
