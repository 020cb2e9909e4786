"""``msprobe monitor ...``: what to do with the files of a monitored training."""

from __future__ import annotations

# Name -> (module in this package, one line of help). The module is imported when the command is called.
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "analyse": ("analyse", "name the earliest alerts of all ranks, and ranks that no longer agree"),
    "diff": ("diff", "name the first step at which two trainings part"),
    "report": ("report", "write one run, or two side by side, as a page that needs nothing else"),
    "to-db": ("to_db", "write the database that the trend viewer and SQL read"),
    "to-tensorboard": ("to_tensorboard", "write event files for TensorBoard"),
    "watch": ("watch", "show a training while it runs, in the terminal"),
}
