"""Recordings of the bench, kept in a folder: one of each device, and of each device with a fault.

A recording is the dump of one step (the third of its training; the first two are computed as torch does, so all begin
with the same weights), with statistics, as a user would have it. Beside it stand the digests of all tensors, from which
the truth is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
import torch.distributed as dist

from msprobe.diagnose.steps.collector import no_collection

from .device import Device
from .faults import Fault
from .networks import Training
from .whole import Summarised, summarise

WARM_UP = 2
#: No device, but torch's own kernels whose results msprobe moves by a unit.
JITTER = "jitter"


@dataclass(frozen=True)
class Recording:
    """``variant``: the device, "" is torch itself, :data:`JITTER` torch jittered. ``fault``: what is wrong in it."""

    network: str
    precision: str
    variant: str = ""
    fault: Fault | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        fault = "" if self.fault is None else f"+{self.fault.id}"
        return f"{self.network}-{self.precision}-{self.variant or 'torch'}{fault}"


def recorded(wanted: Recording, cache: Path) -> Path:
    """The folder with the recording, made if it is not in the cache."""
    place = cache / source_digest() / wanted.name
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
            record(wanted, Path(temporary) / "made")
            try:
                os.rename(Path(temporary) / "made", place)
            except OSError:  # made by a process beside this one
                if not place.is_dir():
                    raise
    return place


def record(wanted: Recording, place: Path) -> None:
    """Train and record into ``place``."""
    from msprobe.pytorch import PrecisionDebugger

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with process_group():
            training = Training(wanted.network, wanted.precision)
            for number in range(WARM_UP):
                training.step(number)
            jitter = wanted.variant == JITTER
            debugger = PrecisionDebugger(dump_path=str(place / "dump"), task="tensor", level="mix", jitter=jitter)
            session = debugger.recorder.session
            into = Summarised(lambda: session.settings)
            try:
                with (
                    PrecisionDebugger.recording(training.model, into=into),
                    Device("" if jitter else wanted.variant, wanted.fault),
                ):
                    training.step(WARM_UP)
            finally:
                PrecisionDebugger.reset()
    finally:
        torch.set_num_threads(threads)
    (place / "outcome.json").write_text(json.dumps({"loss": training.losses[-1]}))
    with no_collection():
        summarise(place, into.values)


@contextmanager
def process_group() -> Iterator[None]:
    """A group of this process alone, for the networks that have a collective."""
    begun = not dist.is_initialized()
    if begun:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        if begun:
            dist.destroy_process_group()


@lru_cache(1)
def source_digest() -> str:
    """Changes with the bench, the recorder and torch."""
    found = hashlib.sha256(torch.__version__.encode())
    here = Path(__file__).parent
    source = here.parents[2] / "src" / "msprobe"
    files = [
        here / f"{name}.py"
        for name in (
            "networks",
            "other_networks",
            "library_networks",
            "further_networks",
            "variants",
            "operators",
            "device",
            "record",
            "whole",
        )
    ]
    for folder in ("capture", "store"):
        files += sorted(path for path in (source / folder).rglob("*.*") if path.suffix in (".py", ".c", ".h"))
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
