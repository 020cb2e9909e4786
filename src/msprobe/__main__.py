"""``python -m msprobe`` is the same as the command ``msprobe``."""

from __future__ import annotations

import sys

from msprobe.cli import main

if __name__ == "__main__":
    sys.exit(main())
