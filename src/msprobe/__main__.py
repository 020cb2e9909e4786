"""``python -m msprobe`` is the same as the command ``msprobe``."""

# Without `from __future__ import annotations`: with -m, the working directory is the first place of modules until here.
import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", bool(sys.flags.isolated)):
        # By the next one, which keeps the order: `msprobe run` puts the folder of the user's script there.
        sys.path[0] = sys.path[1]
    from msprobe.cli import main

    sys.exit(main())
