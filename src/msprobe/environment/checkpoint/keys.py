"""What programs call the optimizers, averages and second models of a checkpoint: the first words of names."""

from __future__ import annotations

import re
from collections import defaultdict

from msprobe.environment.checkpoint.naming import unprefixed
from msprobe.environment.checkpoint.tensors import CheckpointTensor

Named = dict[str, CheckpointTensor]
_GROUPS = re.compile(r"((?:.*?\.)??)param_groups\.")


def with_keys_of(first: Named, second: Named) -> Named:
    """``second`` with the first words of ``first``, where one side alone has a word and what is below it is alike.

    ``opt_g.state.0.exp_avg`` answers to ``optimizer_g.state.0.exp_avg``, ``ema.weight`` to ``averages.weight``.
    """
    sides = [_below(named) for named in (first, second)]
    alone = [[key for key in side if key not in sides[1 - at]] for at, side in enumerate(sides)]
    renamed: dict[str, str] = {}
    for key in alone[0]:
        fitting = [other for other in alone[1] if sides[1][other] == sides[0][key]]
        rivals = [other for other in alone[0] if sides[0][other] == sides[0][key]]
        if len(fitting) == len(rivals) == 1:
            renamed[fitting[0]] = key
    return {_with(name, renamed): tensor for name, tensor in second.items()}


def without_words_of_one_optimizer(first: Named, second: Named) -> tuple[Named, Named]:
    """Both without the words in front of ``param_groups``, where each side has one optimizer and calls it otherwise."""
    sides = (first, second)
    words = [{match[1] for name in side if (match := _GROUPS.match(name))} for side in sides]
    if words[0] == words[1] or len(words[0]) != 1 or len(words[1]) != 1:
        return first, second
    (our_word,), (other,) = words
    return _cut(first, our_word), _cut(second, other)


def _cut(named: Named, words: str) -> Named:
    return {name.removeprefix(words): tensor for name, tensor in named.items()} if words else named


def with_common_keys(first: Named, second: Named) -> tuple[Named, Named, list[tuple[int, str]], list[str]]:
    """Both without what one side alone has under its key; (side, key) of that, where it has more than numbers, and the
    keys of numbers alone.
    """
    sides = [_below(named) for named in (first, second)]
    alone = [(at, key) for at, side in enumerate(sides) for key in side if key not in sides[1 - at]]
    common = sides[0].keys() & sides[1].keys()
    kept = [
        {name: tensor for name, tensor in named.items() if name.partition(".")[0] in common}
        for named in (first, second)
    ]
    tensors = [(at, key) for at, key in alone if any(shape != () for _, shape in sides[at][key])]
    return kept[0], kept[1], tensors, [key for at, key in alone if (at, key) not in tensors]


def _below(named: Named) -> dict[str, set[tuple[str, tuple[int, ...]]]]:
    shapes: dict[str, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
    for name, tensor in named.items():
        key, _, rest = name.partition(".")
        shapes[key].add((unprefixed(rest), tensor.shape))
    return dict(shapes)


def _with(name: str, renamed: dict[str, str]) -> str:
    key, dot, rest = name.partition(".")
    return renamed.get(key, key) + dot + rest
