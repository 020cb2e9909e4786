"""Lockstep in a process that trains with PyTorch, from its debugger's beginning to its end."""

from __future__ import annotations

from typing import Any

from msprobe import log
from msprobe.capture.session import OPTIMIZER
from msprobe.config.settings import Settings
from msprobe.errors import MsprobeError
from msprobe.lockstep import account_files
from msprobe.lockstep.account import Account
from msprobe.lockstep.listener import Lockstep
from msprobe.lockstep.recording import Recording
from msprobe.lockstep.torch.values import TorchValues
from msprobe.messages import said


def prepared(settings: Settings) -> Settings:
    """The settings that record a candidate as its reference was recorded. Raises PathError or InvalidInputError."""
    assert settings.lockstep is not None
    recording = Recording(settings.lockstep)
    account_files.check_apart(settings.dump_path, recording.dump)
    return recording.recording_like(settings)


class Session:
    """Listens for one recorder; when the program ends, the last process to do so judges what all have recorded."""

    def __init__(self, settings: Settings, recorder: Any) -> None:
        assert settings.lockstep is not None
        self.settings = settings
        self.recorder = recorder
        self.account = Account()
        recording = Recording(settings.lockstep)
        steps = account_files.Begun(settings.dump_path, recording)
        only = settings.lockstep.only
        thread = recorder.session.thread
        self.listener = Lockstep(
            steps, recording.cadence(), TorchValues(), self.account, only, lambda: thread.region == OPTIMIZER
        )
        recorder.bus.add(self.listener)

    def end(self) -> None:
        """The program ends, and its dump is written."""
        settings, session = self.settings, self.recorder.session
        assert settings.lockstep is not None
        if not self.account.counts:
            return
        done = account_files.end(settings.dump_path, session.rank(), session.outcome.world, self.account)
        if settings.lockstep.verdict == "later" or not done:
            return
        from msprobe.lockstep.verdict import judge_and_write

        try:
            verdict, path = judge_and_write(settings.dump_path, settings.lockstep.reference)
            log.info(f'Lockstep: {verdict.status}, {len(verdict.findings)} findings; "{path}".')
        except MsprobeError as problem:
            log.error(said("lockstep-without-verdict", problem.message))
