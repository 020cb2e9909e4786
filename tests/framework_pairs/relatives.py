"""What pages on moving from PyTorch to MindSpore warn of: each healthy, and with the mistake they name.

A row is (network, mistake of the MindSpore side, what the first finding must name: see ``common.MISTAKES``).
"""

from __future__ import annotations

import numpy as np

#: The subjects are those of MindSpore's pages on differences with torch.nn, and of threads on a loss that is another.
RELATIVES = (
    # LeakyReLU: alpha is 0.2 by default, negative_slope 0.01
    ("leaky", "slope", ("leaky", "relu")),
    # std and var: ddof is 0 by default, PyTorch divides by n - 1
    ("spread", "count", ("std", "ddof", "correction", "unbiased")),
    # Conv2d: pad_mode "same" puts an odd row behind, padding=1 in front
    ("strided", "same", ("conv",)),
    # BatchNorm2d: momentum is 1 minus that of PyTorch, taken over as 0.1
    ("moving", "momentum", ("momentum", "moving", "running", "bn")),
    # AvgPool2d: padded places are counted or not
    ("averages", "counted", ("pool",)),
    # the weight of a product written by hand has the other layout
    ("turned", "layout", ("matmul", "linear", "weight", "transpose", "permute", "swapaxes", "getattr")),
    # SmoothL1Loss: reduction is "none" by default, and summed
    ("smooth", "sum", ("loss", "sum", "mean")),
    # interpolate: align_corners
    ("upsampled", "corners", ("interpolate", "resize", "upsample")),
    # Adam adds weight_decay to the gradient, AdamWeightDecay takes it from the weight
    ("adam", "decay", (":optimizer",)),
    # AdamWeightDecay corrects no bias
    ("uncorrected", "bias", (":optimizer",)),
    # clip_by_norm clips each gradient alone, clip_grad_norm_ all of them
    ("clipped", "alone", ("clip", ":optimizer", ":gradient", ":parameter_gradient", ":structure")),
    # softmax of the wrong axis where both have the same length
    ("scores", "axis", ("softmax",)),
    # https://mindspore.cn/docs/en/r2.3.0rc1/note/api_mapping/pytorch_diff/CrossEntropyLoss.html
    ("labelled", "sum", ("cross_entropy", "loss", "sum", "mean", "reduction")),
    ("labelled", "smoothing", ("cross_entropy", "loss", "smoothing")),
    # https://mindspore.cn/docs/en/r2.3.1/note/api_mapping/pytorch_diff/LayerNorm.html: epsilon is 1e-7 by default
    ("normed", "eps", ("norm", "eps")),
    # https://mindspore.cn/docs/en/r2.2/note/api_mapping/pytorch_api_mapping.html: torch.mean is ops.mean, torch.sum is
    # ops.sum; ReduceSum and ReduceMean keep no dimension by default
    ("reduced", "sum", ("sum", "mean")),
    ("averaged", "sum", ("sum", "mean")),
    ("centred", "sum", ("sum", "mean")),
    # https://www.mindspore.cn/docs/en/r2.0.0-alpha/note/api_mapping/pytorch_diff/elu.html: alpha is 1
    ("exponential", "alpha", ("elu",)),
    # the same table: cumsum takes an axis, clamp and clip a range
    ("cumulated", "axis", ("cumsum",)),
    ("clamped", "range", ("clamp", "clip")),
    # a loss in float16, as of a network behind amp.auto_mixed_precision
    ("half", "sum", ("sum", "mean")),
)
HEALTHY = tuple(dict.fromkeys(name for name, _, _ in RELATIVES))


def images(step: int) -> np.ndarray:
    """A batch of images of even size."""
    return np.random.default_rng(step + 200).standard_normal((4, 1, 8, 8)).astype(np.float32)


def rows(step: int) -> np.ndarray:
    """A batch of rows."""
    return np.random.default_rng(step + 300).standard_normal((4, 16, 16)).astype(np.float32)


IMAGES = ("strided", "moving", "averages", "upsampled")
