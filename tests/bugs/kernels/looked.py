"""The verdict after a second look: doubtful calls recorded once more with whole tensors, and computed again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch

from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.runs import compare_runs
from msprobe.second_look.checking import workers
from msprobe.second_look.doubtful import doubtful_calls, write_configurations
from msprobe.second_look.looking import settle, with_settled

from .device import Device
from .faults import Fault
from .judges import Answer
from .networks import Training
from .record import WARM_UP, process_group
from .recordings import KernelPair


class SecondLook:
    """``msprobe compare CANDIDATE REFERENCE --second-look DIR``, both times; one worker for all pairs."""

    def __init__(self) -> None:
        self._pool = workers()

    def __call__(self, pair: KernelPair) -> Answer:
        verdict = self.verdict(pair)
        first = verdict.findings[0].entry if verdict.findings else None
        return Answer(verdict.status == "diverged", first)

    def verdict(self, pair: KernelPair) -> Verdict:
        """The verdict on a pair after the second look."""
        candidate, reference = pair.candidate / "dump", pair.reference / "dump"
        verdict = compare_runs(candidate, reference)
        folder = Path(tempfile.mkdtemp())
        try:
            doubtful = doubtful_calls(verdict, candidate, reference)
            files = write_configurations(doubtful, folder)
            record_again(pair, pair.variant, pair.fault, files["candidate"])
            record_again(pair, "", None, files["reference"])
            return with_settled(verdict, settle(doubtful, folder, self._pool), doubtful.candidate)
        finally:
            shutil.rmtree(folder)

    def close(self) -> None:
        """End the worker."""
        self._pool.close()


def record_again(pair: KernelPair, variant: str, fault: Fault | None, configuration: Path) -> None:
    """Train a side of a pair once more, and record what the configuration says of its last step."""
    from msprobe.pytorch import PrecisionDebugger

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with process_group():
            training = Training(pair.network, pair.precision)
            for number in range(WARM_UP):
                training.step(number)
            debugger = PrecisionDebugger(config_path=str(configuration))
            try:
                with Device(variant, fault):
                    debugger.start(model=training.model)
                    training.step(WARM_UP)
                    debugger.stop()
                    debugger.step()
            finally:
                PrecisionDebugger.reset()
    finally:
        torch.set_num_threads(threads)
