"""Two dumps, record by record: which answer to each other, and how far they are apart."""

from __future__ import annotations
