"""What a node of the hierarchy is, by the beginning of its name.

The numbers are those of the files that the TensorBoard plugin ``tb-graph-ascend`` opens.
"""

from __future__ import annotations

from msprobe.compare.entry_names import read_name

ROOT = "DefaultModel"
GROUP_PREFIX = "Apis_Between_Modules."
_GROUPS = "Apis_Between_Modules"  # of merged ranks, too

MODULE = 0  # also the root, gradients of parameters, optimizer steps
CALL = 1
GROUP = 9

_MODULES = ("Module.", "Cell.", "optimizer", "Optimizer.", "clip_grad")
_CALLS = (
    *("Tensor.", "Torch.", "Functional.", "NPU.", "VF.", "Distributed.", "Aten.", "Custom.", "MindSpeed."),
    *("Mint.", "MintFunctional.", "Primitive.", "Jit."),
)


def kind_of(name: str) -> int | None:
    """MODULE, CALL or GROUP; None where the name is none of them. A call of a family that the published builders do not
    know (``Ops``, ``Compiled``) is recognised by the form of its name.

    >>> kind_of("Functional.linear.0.forward") == CALL, kind_of("clip_grad") == MODULE, kind_of("Other.0")
    (True, True, None)
    >>> kind_of("Ops.c10d.wait.0.forward") == CALL
    True
    """
    if name.startswith(_CALLS):
        return CALL
    if name.startswith(_GROUPS):
        return GROUP
    if name.startswith(_MODULES):
        return MODULE
    return CALL if read_name(name).kind == "api" else None
