"""The last lines of a script that reproduces a call, without importing torch as :mod:`msprobe.precheck.standalone`."""

from __future__ import annotations

import json
from typing import Any


def ending(content: dict[str, Any]) -> str:
    """The call, and the start."""
    text = json.dumps(content).replace("\\", "\\\\").replace("'", "\\'")
    start = 'if __name__ == "__main__":\n    raise SystemExit(main(CALL, __file__))\n'
    return f"\nCALL = json.loads('{text}')\n\n{start}"
