"""Which modules of a trainer make up one of an engine, by their names.

An engine fuses what a trainer writes apart: ``qkv_proj`` is ``q_proj``, ``k_proj`` and ``v_proj``; ``gate_up_proj`` is
``gate_proj`` and ``up_proj``. The rule is the name: stems of siblings, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST_FUSED = 8
_ENDINGS = ("_proj", "")
#: What an engine calls a module -> what trainers call it.
_OTHER_NAMES = {
    "model": ("transformer", "gpt_neox", "backbone"),
    "act_fn": ("activation_fn", "act"),
    "block_sparse_moe": ("mlp",),
    "mlp": ("feed_forward",),
    "lm_head": ("embed_out", "output"),
}


class Paths:
    """The paths of all modules of a trainer."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._children: dict[str, list[str]] = {}
        self._known: set[str] = set()
        for path in paths:
            while path and path not in self._known:
                self._known.add(path)
                parent, _, name = path.rpartition(".")
                self._children.setdefault(parent, []).append(name)
                path = parent

    def named(self, path: str) -> str:
        """A path of the engine in the trainer's names, as far as those are known."""
        done = ""
        for word in path.split(".") if path else ():
            around = f"{done}." if done else ""
            other = next((name for name in _OTHER_NAMES.get(word, ()) if around + name in self._known), word)
            done = around + (word if around + word in self._known else other)
        return done

    def parts(self, path: str) -> list[str]:
        """The paths that the engine's module at ``path`` is made of, in the order of its results; [] if unknown."""
        # A layer that an engine gave an adapter, and what holds the experts of a mixture.
        path = self.named(path.removesuffix(".base_layer").removesuffix(".routed_experts"))
        if path in self._known:
            return [path]
        parent, _, name = path.rpartition(".")
        siblings = self._children.get(parent, [])
        for ending in _ENDINGS:
            if not name.endswith(ending):
                continue
            stems = {sibling.removesuffix(ending): sibling for sibling in siblings if sibling.endswith(ending)}
            chosen = _one_behind_the_other(name.removesuffix(ending), tuple(stems))
            if len(chosen) > 1:
                return [f"{parent}.{stems[sibling]}" if parent else stems[sibling] for sibling in chosen]
        return []


def _one_behind_the_other(text: str, stems: tuple[str, ...]) -> list[str]:
    """The stems that make up a text, with or without ``_`` between; [] where they do not. No stem stands twice."""
    todo: list[tuple[str, list[str]]] = [(text, [])]
    while todo:
        rest, chosen = todo.pop()
        if not rest:
            return chosen
        if len(chosen) == _MOST_FUSED:
            continue
        for stem in stems:
            if stem and stem not in chosen and rest.startswith(stem):
                todo.append((rest[len(stem) :].removeprefix("_"), [*chosen, stem]))
    return []
