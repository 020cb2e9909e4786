"""An optimizer step of MindSpore in the words of PyTorch: what class it is, and what its settings are called."""

from __future__ import annotations

from typing import Any

#: Optimizers of ``mindspore.nn`` that PyTorch calls otherwise; the others have one name, or are in one framework only.
CLASSES = {
    "AdamWeightDecay": "AdamW",
    "Momentum": "SGD",
    "AdaMax": "Adamax",
    "RMSProp": "RMSprop",
    "AdaFactor": "Adafactor",
}
_SETTINGS = {
    "learning_rate": "lr",
    "epsilon": "eps",
    "use_nesterov": "nesterov",
    "use_amsgrad": "amsgrad",
}
#: What one class alone calls so.
_OF_CLASS = {"RMSProp": {"decay": "alpha"}}


def in_words_of_torch(record: dict[str, Any], owner: str) -> dict[str, Any]:
    """The record of a step of the optimizer ``owner`` with its groups' settings as PyTorch calls them."""
    groups = record.get("groups")
    if not isinstance(groups, list):
        return record
    return {**record, "groups": [_group(group, owner) if isinstance(group, dict) else group for group in groups]}


def _group(group: dict[str, Any], owner: str) -> dict[str, Any]:
    words = {**_SETTINGS, **_OF_CLASS.get(owner, {})}
    translated = {words.get(key, key): value for key, value in group.items()}
    if "beta1" in translated and "beta2" in translated:
        translated["betas"] = [translated.pop("beta1"), translated.pop("beta2")]
    return translated
