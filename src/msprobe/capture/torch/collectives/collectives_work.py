"""When an asynchronous collective is done: learned from the user's own questions, never asked for.

A collective that does not block gives the user a handle: a ``Work`` or a ``Future``. The user keeps exactly
that object. While recording, the methods by which such an object says "done" (``wait``, ``is_completed``,
``then`` ...) notify us as well, in the thread and at the moment in which the user learns it. So the buffers are
read after they were filled and before the user goes on. Handles that nobody asks about are looked at when
recording ends, without waiting.

No lock is held anywhere: a handle may die, and notify us so, in the middle of anything. What has to happen once
is decided by who takes an entry out of a dictionary.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.session import Session
from msprobe.capture.torch import private
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt, guarded, pass_on

# Methods of a handle that return when its work is done, or ordered before all that follows on the device.
_WAITS = ("wait", "synchronize", "block_current_stream", "value")
# Methods that say whether it is.
_QUESTIONS = ("is_completed", "done")
# Methods that take a function to be called with the handle when it is.
_CONTINUATIONS = ("then", "add_done_callback")


def is_handle(value: Any) -> bool:
    """True for what an asynchronous collective returns."""
    return isinstance(value, (torch.distributed.Work, private.Future))


class Unfinished:
    """A collective whose buffers are not filled yet.

    ``finish(waited)`` writes its results; ``waited`` is False if the user never learned that it was done.
    ``buffers``: the tensors that take part. While their version counters stand still, nobody has written over
    what the collective left there.
    """

    __slots__ = ("__weakref__", "buffers", "finish", "handles", "parts")

    def __init__(self, finish: Callable[[bool], None], buffers: Sequence[torch.Tensor]) -> None:
        self.finish = finish
        self.buffers = [(tensor, tensor_version(tensor)) for tensor in buffers]
        # It consists of so many pieces of work; each may have several handles: id -> (handle, piece).
        self.parts: set[int] = set()
        self.handles: dict[int, tuple[weakref.ref[Any], int]] = {}

    def is_untouched(self) -> bool:
        """True if no buffer was written since the collective was issued, as far as torch knows."""
        return all(tensor_version(tensor) == version for tensor, version in self.buffers)


def tensor_version(tensor: torch.Tensor) -> int:
    """The version counter of a tensor; -1 for one that has none."""
    try:
        return int(tensor._version)
    except Exception as error:
        pass_on(error)
        return -1


class _Continuation:
    """Stands for a function that waits for a future; alive as long as that is."""


class WorkWatch:
    """The collectives under way, and the classes whose handles are listened to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[Unfinished, None] = {}
        self._by_handle: dict[int, dict[Unfinished, int]] = {}
        self._patches: list[Patches] = []
        self._patched: set[type] = set()
        # The thread that looks at the handles itself.
        self._looking: int | None = None

    def watch(self, unfinished: Unfinished, handles: Sequence[Any]) -> None:
        """``unfinished`` is done when all ``handles`` are."""
        self._open[unfinished] = None
        for part, handle in enumerate(handles):
            unfinished.parts.add(part)
            self._link(unfinished, handle, part)
            self._listen_to(type(handle))

    # ------------------------------------------------------------ what handles say

    def _link(self, unfinished: Unfinished, handle: Any, part: int) -> None:
        identity = id(handle)
        weak = weakref.ref(unfinished)

        # Not the handle itself: how long it lives, and what it keeps alive, is the user's affair.
        @guarded
        def lost(_: Any) -> None:
            self._by_handle.pop(identity, None)
            work = weak()
            if work is not None:
                self._lost(work, identity)

        unfinished.handles[identity] = (weakref.ref(handle, lost), part)
        self._by_handle.setdefault(identity, {})[unfinished] = part

    def _lost(self, unfinished: Unfinished, identity: int) -> None:
        """A handle is gone that was never asked; if it was the last of its piece, nobody will learn when that
        is done.
        """
        unfinished.handles.pop(identity, None)
        left = {part for _, part in list(unfinished.handles.values())}
        if not unfinished.parts <= left:
            self._drop(unfinished)

    def _drop(self, unfinished: Unfinished) -> None:
        self._open.pop(unfinished, None)
        for identity in list(unfinished.handles):
            linked = self._by_handle.get(identity)
            if linked is not None:
                linked.pop(unfinished, None)
                if not linked:
                    self._by_handle.pop(identity, None)
        unfinished.handles = {}
        unfinished.buffers = []

    def _done(self, handle: Any) -> None:
        for unfinished, part in list(self._by_handle.pop(id(handle), {}).items()):
            unfinished.handles.pop(id(handle), None)
            self._done_part(unfinished, part)

    def _done_part(self, unfinished: Unfinished, part: int) -> None:
        unfinished.parts.discard(part)
        if not unfinished.parts:
            self.finish(unfinished, True)

    def finish(self, unfinished: Unfinished, waited: bool) -> None:
        """Write the results of ``unfinished``, once."""
        if self._open.pop(unfinished, self) is None:
            self._session.guard(unfinished.finish, waited)
            self._drop(unfinished)

    # ------------------------------------------------------------ the end

    def look(self) -> None:
        """Recording pauses: take the results that are there although nobody has asked. Does not wait."""
        self._looking = threading.get_ident()
        try:
            for unfinished in list(self._open):
                done = {part for reference, part in list(unfinished.handles.values()) if _says_done(reference())}
                if unfinished.parts <= done and unfinished.is_untouched():
                    self.finish(unfinished, False)
        finally:
            self._looking = None

    def clear(self) -> None:
        """The step is over: what is not done by now stays unfinished."""
        for unfinished in list(self._open):
            self._drop(unfinished)
        self._by_handle.clear()

    def pause(self) -> None:
        """Give the classes of handles their own methods back until :meth:`resume`."""
        for patch in reversed(self._patches):
            patch.detach()

    def resume(self) -> None:
        """Listen again."""
        for patch in self._patches:
            patch.attach()

    def attach(self) -> None:
        """Listen again to the handles of collectives that were issued before."""
        for unfinished in list(self._open):
            for reference, _ in list(unfinished.handles.values()):
                handle = reference()
                if handle is not None and not isinstance(handle, _Continuation):
                    self._listen_to(type(handle))

    def detach(self) -> None:
        """Give the classes of handles their own methods back."""
        patches, self._patches = self._patches, []
        for patch in reversed(patches):
            patch.detach()
        self._patched.clear()

    # ------------------------------------------------------------ listening

    def _listen_to(self, kind: type) -> None:
        if kind in self._patched:
            return
        patches = Patches()
        for owner in kind.__mro__:
            if owner in self._patched:
                continue
            # A class that answers itself is listened to itself; what it hands on to its base is reported twice,
            # which does no harm.
            self._patched.add(owner)
            own = vars(owner)
            for names, make in (
                (_WAITS, self._waiting),
                (_QUESTIONS, self._asking),
                (_CONTINUATIONS, self._continuing),
                (("get_future",), self._handing_out),
            ):
                for name in names:
                    if name in own:
                        patches.add(owner, name, make)
        patches.attach()
        self._patches.append(patches)

    def _waiting(self, original: Any) -> Any:
        @functools.wraps(original)
        def wait(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(handle, *args, **kwargs)
            attempt(self._done, handle)
            return result

        return wait

    def _asking(self, original: Any) -> Any:
        @functools.wraps(original)
        def is_completed(handle: Any, *args: Any, **kwargs: Any) -> Any:
            answer = original(handle, *args, **kwargs)
            if answer is True and self._looking != threading.get_ident():
                attempt(self._done, handle)
            return answer

        return is_completed

    def _continuing(self, original: Any) -> Any:
        @functools.wraps(original)
        def then(handle: Any, callback: Any, *args: Any, **kwargs: Any) -> Any:
            continuation = attempt(self._continuation_of, handle) if callable(callback) else None
            if continuation is None:
                return original(handle, callback, *args, **kwargs)

            def first(future: Any) -> Any:
                attempt(self._done, continuation)
                return callback(future)

            return original(handle, first, *args, **kwargs)

        return then

    def _continuation_of(self, handle: Any) -> _Continuation | None:
        """What stands for the callback of a handle, which will be called with another object for the same future, and
        this one may be gone by then; None if nobody waits for the handle.
        """
        waiting = list(self._by_handle.get(id(handle), {}).items())
        if not waiting:
            return None
        continuation = _Continuation()
        for unfinished, part in waiting:
            self._link(unfinished, continuation, part)
        return continuation

    def _handing_out(self, original: Any) -> Any:
        @functools.wraps(original)
        def get_future(handle: Any, *args: Any, **kwargs: Any) -> Any:
            future = original(handle, *args, **kwargs)
            attempt(self._handed_out, handle, future)
            return future

        return get_future

    def _handed_out(self, handle: Any, future: Any) -> None:
        for unfinished, part in list(self._by_handle.get(id(handle), {}).items()):
            self._link(unfinished, future, part)
            self._listen_to(type(future))


def _says_done(handle: Any) -> bool:
    if handle is None or isinstance(handle, _Continuation):
        return False
    try:
        return bool(handle.done() if isinstance(handle, private.Future) else handle.is_completed())
    except Exception as error:
        pass_on(error)
        return False
