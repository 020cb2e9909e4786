"""Which parts a recorder consists of, besides calls and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe.capture.torch import private

if TYPE_CHECKING:
    from msprobe.capture.torch.recorder import Part, TorchRecorder


def make_parts(recorder: TorchRecorder) -> list[Part]:
    """The parts that the settings of this recorder call for."""
    from msprobe.capture.torch.user_warnings import UserWarnings

    parts: list[Part] = [UserWarnings()]
    level = recorder.level
    if level in ("L1", "mix"):
        from msprobe.capture.torch.collectives import CollectiveRecorder
        from msprobe.capture.torch.functional_collectives import FunctionalCollectives

        parts += [CollectiveRecorder(recorder), FunctionalCollectives(recorder)]
    if level in ("L0", "L1", "mix", "L2"):
        from msprobe.capture.torch.planning import Planning

        parts.append(Planning(recorder.session))
    if level in ("L0", "L1", "mix"):
        from msprobe.capture.torch.optimizers import OptimizerRecorder

        parts.append(OptimizerRecorder(recorder))
    if level == "L2":
        from msprobe.capture.torch.dispatch import OperatorRecorder
        from msprobe.capture.torch.kernel_dump import KernelDump, npu_module

        npu = npu_module()
        if npu is not None:
            parts.append(KernelDump(recorder, npu))
        elif private.has("operators by key") or private.has("operators by mode"):
            parts.append(OperatorRecorder(recorder))
    return parts
