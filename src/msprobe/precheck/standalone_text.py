"""The text of a script that reproduces a call, put together without importing torch as its parts do."""

from __future__ import annotations

import ast
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
    lines = _without_own_imports(f"{first}\n{own}")
    text = json.dumps(content).replace("\\", "\\\\").replace("'", "\\'")
    start = 'if __name__ == "__main__":\n    raise SystemExit(main(CALL, __file__))\n'
    return f"{''.join(lines)}\nCALL = json.loads('{text}')\n\n{start}"


def _without_own_imports(text: str) -> list[str]:
    """The lines of a file but for those that import parts of this package: all of them are in the file."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    own = [node for node in found if (node.module or "").partition(".")[0] == "msprobe"]
    dropped = {number for node in own for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return [line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in dropped]
