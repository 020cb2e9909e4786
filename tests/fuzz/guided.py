"""The same readers under atheris, which keeps inputs that reach new lines and changes those further.

``make fuzz-guided FUZZ_READERS=...``, or in tests/ ``python -m fuzz.guided READER SECONDS FOLDER``. It
needs ``pip install atheris``, which has no wheel for every Python; ``make fuzz`` needs nothing. New inputs are kept in
FOLDER, and so is the first one that ends otherwise than it may, as ``READER-crash-...``; exit status 77 then.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import tempfile
from pathlib import Path


def main(words: list[str]) -> None:
    """Fuzz one reader. Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["msprobe"]), tempfile.TemporaryDirectory() as place:
        from fuzz.readers import CORPUS, READERS

        # What it imports when it reads.
        reader = READERS[words[0]]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            reader.read(reader.seeds()[-1].read_bytes(), Path(place))
    seconds, folder = float(words[1]), Path(words[2]).resolve()
    (folder / reader.name).mkdir(parents=True, exist_ok=True)

    def read(data: bytes) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="msprobe-fuzz-", ignore_cleanup_errors=True) as place,
            open(os.devnull, "w") as null,
            contextlib.redirect_stdout(null),
            contextlib.redirect_stderr(null),
        ):
            reader.read(data, Path(place))

    def change(data: bytes, most: int, seed: int) -> bytes:
        return reader.change(random.Random(seed), data, reader.words)[:most]

    limits = [
        f"-max_total_time={int(seconds)}",
        "-timeout=20",
        f"-rss_limit_mb={2 * reader.mebibytes}",
        "-max_len=262144",
    ]
    places = [f"-artifact_prefix={folder}/{reader.name}-", str(folder / reader.name), str(CORPUS / reader.name)]
    atheris.Setup([sys.argv[0], *limits, "-verbosity=0", *places], read, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
