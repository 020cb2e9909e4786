"""The last lines of a script: the call, and the start. A script that writes a smaller one writes them, too."""

from __future__ import annotations

import json
from typing import Any


def ending(content: dict[str, Any]) -> str:
    """The text of the last lines for the call that is described."""
    text = json.dumps(content).replace("\\", "\\\\").replace("'", "\\'")
    start = 'if __name__ == "__main__":\n    raise SystemExit(main(CALL, globals().get("__file__", "")))\n'
    return f"\nCALL = json.loads('{text}')\n\n{start}"
