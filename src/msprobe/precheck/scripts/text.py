"""The text of a script that reproduces a call, put together without importing torch as its parts do."""

from __future__ import annotations

import ast
import json
from importlib.resources import files
from typing import Any

from msprobe.messages import ENTRIES, Language, language
from msprobe.precheck.side.ending import ending

_FUTURE = "from __future__ import annotations\n"
# What is named in an annotation stands before it. The first one cleans the places of modules.
_FIRST = "side/first.py"
_PARTS = {
    "pytorch": (
        *("scripts/sentences.py", "side/types.py", "side/words.py", "side/trees.py", "side/machine.py"),
        *("side/functions.py", "side/places.py", "side/elements.py", "../signed_parts.py", "../signed_errors.py"),
        *("side/strict.py", "side/ending.py", "scripts/call.py", "scripts/main.py"),
    ),
    "mindspore": ("scripts/sentences.py", "side/elements.py", "side/cosine.py", "mindspore/standalone.py"),
}
# The one whose first lines say what the script is.
_HEAD = {"pytorch": "scripts/call.py", "mindspore": "mindspore/standalone.py"}


def text_of(content: dict[str, Any], framework: str = "pytorch", spoken: Language | None = None) -> str:
    """The script of the call that is described, for ``pytorch`` or ``mindspore``. ``spoken``: the language of its
    sentences; by default the one that is asked for.
    """
    framework = framework if framework in _PARTS else "pytorch"
    names = _PARTS[framework]
    if content["type"] == "NPU":  # what the reference computes in place of kernels of torch_npu
        names = (*names[:-1], "torch/fused.py", names[-1])
    head = _source(_HEAD[framework]).partition(_FUTURE)[0]
    # What the parts say of themselves is of this package. `from __future__` is an import, which none may come before
    # the places of modules are clean; Python demands that it comes first.
    first = _source(_FIRST).partition("import sys\n")
    own = "\n".join(_source(name).partition(_FUTURE)[2] for name in names)
    text = "".join(_without_own_imports(f"{head}{first[1]}{first[2]}\n{own}"))
    return f"{text}{_sentences(text, spoken or language())}{ending(content)}"


def _sentences(text: str, spoken: Language) -> str:
    """The sentences whose names are in a script: to say them it needs no catalogue."""
    words = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    names = sorted({word for word in words if isinstance(word, str) and word in ENTRIES})
    texts = {name: [ENTRIES[name].names, ENTRIES[name].text(spoken)] for name in names}
    return f"\nSENTENCES.update({json.dumps(texts, ensure_ascii=False, indent=4)})\n"


def _source(name: str) -> str:
    place = files("msprobe") if name.startswith("../") else files("msprobe.precheck")
    return place.joinpath(name.removeprefix("../")).read_text("utf-8")


def _without_own_imports(text: str) -> list[str]:
    """The lines of a file but for those that import parts of this package: all of them are in the file."""
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if (node.module or "").partition(".")[0] == "msprobe"]
    dropped = {number for node in own for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return [line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in dropped]
