"""Compiled regions (``torch.compile``): they stay compiled, and nothing of ours is there while they run.

What a compiled region does depends on what torch looks like when it is entered: function modes, switched
dispatch keys, hooks on modules and replaced functions would be compiled in, or make it be compiled again.
So everything of ours steps aside when such a region is entered (:mod:`msprobe.capture.torch.compiled.compiler`
says), and comes back when it is left. The backward pass of a compiled region is such a region, too.

What goes into a compiled module and comes out of it is recorded
(:mod:`msprobe.capture.torch.compiled.compiled_modules`), and what goes into other compiled functions and comes out.
With ``"compile": "eager"`` compiled code runs uncompiled while recording instead, and is recorded like any
other.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.autograd.function import BackwardCFunction

from msprobe import log
from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.calls.function_mode import enter_mode, remove_mode
from msprobe.capture.torch.compiled.compiled_modules import CompiledModules
from msprobe.capture.torch.compiled.compiler import (
    COMPILER_WATCH,
    ImportWatch,
    compiler_import,
    leave_our_code_alone,
    never_compile,
    torch_imports,
)
from msprobe.capture.torch.context import Context, GraphHooks
from msprobe.capture.torch.gradients.parameter_gradients import ParameterGradients
from msprobe.capture.torch.modules import module_calls
from msprobe.capture.torch.modules.module_hooks import ModuleHooks
from msprobe.capture.torch.parts import Parts
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt
from msprobe.messages import said

_without_functions = private.without_functions


class _ThreadState(threading.local):
    def __init__(self) -> None:
        # How often this thread has stepped aside.
        self.depth = 0
        self.mode_was_on = False
        # The record of a compiled function that is running.
        self.call: Any = None


class CompiledRegions:
    """Steps aside for compiled regions: a part of the recorder."""

    def __init__(
        self,
        context: Context,
        parts: Parts,
        module_hooks: ModuleHooks,
        graph: GraphHooks,
        parameters: ParameterGradients,
        stop: Callable[[], None],
    ) -> None:
        """``parts``, ``module_hooks``, ``graph``: what steps aside. ``parameters``: gets the gradients of parameters
        inside of regions. ``stop`` ends the recording.
        """
        self.session = context.session
        self.eager = self.session.settings.compile == "eager"
        self.modules = CompiledModules(context, parameters)
        self._targets = context.targets
        self._level = context.level
        self._recorded_thread = context.thread
        self._parts = parts
        self._module_hooks = module_hooks
        self._graph = graph
        self._stop = stop
        self._thread = _ThreadState()
        self._lock = threading.RLock()
        self._aside = 0
        self._patches: list[Patches] = []
        self._imports: list[ImportWatch] = []
        self._stance: Any = None
        if private_compiler.eval_frame() is not None:
            leave_our_code_alone()

    # ------------------------------------------------------------ a part of the recorder

    def outside(self, models: Any, named: Sequence[tuple[str, nn.Module]]) -> Sequence[tuple[str, nn.Module]]:
        """Those of the modules to watch that run outside of compiled regions, under their names.

        ``models``: a Module, several, or None.
        """
        self.modules.forget()
        several = models if isinstance(models, (list, tuple)) else [] if models is None else [models]
        return self.modules.plan(several, named, self.eager)

    def outside_more(self, model: nn.Module, named: Sequence[tuple[str, nn.Module]]) -> Sequence[tuple[str, nn.Module]]:
        """As :meth:`outside`, for a model that joins the others."""
        outside = self.modules.plan([model], named, self.eager)
        self.modules.attach()
        return outside

    def attach(self) -> None:
        """Begin to watch for compiled regions; the compiler may be imported later."""
        if not self._imports:
            self._imports.append(torch_imports(self._import_begins, self._import_ends))
            if private_compiler.eval_frame() is None:
                self._imports.append(compiler_import(lambda: self.session.guard(self._attach_to_compiler)))
            sys.meta_path[:0] = self._imports
        if private_compiler.eval_frame() is not None:
            self._attach_to_compiler()

    def _import_begins(self) -> None:
        """A module of torch is executed: in another thread than the one that is recorded, that thread goes on."""
        if self._recorded_thread.is_here():
            self.step_aside(is_import=True)

    def _import_ends(self) -> None:
        if self._recorded_thread.is_here():
            self.come_back()

    def begun(self) -> None:
        """Recording has begun; if that was inside a compiled region, it waits for the end of the region."""
        frame = COMPILER_WATCH.region_of(sys._getframe(1)) if self._patches and not self.eager else None
        if frame is not None:
            self.step_aside()

    def detach(self) -> None:
        """Leave nothing behind."""
        imports, self._imports = self._imports, []
        for watch in imports:
            if watch in sys.meta_path:
                sys.meta_path.remove(watch)
        self.modules.detach()
        patches, self._patches = self._patches, []
        for patch in reversed(patches):
            patch.detach()
        stance, self._stance = self._stance, None
        if stance is not None:
            self.session.guard(private_compiler.run_as_before, stance)
        self.modules.forget()
        self._aside = 0
        self._thread.__init__()  # type: ignore[misc]
        if self.eager:
            module_calls.see_regions(False)
        COMPILER_WATCH.leave(self)
        self._graph.resume()

    def pause(self) -> None:
        """A region is entered: what the compiler could see is taken away; what watches for its end stays."""
        self.modules.detach()

    def resume(self) -> None:
        """The region was left."""
        self.modules.attach()

    def _attach_to_compiler(self) -> None:
        if self._patches or not self.session.recording:
            return
        if not private.has("compiled regions"):
            # The compiler was imported just now.
            self._stop()
            return
        leave_our_code_alone()
        frames, patches, names = private_compiler.eval_frame(), Patches(), private_compiler.switches()
        if self.eager:
            log.once(
                "compiled",
                "info",
                said("compiled-runs-eagerly"),
            )
            module_calls.see_regions(True)
            self._stance = private_compiler.run_uncompiled()
            if self._stance is None:
                for name in names:
                    patches.add(frames, name, _always_off)
        else:
            COMPILER_WATCH.join(self)
            patches.add(BackwardCFunction, "apply", self._compiled_backward)
            patches.add(BackwardCFunction, "apply_boxed", self._compiled_backward)
            if private.has("compiled autograd"):
                patches.add(private_compiler.compiled_autograd(), "set_autograd_compiler", self._compiled_autograd)
            self.modules.attach()
        patches.attach()
        self._patches.append(patches)

    # ------------------------------------------------------------ stepping aside

    def step_aside(self, is_import: bool = False) -> None:
        """Take everything of ours away, until :meth:`come_back`. May be nested. ``is_import``: for an import alone."""
        thread, mode = self._thread, self._parts.mode
        thread.depth += 1
        if thread.depth > 1:
            return
        if mode is not None:
            thread.mode_was_on = remove_mode(mode)
        with self._lock:
            self._aside += 1
            if self._aside == 1:
                self._parts.pause(is_import)
                self.session.guard(self._module_hooks.pause)

    def come_back(self) -> None:
        """Put everything back."""
        thread, mode = self._thread, self._parts.mode
        if thread.depth == 0:
            return
        thread.depth -= 1
        if thread.depth > 0:
            return
        with self._lock:
            self._aside -= 1
            if self._aside == 0 and self.session.recording:
                self.session.guard(self._module_hooks.resume)
                self._parts.resume()
        if thread.mode_was_on and mode is not None and self.session.recording:
            enter_mode(mode)
        thread.mode_was_on = False

    # ------------------------------------------------------------ regions

    def entered(self, frame: types.FrameType) -> None:
        """This thread is about to run compiled code."""
        log.once(
            "compiled",
            "info",
            lambda: said("compiled-from-outside"),
        )
        self._thread.call = self.session.guard(self._begin, frame)
        self.step_aside()

    def left(self, frame: types.FrameType | None) -> None:
        """It is back."""
        self.come_back()
        call, self._thread.call = self._thread.call, None
        if call is not None:
            self.session.guard(self._end, call, frame)

    def record_region(self, frame: types.FrameType) -> None:
        """Recording has begun as this region was entered: the region is recorded as well."""
        self._thread.call = self.session.guard(self._begin, frame)

    def end_region(self, frame: types.FrameType | None) -> None:
        """It was left. The compiler, which was at work as recording began, may have been seen to switch once less."""
        if self._thread.depth:
            COMPILER_WATCH.end_region(frame)

    def _begin(self, frame: types.FrameType) -> Any:
        """A compiled function that is no pass of a module gets an entry of its own:
        ``Compiled.{function}.{n}``.
        """
        session = self.session
        function = frame.f_locals.get("fn")
        if self.modules.passing or function is None or not session.recording or session.thread.muted:
            return None
        if not self._recorded_thread.is_here():
            return None
        if self._level in ("L0", "mix"):
            self.modules.watch_all_parameters()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, nn.Module):
            name = type(owner).__name__
        else:
            name = getattr(function, "__name__", "function")
        args, kwargs = frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {})
        with _without_functions():
            return self._targets.calls.begin_call(f"Compiled.{name}", args, kwargs)

    def _end(self, call: Any, frame: types.FrameType | None) -> None:
        calls = self._targets.calls
        error = sys.exc_info()[1]
        with _without_functions():
            if frame is not None and "result" in frame.f_locals:
                calls.end_call(call, frame.f_locals["result"])
            elif error is not None:
                calls.fail_call(call, error)
            else:
                # Older versions of torch keep the result to themselves.
                calls.end_call(call, None)

    # ------------------------------------------------------------ backward

    def _compiled_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(node: Any, *args: Any) -> Any:
            if type(node).__name__ != "CompiledFunctionBackward":
                return original(node, *args)
            attempt(self.step_aside)
            try:
                return original(node, *args)
            finally:
                attempt(self.come_back)

        never_compile(apply)
        return apply

    def _compiled_autograd(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whole backward passes are about to be compiled: hooks on graph nodes would become part of them."""

        def set_autograd_compiler(compiler: Any, *args: Any) -> Any:
            attempt(self._autograd_compiler_set, compiler)
            return original(compiler, *args)

        never_compile(set_autograd_compiler)
        return set_autograd_compiler

    def _autograd_compiler_set(self, compiler: Any) -> None:
        if compiler is None:
            self._graph.resume()
            return
        self._graph.suspend()
        log.once(
            "compiled autograd",
            "info",
            said("compiled-autograd"),
        )


def _always_off(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def set_eval_frame(callback: Any) -> Any:
        return original(None)

    never_compile(set_eval_frame)
    return set_eval_frame
