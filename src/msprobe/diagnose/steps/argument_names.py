"""What the arguments of functions are called that are given by their position."""

from __future__ import annotations

from msprobe.compare.entry_names import operation
from msprobe.diagnose.steps.timeline import Event

#: By the documentation of torch.nn.functional; calls of the bare framework take some of them in another order.
_NAMES = {
    name: words.split()
    for name, words in {
        "batch_norm": "input running_mean running_var weight bias training momentum eps",
        "instance_norm": "input running_mean running_var weight bias use_input_stats momentum eps",
        "layer_norm": "input normalized_shape weight bias eps",
        "rms_norm": "input normalized_shape weight eps",
        "group_norm": "input num_groups weight bias eps",
        "dropout": "input p training inplace",
        "embedding": "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
        "conv1d": "input weight bias stride padding dilation groups",
        "conv2d": "input weight bias stride padding dilation groups",
        "conv3d": "input weight bias stride padding dilation groups",
        "max_pool2d": "input kernel_size stride padding dilation ceil_mode return_indices",
        "avg_pool2d": "input kernel_size stride padding ceil_mode count_include_pad",
        "leaky_relu": "input negative_slope inplace",
        "elu": "input alpha inplace",
        "softmax": "input dim",
        "log_softmax": "input dim",
        "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal",
    }.items()
}


def argument_name(event: Event, slot: str) -> str:
    """The slot with what it is called: ``eps (input.7)``; the slot alone where that is not known."""
    head, _, number = slot.partition(".")
    names = _NAMES.get(operation(event.stem), []) if event.parts.owner == "Functional" else []
    if head == "input" and number.isdigit() and int(number) < len(names):
        return f"{names[int(number)]} ({slot})"
    return slot
