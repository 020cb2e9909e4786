"""Make the table of what healthy devices show of each class of calls, from all networks and precisions of the bench.

    python -m tests.bugs.kernels.classes [--keep DIR] [--write | --check]

Prints the table; ``--write`` puts it where the judge reads it, and then it is part of a commit; ``--check`` prints
the classes that the judge takes for others than they are on this machine, and ends with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from msprobe.diagnose.measured import classes
from msprobe.diagnose.measured.product_units import product_units

from .judges import nodes_of
from .networks import NETWORKS, PRECISIONS
from .recordings import healthy_pairs

COMMAND = "python -m tests.bugs.kernels.classes --write"
#: In bits: the median of a class on a different processor may be so much beyond that of the table. One call is apart by
#: 0.38 by chance alone, and many classes have few.
_APART = 0.5


def unlike(now: dict[str, Any], table: dict[str, Any]) -> list[str]:
    """The classes whose usual excess is more now than the table allows, or that it does not know; what is less than
    nothing counts as nothing, as the judge takes it.
    """
    found = []
    for kind in ("operators", "families"):
        for name, usual in now[kind].items():
            known = table[kind].get(name)
            if known is None:
                found.append(f"{name}: {usual}, in the table not there")
            elif any(max(one, 0.0) - max(other, 0.0) > _APART for one, other in zip(usual, known, strict=True)):
                found.append(f"{name}: {usual}, in the table {known}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what healthy devices show of each class of calls.")
    parser.add_argument("--keep", type=Path, help="folder where recordings are kept (a temporary one)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="put the table where the judge reads it")
    what.add_argument("--check", action="store_true", help="compare it with the table that the judge reads")
    chosen = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as temporary:
        cache = chosen.keep or Path(temporary)
        steps = []
        for precision in PRECISIONS:
            for network in NETWORKS:
                for pair in healthy_pairs(network, precision, cache):
                    found = nodes_of(pair)
                    steps.append((found, product_units(found)))
        content = {"made_by": COMMAND, "healthy_pairs": len(steps), **classes.measured(steps).json()}
    text = json.dumps(content, indent=1) + "\n"
    table = Path(classes.__file__).with_name("classes.json")
    if chosen.check:
        found = unlike(content, json.loads(table.read_text()))
        print("\n".join(found) or f"{len(content['operators'])} operators are as in the table")
        sys.exit(bool(found))
    if chosen.write:
        table.write_text(text)
    print(text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
