"""Search a dump for its first bad value and write the result: what the command and the classes of 8.1.1 do alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msprobe import log
from msprobe.diagnose.check.first_overflow import Asked, OverflowAnswer, find_first_overflow
from msprobe.engine import ALONE, Workers
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, make_folder, write_atomically
from msprobe.report.anomaly_file import anomaly_bytes, file_name


def analyze(
    input_path: StrPath,
    output_path: StrPath,
    asked: Asked | None = None,
    progress: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> tuple[OverflowAnswer, Path | None]:
    """Search, and write ``anomaly_analyze_{time}.json`` into the output folder if anything was found.

    Raises what :func:`find_first_overflow` raises, and PathError for a folder that cannot be written.
    """
    folder = check_output_folder(output_path)
    answer = find_first_overflow(input_path, asked, progress, workers)
    if not answer.nodes:
        return answer, None
    file = make_folder(folder) / file_name(time.time_ns())
    write_atomically(file, anomaly_bytes(answer))
    return answer, file


def say_where(file: Path | None) -> None:
    """The last line of the log, in the words of 8.1.1."""
    if file is None:
        log.info(said("no-anomaly-node"))
    else:
        log.info(said("anomaly-file-written", file))
