"""Which function of the framework a call was made in: users call that one, and look for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FRAME = re.compile(r"File (?P<file>.*?), line \d+, in (?P<function>\w+)")
#: Files of the framework as it is installed, but for its modules, optimizers and the backward pass: these have records
#: of their own. MindSpore has the functions that users call below `ops` and `mint`; what stands elsewhere runs cells
#: and graphs.
_FRAMEWORK = re.compile(
    r"[\\/](?:site|dist)-packages[\\/](?:torch[\\/](?!optim|autograd|nn[\\/]modules)|mindspore[\\/](?:ops|mint)[\\/](?!composite))"
)
#: What stands around functions and methods of the framework.
_AROUND = frozenset(
    "wrapper wrapped inner decorate_context backward forward construct step checkpoint fn new_func".split()
)


def public_function(stack: Sequence[str]) -> str:
    """The outermost public function of the framework that a call was made in, from its call stack, innermost frame
    first: ``clip_grad_norm_`` for ``torch._foreach_norm``; empty if the user's program made the call.
    """
    function = ""
    for text in stack:
        frame = _FRAME.match(text)
        if frame is None or not _FRAMEWORK.search(frame["file"]):
            break
        if not frame["function"].startswith("_") and frame["function"] not in _AROUND:
            function = frame["function"]
    return function
