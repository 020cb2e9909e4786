"""A module of msprobe as a fork: ``module_main.py MODULE WORDS...`` calls its ``main``."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    del sys.path[0]  # where this file lies
    del sys.argv[0]
    sys.exit(importlib.import_module(sys.argv[0]).main())
