"""Which calls are meant: ``scope`` has exact names, ``list`` parts of names."""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Callable, Sequence

from msprobe.config.settings import FreeBenchmark

# A part of a name that can only be found before the number of a call.
_OF_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_MOST_REMEMBERED = 100_000


class ChosenCalls:
    """Decides once for each name. ``words``: other words for a name's key, as MindSpore's users know it."""

    def __init__(self, settings: FreeBenchmark, words: Callable[[str], Sequence[str]] = lambda key: ()) -> None:
        self.settings = settings
        self._suffix = f".{settings.stage}"
        self._words = words
        self._decided: dict[str, bool] = {}
        # The keys that were seen, and what of the settings has found something.
        self._seen: set[str] = set()
        self._matched: set[str] = set()

    def patterns(self) -> tuple[str, ...]:
        """What to ask the bus for; empty: all calls."""
        if self.settings.scope:
            return tuple(_escaped(name.removesuffix(self._suffix)) for name in self.settings.scope)
        plain = all(_OF_KEY.fullmatch(part) and part not in self._suffix for part in self.settings.api_list)
        if not plain or self._words("Functional.relu"):
            return ()
        return tuple(f"*{part}*" for part in self.settings.api_list)

    def has(self, key: str, number: int) -> bool:
        """True if the call of this key and number is meant."""
        name = f"{key}.{number}{self._suffix}"
        found = self._decided.get(name)
        if found is None:
            if len(self._decided) > _MOST_REMEMBERED:
                self._decided.clear()
            found = self._decided[name] = self._decide(key, name)
        return found

    def _decide(self, key: str, name: str) -> bool:
        settings = self.settings
        self._seen.add(key)
        if settings.scope:
            hits = [one for one in settings.scope if one == name]
        elif settings.api_list:
            words = self._words(key)
            hits = [one for one in settings.api_list if one in name or one in words]
        else:
            return True
        self._matched.update(hits)
        return bool(hits)

    def unmatched(self) -> list[str]:
        """One sentence for each entry of ``scope`` or ``list`` that no call had."""
        field = "scope" if self.settings.scope else "list"
        lines = []
        for entry in self.settings.scope or self.settings.api_list:
            if entry in self._matched:
                continue
            near = difflib.get_close_matches(entry.split(".0.")[0], self._seen, n=3, cutoff=0.4)
            alike = difflib.get_close_matches(entry, {key.rpartition(".")[2] for key in self._seen}, n=3)
            near += [key for key in sorted(self._seen) if key.rpartition(".")[2] in alike]
            near += [key for key in sorted(self._seen) if entry.lower() in key.lower()][:3]
            hint = f"; near are {', '.join(dict.fromkeys(near))}" if near else ""
            lines.append(f'free_benchmark: {field} matched no API: "{entry}"{hint}')
        return lines


def is_sampled(name: str, step: int, ratio: float) -> bool:
    """True for this share of calls, always the same ones: no random number is used."""
    return ratio >= 1 or zlib.crc32(f"{step}:{name}".encode()) < ratio * 2**32


def _escaped(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
