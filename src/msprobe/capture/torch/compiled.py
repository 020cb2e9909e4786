"""Compiled regions (``torch.compile``): they stay compiled, and nothing of ours is there while they run.

What a compiled region does depends on what torch looks like when it is entered: function modes, switched
dispatch keys, hooks on modules and replaced functions would be compiled in, or make it be compiled again.
So everything of ours steps aside when such a region is entered, and comes back when it is left. The
entrance is the one function that every compiled callable switches the compiler on and off with. The
backward pass of a compiled region is such a region, too.

What goes into a compiled module and comes out of it is recorded
(:mod:`msprobe.capture.torch.compiled_modules`). With ``"compile": "eager"`` compiled code runs uncompiled
while recording instead, and is recorded like any other.
"""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from torch import nn
from torch.autograd.function import BackwardCFunction

from msprobe import log
from msprobe.capture.torch.calls import enter_mode, remove_mode
from msprobe.capture.torch.compiled_modules import CompiledModules
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.recorder import TorchRecorder

_EVAL_FRAME = "torch._dynamo.eval_frame"
_COMPILED_AUTOGRAD = "torch._C._dynamo.compiled_autograd"


class _ThreadState(threading.local):
    """Where one thread is: in a region that it entered by ``token``, and how often it has stepped aside."""

    def __init__(self) -> None:
        self.token: Any = None
        self.compiler_on = False
        # Entered by switching the compiler on; it is left when that goes off.
        self.only_on = False
        self.depth = 0
        self.mode_was_on = False


class CompiledRegions:
    """Steps aside for compiled regions: a part of the recorder."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self.recorder = recorder
        self.session = recorder.session
        self.eager = recorder.settings.compile == "eager"
        self.modules = CompiledModules(recorder)
        self._thread = _ThreadState()
        self._lock = threading.RLock()
        self._aside = 0
        self._patches: list[Patches] = []
        self._finder: _CompilerImport | None = None
        self._stance: Any = None
        self._is_entrance: dict[types.CodeType, bool] = {}

    # ------------------------------------------------------------ a part of the recorder

    def outside(self, models: Any, named: Sequence[tuple[str, nn.Module]]) -> Sequence[tuple[str, nn.Module]]:
        """Those of the modules to watch that run outside of compiled regions, under their names."""
        return self.modules.plan(models, named, self.eager)

    def attach(self) -> None:
        """Begin to watch for compiled regions; the compiler may be imported later."""
        if _EVAL_FRAME in sys.modules:
            self._attach_to_compiler()
        elif self._finder is None:
            self._finder = _CompilerImport(self._attach_to_compiler)
            sys.meta_path.insert(0, self._finder)

    def detach(self) -> None:
        """Leave nothing behind."""
        finder, self._finder = self._finder, None
        if finder is not None and finder in sys.meta_path:
            sys.meta_path.remove(finder)
        self.modules.detach()
        patches, self._patches = self._patches, []
        for one in reversed(patches):
            one.detach()
        self._restore_stance()
        self._aside = 0
        self._thread.__init__()  # type: ignore[misc]
        self.recorder.hooks.suspended = False

    def pause(self) -> None:
        """A region is entered: what the compiler could see is taken away; what watches for its end stays."""
        self.modules.detach()

    def resume(self) -> None:
        """The region was left."""
        self.modules.attach()

    def _attach_to_compiler(self) -> None:
        frames: Any = sys.modules[_EVAL_FRAME]
        _leave_our_code_alone()
        if self.eager:
            self._say(
                'torch.compile: while recording, compiled parts run uncompiled, as "compile": "eager" asks.'
            )
            if self._set_stance(frames):
                return
        patches = Patches()
        patches.add(frames, "set_eval_frame", self._entrance)
        # Where the compiler keeps its own name for the same function.
        if getattr(frames, "_maybe_set_eval_frame", None) is frames.set_eval_frame:
            patches.add(frames, "_maybe_set_eval_frame", self._entrance)
        if not self.eager:
            patches.add(BackwardCFunction, "apply", self._compiled_backward)
            patches.add(BackwardCFunction, "apply_boxed", self._compiled_backward)
            compiled_autograd = sys.modules.get(_COMPILED_AUTOGRAD)
            patches.add(compiled_autograd, "set_autograd_compiler", self._compiled_autograd)
            self.modules.attach()
        patches.attach()
        self._patches.append(patches)

    def _say(self, text: str) -> None:
        log.once("compiled", "info", text)

    # ------------------------------------------------------------ run uncompiled

    def _set_stance(self, frames: Any) -> bool:
        """Ask the compiler to run everything uncompiled; False if it cannot be asked (before torch 2.6)."""
        if not hasattr(frames, "_set_stance"):
            return False
        self._stance = frames._set_stance(frames.DynamoStance("force_eager"))
        return True

    def _restore_stance(self) -> None:
        stance, self._stance = self._stance, None
        if stance is not None:
            self.session.guard(sys.modules[_EVAL_FRAME]._set_stance, stance)

    # ------------------------------------------------------------ stepping aside

    def step_aside(self) -> None:
        """Take everything of ours away, until :meth:`come_back`. May be nested."""
        thread, recorder = self._thread, self.recorder
        thread.depth += 1
        if thread.depth > 1:
            return
        if recorder.mode is not None:
            thread.mode_was_on = remove_mode(recorder.mode)
        with self._lock:
            self._aside += 1
            if self._aside == 1:
                for part in reversed(recorder.parts):
                    self.session.guard(getattr(part, "pause", part.detach))
                self.session.guard(recorder.modules.pause)

    def come_back(self) -> None:
        """Put everything back."""
        thread, recorder = self._thread, self.recorder
        if thread.depth == 0:
            return
        thread.depth -= 1
        if thread.depth > 0:
            return
        with self._lock:
            self._aside -= 1
            if self._aside == 0 and self.session.recording:
                self.session.guard(recorder.modules.resume)
                for part in recorder.parts:
                    self.session.guard(getattr(part, "resume", part.attach))
        if thread.mode_was_on and recorder.mode is not None and self.session.recording:
            enter_mode(recorder.mode)
        thread.mode_was_on = False

    # ------------------------------------------------------------ the entrance

    def _entrance(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``set_eval_frame``: None switches the compiler off for this thread, anything else on.

        A compiled callable calls it several times: off, on, off, and back to what it was before; older ones
        only on and back. All calls of one region come from one frame.
        """

        def set_eval_frame(callback: Any) -> Any:
            # While the compiler is on it would compile what runs here, so it goes off first and on last.
            if callback is None:
                prior = original(None)
                self._switched_off(sys._getframe(1))
                return prior
            if self.eager:
                return original(None)
            self._switched_on(sys._getframe(1))
            return original(callback)

        _never_compile(set_eval_frame)
        return set_eval_frame

    def _switched_off(self, frame: types.FrameType) -> None:
        thread = self._thread
        if self.eager:
            return
        if thread.token is None:
            self._enter(frame, only_entrances=True)
            return
        if _token_of(frame) is not thread.token:
            self._check(frame)
        elif thread.compiler_on and not thread.only_on:
            thread.compiler_on = False
        else:
            self._leave()

    def _switched_on(self, frame: types.FrameType) -> None:
        thread = self._thread
        if thread.token is None:
            self._enter(frame, only_entrances=False)
            thread.only_on = thread.token is not None
        if thread.token is not None and _token_of(frame) is thread.token:
            thread.compiler_on = True

    def _enter(self, frame: types.FrameType, only_entrances: bool) -> None:
        if only_entrances and not self._is_compiled_callable(frame):
            return
        thread = self._thread
        thread.token = _token_of(frame)
        thread.only_on = False
        thread.compiler_on = False
        self._say(
            "torch.compile: compiled parts stay compiled; what is inside them is not recorded, only what goes"
            ' into compiled modules and comes out. To look inside, set "compile": "eager" (they then run'
            " uncompiled)."
        )
        self.step_aside()

    def _leave(self) -> None:
        self._thread.token = None
        self._thread.compiler_on = False
        self.come_back()

    def _check(self, frame: types.FrameType | None) -> None:
        """Leave a region whose frame is gone without having said so."""
        token = self._thread.token
        if not isinstance(token, types.FrameType):
            return
        while frame is not None:
            if frame is token:
                return
            frame = frame.f_back
        self._leave()

    def _is_compiled_callable(self, frame: types.FrameType) -> bool:
        """True for the frame of a compiled callable, False for one that only switches the compiler off."""
        while frame.f_code.co_name == "_maybe_set_eval_frame" and frame.f_back is not None:
            frame = frame.f_back
        code = frame.f_code
        known = self._is_entrance.get(code)
        if known is None:
            frames: Any = sys.modules[_EVAL_FRAME]
            owner = frame.f_locals.get("self")
            known = (
                code.co_filename == frames.__file__
                and isinstance(owner, frames._TorchDynamoContext)
                and not isinstance(owner, frames.DisableContext)
            )
            # A method is shared by both kinds; the functions that wrap a callable have their code to
            # themselves.
            if code.co_name not in ("__enter__", "__exit__"):
                self._is_entrance[code] = known
        return known

    # ------------------------------------------------------------ backward

    def _compiled_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(node: Any, *args: Any) -> Any:
            if type(node).__name__ != "CompiledFunctionBackward":
                return original(node, *args)
            self.step_aside()
            try:
                return original(node, *args)
            finally:
                self.come_back()

        _never_compile(apply)
        return apply

    def _compiled_autograd(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whole backward passes are about to be compiled: hooks on graph nodes would become part of them."""

        def set_autograd_compiler(compiler: Any, *args: Any) -> Any:
            hooks = self.recorder.hooks
            hooks.suspended = compiler is not None
            if compiler is not None:
                hooks.remove()
                self.recorder.modules.parameters.remove()
                log.once(
                    "compiled autograd",
                    "info",
                    "torch.compile: with compiled autograd the backward pass is not recorded.",
                )
            return original(compiler, *args)

        _never_compile(set_autograd_compiler)
        return set_autograd_compiler


def _token_of(frame: types.FrameType) -> Any:
    """What stands for a region: the frame of the compiled callable; for a ``with`` block its context
    manager.
    """
    while frame.f_code.co_name == "_maybe_set_eval_frame" and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_name in ("__enter__", "__exit__"):
        return frame.f_locals.get("self")
    return frame


def _never_compile(function: Any) -> None:
    """Have the compiler run this function as it is, should it come by."""
    frames: Any = sys.modules[_EVAL_FRAME]
    frames.skip_code(function.__code__)


_told = False


def _leave_our_code_alone() -> None:
    """Have the compiler never look into our files: hooks on graph nodes may run while it is on."""
    global _told
    if _told:
        return
    _told = True
    for name in ("torch._dynamo.trace_rules", "torch._dynamo.skipfiles"):
        add = getattr(sys.modules.get(name), "add", None)
        if add is not None:
            add("msprobe")
            return


class _CompilerImport(MetaPathFinder):
    """Tells when the compiler is imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Find the compiler's module as the import system would, and see it being executed."""
        if fullname != _EVAL_FRAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            loader, then = spec.loader, self._then
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                del loader.exec_module
                execute(module)
                then()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
