"""Make the table of what healthy devices show of each class of calls, from all networks and precisions of the bench.

    python -m tests.bugs.kernels.classes [--keep DIR] [--write]

Prints the table; ``--write`` puts it where the judge reads it, and then it is part of a commit.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path

from msprobe.diagnose.measured import classes
from msprobe.diagnose.measured.product_units import product_units

from .judges import nodes_of
from .networks import NETWORKS, PRECISIONS
from .recordings import healthy_pairs

COMMAND = "python -m tests.bugs.kernels.classes --write"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what healthy devices show of each class of calls.")
    parser.add_argument("--keep", type=Path, help="folder where recordings are kept (a temporary one)")
    parser.add_argument("--write", action="store_true", help="put the table where the judge reads it")
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
    if chosen.write:
        Path(classes.__file__).with_name("classes.json").write_text(text)
    print(text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
