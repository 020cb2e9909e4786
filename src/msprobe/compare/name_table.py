"""The names that MindSpore and PyTorch give to the same function: the shipped table, and the mint interface."""

from __future__ import annotations

import csv
import functools
import re
from importlib import resources

from msprobe.compare.entry_names import operation

# mindspore.mint follows torch name by name.
_KINDS = {"Mint": "Torch", "MintFunctional": "Functional"}

# What MindSpore calls parameters of layers that PyTorch has under another name.
PARAMETER_NAMES = {
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}

# What MindSpore calls arguments that PyTorch has under another name.
ARGUMENT_NAMES = {
    "axis": "dim",
    "keep_dims": "keepdim",
    "epsilon": "eps",
    "x": "input",
    "y": "other",
    "labels": "target",
    "logits": "input",
}

# What MindSpore calls layers that PyTorch has under another name.
_LAYERS = {
    "Dense": "Linear",
    "BiDense": "Bilinear",
    "Conv1dTranspose": "ConvTranspose1d",
    "Conv2dTranspose": "ConvTranspose2d",
    "Conv3dTranspose": "ConvTranspose3d",
    "EmbeddingLookup": "Embedding",
    "HSigmoid": "Hardsigmoid",
    "HShrink": "Hardshrink",
    "HSwish": "Hardswish",
    "LRN": "LocalResponseNorm",
    "SeLU": "SELU",
    "SoftShrink": "Softshrink",
}

# Layers of both frameworks: what they compute is known by their name, what calls they make of it is their own affair.
_KNOWN_LAYERS = frozenset(
    """
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    AvgPool1d AvgPool2d AvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d BCELoss BCEWithLogitsLoss Bilinear CELU
    ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    CosineEmbeddingLoss CrossEntropyLoss CTCLoss Dropout Dropout1d Dropout2d Dropout3d ELU Embedding Flatten GELU
    GLU GroupNorm GRU GRUCell Hardshrink Hardsigmoid Hardswish Hardtanh HuberLoss Identity InstanceNorm1d
    InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LayerNorm LeakyReLU Linear LocalResponseNorm LogSigmoid
    LogSoftmax LSTM LSTMCell MaxPool1d MaxPool2d MaxPool3d Mish MSELoss NLLLoss PixelShuffle PixelUnshuffle PReLU
    ReflectionPad1d ReflectionPad2d ReLU ReLU6 ReplicationPad2d RMSNorm RNN RNNCell RReLU SELU Sigmoid SiLU
    SmoothL1Loss Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold
    Unflatten Upsample ZeroPad2d
    """.split()
)

# What primitives and functions of MindSpore compute, where the word that PyTorch has for it is another.
_OPERATIONS = {
    "batch_mat_mul": "matmul",
    "bias_add": "add",
    "broadcast_to": "expand",
    "cast": "to",
    "astype": "to",
    "avg_pool": "avg_pool2d",
    "max_pool": "max_pool2d",
    "dense": "linear",
    "expand_dims": "unsqueeze",
    "gather_d": "gather",
    "ge_lu": "gelu",
    "mat_mul": "matmul",
    "real_div": "div",
    "reduce_max": "amax",
    "reduce_mean": "mean",
    "reduce_min": "amin",
    "reduce_sum": "sum",
    "select": "where",
    "stop_gradient": "detach",
    "tensor_add": "add",
}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def layer_name(kind: str) -> str | None:
    """PyTorch's name for the class of a layer of either framework; None if it is no layer that both have.

    >>> layer_name("Dense"), layer_name("LayerNorm"), layer_name("EmbeddingExt"), layer_name("Block")
    ('Linear', 'LayerNorm', 'Embedding', None)
    """
    name = _LAYERS.get(kind, kind.removesuffix("Ext"))
    return name if name in _KNOWN_LAYERS else None


def operation_in_torch(api: str) -> str:
    """What an API of MindSpore computes, in the word that PyTorch has for it.

    >>> operation_in_torch("Primitive.matmul.BatchMatMul"), operation_in_torch("Tensor.swapaxes")
    ('matmul', 'transpose')
    >>> operation_in_torch("Primitive.gather.Gather"), operation_in_torch("Primitive.relu.ReLU")
    ('embedding', 'relu')
    """
    kind, _, rest = api.partition(".")
    if kind == "Primitive":
        kind_of = rest.rpartition(".")[2]
        word = _torch_words().get(kind_of.lower()) or _WORDS.sub("_", kind_of).lower()
        if word == "gather":
            return "embedding"
    else:
        word = operation(torch_name(api))
    return operation(f"{kind}.{_OPERATIONS.get(word, word)}")


@functools.lru_cache(maxsize=1)
def name_table() -> dict[str, str]:
    """MindSpore's name -> PyTorch's, both with their kind: ``{"Functional.dense": "Functional.linear"}``."""
    text = resources.files("msprobe.compare").joinpath("ms_to_pt_api.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["mindspore_api"]: row["pytorch_api"] for row in rows}


@functools.lru_cache(maxsize=1)
def _torch_words() -> dict[str, str]:
    """The words of PyTorch for functions, by their letters alone: ``{"layernorm": "layer_norm"}``."""
    words = (name.rpartition(".")[2] for name in name_table().values())
    known = {word.replace("_", ""): word for word in words if not word.startswith("_")}
    return known | {"gather": "gather", "conv2d": "conv2d", "conv3d": "conv3d"}


def torch_name(api: str) -> str:
    """PyTorch's name for an API of MindSpore, the same name where none is known.

    >>> torch_name("Functional.equal"), torch_name("MintFunctional.relu"), torch_name("Primitive.matmul.MatMul")
    ('Torch.eq', 'Functional.relu', 'Primitive.matmul.MatMul')
    """
    kind, _, rest = api.partition(".")
    if kind in _KINDS and rest:
        return f"{_KINDS[kind]}.{rest}"
    return name_table().get(api, api)
