"""The text of a script that reproduces a call, put together without importing torch as its parts do."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

_PARTS = {
    "pytorch": ("standalone.py", "standalone_side.py", "standalone_places.py", "standalone_main.py"),
    "mindspore": ("mindspore/standalone.py",),
}


def text_of(content: dict[str, Any], framework: str = "pytorch") -> str:
    """The script of the call that is described, for ``pytorch`` or ``mindspore``."""
    names = _PARTS.get(framework, _PARTS["pytorch"])
    if content["type"] == "NPU":  # what the reference computes in place of kernels of torch_npu
        names = (*names[:-1], "torch/fused.py", names[-1])
    first, *rest = (files("msprobe.precheck").joinpath(name).read_text("utf-8") for name in names)
    # What further parts say of themselves is of this package.
    own = "\n".join(part.partition("from __future__ import annotations\n")[2] for part in rest)
    lines = [line for line in f"{first}\n{own}".splitlines(keepends=True) if not line.startswith("from msprobe")]
    text = json.dumps(content).replace("\\", "\\\\").replace("'", "\\'")
    start = 'if __name__ == "__main__":\n    raise SystemExit(main(CALL, __file__))\n'
    return f"{''.join(lines)}\nCALL = json.loads('{text}')\n\n{start}"
