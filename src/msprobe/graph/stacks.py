"""Where the calls of a graph came from, whole or as the one line of the user's code that matters.

Rules for the one line: mindstudio-probe 8.1.1.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from msprobe.graph.node_kinds import CALL, GROUP
from msprobe.graph.tree import Tree
from msprobe.messages import said, translated
from msprobe.store.part import DumpPart

_TEMPLATE = re.compile(r"\w*Template\(|api_template\(")


def stacks_of(part: DumpPart, tree: Tree) -> list[Sequence[str]]:
    """The frames of each node, innermost first; a backward node without frames has those of its forward node."""
    stacks_found: list[Sequence[str]] = []
    for name, kind in zip(tree.names, tree.kinds.tolist(), strict=True):
        frames: Sequence[str] = part.stack(name)
        if not frames and kind != GROUP and "backward" in name:
            frames = part.stack(_forward_name(name)) or (_no_stack(name),)
        stacks_found.append(frames)
    return stacks_found


def _forward_name(name: str) -> str:
    words = name.split(".")
    if words[-1] == "backward":
        return ".".join((*words[:-1], "forward"))
    if len(words) > 1 and words[-2] == "backward":
        return ".".join((*words[:-2], "forward", "0"))
    return name


def _no_stack(name: str) -> str:
    return translated(said("no-stack-of", name))


def shorten(tree: Tree, stacks: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """For modules the line that calls them, for calls the line behind a wrapper of the recorder; else all frames."""
    known: dict[tuple[int, str], Sequence[str]] = {}
    stacks_found: list[Sequence[str]] = []
    for name, kind, frames in zip(tree.names, tree.kinds.tolist(), stacks, strict=True):
        own = ""
        if kind != CALL:
            words = name.split(".")
            own = words[-4] if len(words) > 3 else ""
        key = (id(frames), own)
        short = known.get(key)
        if short is None:
            short = known[key] = _after_template(frames) if kind == CALL else _calling(frames, own)
        stacks_found.append(short)
    return stacks_found


def _calling(frames: Sequence[str], module: str) -> Sequence[str]:
    wanted = f"{module}("
    return next(([frame] for frame in frames if wanted in frame), frames) if module else frames


def _after_template(frames: Sequence[str]) -> Sequence[str]:
    for frame, behind in itertools.pairwise(frames):
        if _TEMPLATE.search(frame):
            return [behind]
    return frames
