"""A simulated accelerator, for tests of what only shows on a device.

Its device type is ``sim``, torch's PrivateUse1, by which NPUs come into torch:

- the host cannot read its memory: that ends the process with a segmentation fault;
- kernels run later, in order, on the threads of eight streams; what is freed is filled with ones;
- it has events, pinned memory, random numbers of its own, an end of its memory (:func:`limit`), and graphs: what is
  launched while a stream is captured runs when the graph is replayed, and a wait breaks the capture;
- with ``offer_rows`` it has a kernel that measures a whole tensor, for the recorder; right or wrong;
- launches and waits of the host are counted, with the Python frames they came from if wanted (:class:`Trace`); in
  :func:`no_waits` a wait is an error.

What a kernel computes is what the CPU computes, to the last bit. Call :func:`load` in a process of its own: there is
one device of this kind in a process, and torch asks it in many places from then on. ``python tests/simdev/build.py``
builds the C++ half, which ``pytest`` does by itself.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from simdev.build import NAME, NoCompiler, build

__all__ = ["Graph", "NoCompiler", "Trace", "build", "device", "load", "no_waits"]

# The C++ half, from `load` on: waits(), launches(), allocated(), peak(), limit(bytes), slow_down(microseconds) ...
device: Any = None


def load() -> Any:
    """Make the device known to torch, as ``torch.sim``; the C++ half. Raises :class:`NoCompiler`."""
    global device
    if device is None:
        spec = importlib.util.spec_from_file_location(NAME, build())
        assert spec is not None
        assert spec.loader is not None
        torch.utils.rename_privateuse1_backend("sim")
        device = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(device)
        torch._register_device_module("sim", _module())
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    return device


def _module() -> types.ModuleType:
    """What programs find as ``torch.sim``."""
    module = types.ModuleType("torch.sim")

    class Stream(torch.Stream):
        def __new__(cls, device: Any = None, **further: Any) -> Any:
            return super().__new__(cls, device="sim", **further)

    class Event(torch.Event):
        def __new__(cls, **further: Any) -> Any:
            return super().__new__(cls, device="sim", **further)

    def current_stream(where: Any = None) -> torch.Stream:
        return torch.Stream(stream_id=device.current_stream(), device_index=0, device_type=20)

    @contextlib.contextmanager
    def stream(one: torch.Stream | None) -> Iterator[None]:
        if one is None:
            yield
            return
        with one:
            yield

    def manual_seed(seed: int) -> None:
        device.set_random_state(seed % 2**63, 0)

    def get_rng_state(where: Any = None) -> torch.Tensor:
        return torch.tensor(device.random_state(), dtype=torch.int64).view(torch.uint8).clone()

    def set_rng_state(state: torch.Tensor, where: Any = None) -> None:
        device.set_random_state(*(int(number) for number in state.view(torch.int64).tolist()))

    members: dict[str, Callable[..., Any] | type] = {
        "Stream": Stream,
        "Event": Event,
        "stream": stream,
        "current_stream": current_stream,
        "default_stream": lambda where=None: torch.Stream(stream_id=0, device_index=0, device_type=20),
        "synchronize": lambda where=None: device.synchronize(),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "set_device": lambda where: None,
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed,
        "get_rng_state": get_rng_state,
        "set_rng_state": set_rng_state,
        "memory_allocated": lambda where=None: device.allocated(),
        "is_current_stream_capturing": lambda: device.is_capturing(),
        "SIMGraph": Graph,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    }
    for name, member in members.items():
        setattr(module, name, member)
    return module


@contextlib.contextmanager
def no_waits() -> Iterator[None]:
    """Where the host waits for the device here, it gets a RuntimeError."""
    device.waiting_is_error(True)
    try:
        yield
    finally:
        device.waiting_is_error(False)


class Trace:
    """What was launched and waited for while it is on: pairs of what and the innermost Python frames, and counts.

    ``with_launches`` False: of launches the number alone.
    """

    def __init__(self, with_launches: bool = False, frames: int = 12) -> None:
        self.waits: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()
        self.launches: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()
        self.number_of_launches = 0
        self._with_launches = with_launches
        self._frames = frames

    @property
    def number_of_waits(self) -> int:
        """How often the host waited."""
        return self.waits.total()

    def __enter__(self) -> Trace:
        self._begun = device.launches()
        device.on_wait(self._noter(self.waits))
        if self._with_launches:
            device.on_launch(self._noter(self.launches))
        return self

    def __exit__(self, *error: object) -> None:
        device.on_wait(None)
        device.on_launch(None)
        self.number_of_launches = device.launches() - self._begun

    def _noter(self, noted: collections.Counter[tuple[str, tuple[str, ...]]]) -> Callable[[str], None]:
        def note(what: str) -> None:
            frames: list[str] = []
            frame: types.FrameType | None = sys._getframe(1)
            while frame is not None and len(frames) < self._frames:
                frames.append(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}")
                frame = frame.f_back
            noted[what, tuple(frames)] += 1

        return note


class Graph:
    """A graph of kernels, ``torch.sim.SIMGraph``: ``with graph.capture(): work()``, then ``graph.replay()`` as often as
    wanted.
    """

    def __init__(self) -> None:
        self._graph: Any = None

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """What is launched here goes into the graph, and does not run. RuntimeError if it cannot be captured."""
        side = torch.sim.Stream()  # type: ignore[attr-defined]
        side.wait_stream(torch.sim.current_stream())  # type: ignore[attr-defined]
        with torch.sim.stream(side):  # type: ignore[attr-defined]
            self.capture_begin()
            try:
                yield
            finally:
                self.capture_end()

    def capture_begin(self) -> None:
        """What is launched on the current stream from now on goes into the graph."""
        self._graph = device.begin_capture()

    def capture_end(self) -> None:
        """The graph is whole. RuntimeError if it cannot be captured."""
        device.end_capture(self._graph)

    @property
    def kernels(self) -> int:
        """How many there are in it."""
        return int(self._graph.kernels)

    def replay(self) -> None:
        """Launch all of it on the current stream."""
        device.replay(self._graph)

    def reset(self) -> None:
        """Let go of what was captured."""
        self._graph = None
