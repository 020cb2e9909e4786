"""torch's compiler from outside: when it is imported, and when a thread enters and leaves a compiled
region.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any, Protocol

from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt, report


class Regions(Protocol):
    """Whoever wants to know of compiled regions. ``frame`` is that of the compiled callable."""

    def entered(self, frame: types.FrameType) -> None:
        """The thread is about to run compiled code."""

    def left(self, frame: types.FrameType | None) -> None:
        """It is back; ``frame`` is None where that is learned late."""


class _ThreadState(threading.local):
    def __init__(self) -> None:
        # The region this thread is in: see _token_of.
        self.token: Any = None
        self.compiler_on = False
        # Entered by switching the compiler on; it is left when that goes off.
        self.only_on = False


class RegionWatch:
    """Follows how compiled callables switch the compiler on and off: all of them do so by one function."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self._thread = _ThreadState()
        self._is_entrance: dict[types.CodeType, bool] = {}

    def forget(self) -> None:
        """This thread is in no region."""
        self._thread.token = None

    def region_of(self, frame: types.FrameType | None) -> types.FrameType | None:
        """The compiled callable that runs in this thread, as far as ``frame`` and its callers say; it is
        then followed to its end.
        """
        while frame is not None:
            if self._is_compiled_callable(frame):
                thread = self._thread
                thread.token = frame
                thread.compiler_on = True
                # Older compilers switch off once only, at the end; they have no need of both names.
                thread.only_on = private_compiler.switches_off_once()
                return frame
            frame = frame.f_back
        return None

    def replacement(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``set_eval_frame``, watched. None switches the compiler off for this thread, anything else on.

        A compiled callable calls it several times: off, on, off, and back to what it was before; older ones
        only on and back. All calls of one region come from one frame.
        """

        def set_eval_frame(callback: Any) -> Any:
            # While the compiler is on it would compile what runs here, so it goes off first and on last.
            if callback is None:
                prior = original(None)
                attempt(self._switched_off, sys._getframe(1))
                return prior
            attempt(self._switched_on, sys._getframe(1))
            return original(callback)

        never_compile(set_eval_frame)
        return set_eval_frame

    def _switched_off(self, frame: types.FrameType) -> None:
        thread = self._thread
        frame = _own_frame(frame)
        if thread.token is None:
            if self._is_compiled_callable(frame):
                self._enter(frame)
        elif _token_of(frame) is not thread.token:
            self._check(frame)
        elif thread.compiler_on and not thread.only_on:
            thread.compiler_on = False
        else:
            self._leave(frame)

    def _switched_on(self, frame: types.FrameType) -> None:
        thread = self._thread
        frame = _own_frame(frame)
        if thread.token is None:
            self._enter(frame)
            thread.only_on = True
        if _token_of(frame) is thread.token:
            thread.compiler_on = True

    def _enter(self, frame: types.FrameType) -> None:
        thread = self._thread
        thread.token = _token_of(frame)
        thread.only_on = False
        thread.compiler_on = False
        self.regions.entered(frame)

    def _leave(self, frame: types.FrameType | None) -> None:
        self._thread.token = None
        self._thread.compiler_on = False
        self.regions.left(frame)

    def _check(self, frame: types.FrameType | None) -> None:
        """Leave a region whose frame is gone without having said so."""
        token = self._thread.token
        if not isinstance(token, types.FrameType):
            return
        while frame is not None:
            if frame is token:
                return
            frame = frame.f_back
        self._leave(None)

    def _is_compiled_callable(self, frame: types.FrameType) -> bool:
        """True for the frame of a compiled callable, False for one that only switches the compiler off."""
        code = frame.f_code
        # Looking at the variables of a frame can keep them alive: not at those of the user's.
        if code.co_filename != private_compiler.eval_frame().__file__:
            return False
        known = self._is_entrance.get(code)
        if known is None:
            owner = frame.f_locals.get("self")
            known = private_compiler.runs_compiled(owner)
            # A method is shared by both kinds; the functions that wrap a callable have their code to
            # themselves.
            if code.co_name not in ("__enter__", "__exit__"):
                self._is_entrance[code] = known
        return known


def _own_frame(frame: types.FrameType) -> types.FrameType:
    """The frame that switches the compiler; there may be small functions of torch's and ours in between."""
    while private_compiler.is_switch(frame.f_code.co_name) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _token_of(frame: types.FrameType) -> Any:
    """What stands for a region: the frame of the compiled callable; for a ``with`` block its context
    manager.
    """
    if frame.f_code.co_name in ("__enter__", "__exit__"):
        return frame.f_locals.get("self")
    return frame


class CompilerWatch:
    """The one watch over compiled regions in this process: whoever wants to know of them joins it.

    Several that replace the compiler's switch one over the other would see it switched twice, and could not be taken
    away in any order.
    """

    def __init__(self) -> None:
        self._watch = RegionWatch(self)
        self._joined: list[Regions] = []
        self._patches: Patches | None = None

    def join(self, regions: Regions) -> None:
        """Report compiled regions to ``regions`` from now on. The compiler must have been imported."""
        if not any(other is regions for other in self._joined):
            self._joined.append(regions)
        if self._patches is None:
            self._patches = Patches()
            for name in private_compiler.switches():
                self._patches.add(private_compiler.eval_frame(), name, self._watch.replacement)
            self._patches.attach()

    def leave(self, regions: Regions) -> None:
        """Report nothing more to ``regions``, not even the end of a region that runs now."""
        self._joined = [other for other in self._joined if other is not regions]
        if not self._joined and self._patches is not None:
            patches, self._patches = self._patches, None
            patches.detach()
            self._watch.forget()

    def region_of(self, frame: types.FrameType | None) -> types.FrameType | None:
        return self._watch.region_of(frame)

    def end_region(self, frame: types.FrameType | None) -> None:
        """The region that this thread is in is over, which the compiler's switch does not show."""
        self._watch.forget()
        self.left(frame)

    def entered(self, frame: types.FrameType) -> None:
        for regions in list(self._joined):
            regions.entered(frame)

    def left(self, frame: types.FrameType | None) -> None:
        for regions in reversed(self._joined):
            regions.left(frame)


def never_compile(function: Any) -> None:
    """Have the compiler run this function as it is, should it come by."""
    private_compiler.skip_code(function.__code__)


#: See :class:`CompilerWatch`.
COMPILER_WATCH = CompilerWatch()

_is_said = False


def leave_our_code_alone() -> None:
    """Have the compiler never look into our files: hooks on graph nodes may run while it is on."""
    global _is_said
    if _is_said:
        return
    _is_said = True
    private_compiler.skip_package("msprobe")


def _nothing() -> None:
    return None


class ImportWatch(MetaPathFinder):
    """Does something before and after a module is executed that is imported first; to be put on ``sys.meta_path``."""

    def __init__(
        self, wants: Callable[[str], bool], before: Callable[[], None] = _nothing, after: Callable[[], None] = _nothing
    ) -> None:
        """``wants``: whether a module of this full name is meant. ``before`` and ``after`` must not raise."""
        self._wants = wants
        self._before = before
        self._after = after

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Find the module as the import system would without this, and see it being executed."""
        try:
            return self._find(fullname, path, target)
        except Exception as error:
            report("an import", error)
            return None

    def _find(self, fullname: str, path: Any, target: Any) -> Any:
        if not self._wants(fullname):
            return None
        finders = list(sys.meta_path)
        place = next((i for i, finder in enumerate(finders) if finder is self), -1)
        for finder in finders[place + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute, before, after = loader.exec_module, self._before, self._after

            def exec_module(module: types.ModuleType) -> None:
                attempt(loader.__dict__.pop, "exec_module", None)
                attempt(before)
                try:
                    execute(module)
                finally:
                    attempt(after)

            # A loader that takes no attributes is that of a module of C code, which notes nothing of ours.
            with contextlib.suppress(AttributeError):
                loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def compiler_import(then: Callable[[], None]) -> ImportWatch:
    """Calls ``then`` when the compiler has been imported."""
    return ImportWatch(lambda name: name == private.EVAL_FRAME, after=then)


def torch_imports(before: Callable[[], None], after: Callable[[], None]) -> ImportWatch:
    """Calls ``before`` and ``after`` around the execution of a module of torch: it may note by identity what it finds,
    and for ever.
    """
    return ImportWatch(lambda name: name.startswith(("torch.", "torch_npu.")), before, after)
