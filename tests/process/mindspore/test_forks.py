"""A child of a recorded MindSpore program records nothing and does not wait."""

from __future__ import annotations

import os
import signal
import time

import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, gradients_of, record  # noqa: E402

__all__ = ["record"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_worker_records_nothing_and_does_not_wait(record: Recorder) -> None:
    debugger = record(level="mix")
    model = Toy()
    original = ops.tanh
    debugger.start(model)
    gradients_of(model)(batch())
    child = os.fork()
    if child == 0:
        os._exit(0 if ops.tanh is original and not debugger.recorder.session.recording else 1)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(status) == 0
    ops.tanh(batch())
    debugger.stop()
    debugger.step()
    assert "Functional.tanh.1.forward" in record.end().data()
