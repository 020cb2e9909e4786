"""The programs that bugs are planted in. They are copied as text, edited, and run; see ``planting.py``."""

from __future__ import annotations
