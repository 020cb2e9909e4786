"""``python -m msprobe.core.monitor.anomaly_processor``: the earliest alerts of all ranks."""

from __future__ import annotations

import sys

from msprobe.monitor.alerts.analysis import main

if __name__ == "__main__":
    sys.exit(main())
