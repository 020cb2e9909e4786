"""Which calls are meant: ``scope`` has exact names, ``list`` parts of names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence

from msprobe.config.settings import FreeBenchmark
from msprobe.foreign.nearest import near_words
from msprobe.messages import said

# A part of a name that can only be found before the number of a call.
_OF_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
# What follows the key of a call in its name.
_OF_CALL = re.compile(r"\.\d+(\.(forward|backward))?$")
_MOST_REMEMBERED = 100_000
_MOST_SHOWN = 5


class ChosenCalls:
    """Decides once for each name. ``words``: other words for a name's key, as MindSpore's users know it."""

    def __init__(self, settings: FreeBenchmark, words: Callable[[str], Sequence[str]] = lambda key: ()) -> None:
        self.settings = settings
        self._suffix = f".{settings.stage}"
        self._words = words
        self._decided: dict[str, bool] = {}
        #: The keys of all calls that were made, wanted or not.
        self.met: set[str] = set()
        # Of the APIs that were reported, the greatest number of a call; and what of the settings has found something.
        self._last: dict[str, int] = {}
        self._matched: set[str] = set()

    def patterns(self) -> tuple[str, ...]:
        """What to ask the bus for; empty: all calls. For ``scope`` all calls of its APIs, as a number that was not
        reached is reported with those that were.
        """
        if self.settings.scope:
            keys = (_key_of(name.removesuffix(self._suffix)) for name in self.settings.scope)
            return tuple(dict.fromkeys(map(_escaped, keys)))
        plain = all(_OF_KEY.fullmatch(part) and part not in self._suffix for part in self.settings.api_list)
        if not plain or self._words("Functional.relu"):
            return ()
        return tuple(f"*{part}*" for part in self.settings.api_list)

    def has(self, key: str, number: int) -> bool:
        """True if the call of this key and number is meant."""
        name = f"{key}.{number}{self._suffix}"
        decided = self._decided.get(name)
        if decided is None:
            if len(self._decided) > _MOST_REMEMBERED:
                self._decided.clear()
            decided = self._decided[name] = self._decide(key, number, name)
        return decided

    def _decide(self, key: str, number: int, name: str) -> bool:
        settings = self.settings
        self.met.add(key)
        self._last[key] = max(number, self._last.get(key, 0))
        if settings.scope:
            hits = [pattern for pattern in settings.scope if pattern == name]
        elif settings.api_list:
            words = self._words(key)
            hits = [pattern for pattern in settings.api_list if pattern in name or pattern in words]
        else:
            return True
        self._matched.update(hits)
        return bool(hits)

    def unmatched(self) -> list[str]:
        """One sentence for each entry of ``scope`` or ``list`` that no call had."""
        field = "scope" if self.settings.scope else "list"
        lines: list[str] = []
        for entry in self.settings.scope or self.settings.api_list:
            if entry in self._matched:
                continue
            near = self._near(entry)
            hint = said("benchmark-near-names", ", ".join(near)) if near else ""
            lines.append(said("benchmark-entry-unmatched", field, entry, hint))
        return lines

    def _near(self, entry: str) -> list[str]:
        """What may be meant by an entry that no call had: calls of the same API, or the APIs with the nearest names."""
        key = _key_of(entry.removesuffix(self._suffix))
        if key in self._last:
            first, last = (f"{key}.{number}{self._suffix}" for number in (0, self._last[key]))
            return [first if first == last else said("numbers-from-to", first, last)]
        # Whoever asks for a part of a name has most often the last part in mind.
        by_last: dict[str, list[str]] = {}
        for name in sorted(self.met):
            by_last.setdefault(name.rpartition(".")[2], []).append(name)
        is_whole = key.partition(".")[0] in {name.partition(".")[0] for name in self.met}
        word = key.rpartition(".")[2]
        alike = near_words(word, by_last, n=3)
        near = near_words(key, self.met, n=3, cutoff=0.8) if is_whole else []
        near += [name for last in alike for name in by_last[last]]
        near += [name for name in sorted(self.met) if word.lower() in name.lower()]
        return list(dict.fromkeys(near))[:_MOST_SHOWN]


def is_sampled(name: str, step: int, ratio: float) -> bool:
    """True for this share of calls, always the same ones: no random number is used."""
    return ratio >= 1 or zlib.crc32(f"{step}:{name}".encode()) < ratio * 2**32


def _key_of(name: str) -> str:
    """``Torch.matmul`` of ``Torch.matmul.1`` and of ``Torch.matmul.1.forward``."""
    return _OF_CALL.sub("", name)


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
