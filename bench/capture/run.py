"""What recording costs: process CPU time of a training iteration with recording on and off.

    python bench/capture/run.py --tools ours,8.1.1,26.2.0,debug_mode --sizes tiny,small,medium \\
        --levels L0,L1,mix --tasks statistics,md5,tensor [--quick] [--json FILE]

One thread. An iteration is start, forward, backward, stop, step (files written to disk) and then the
optimizer step, which is not recorded. Off and on alternate; numbers are medians.

"off" of ours and debug_mode is measured in the same process, between the recorded iterations; the published
package keeps its patches after stop, so its "off" comes from a twin process that never constructed it,
running alternately. "on/off" is about the whole iteration, "on/off of fwd+bwd" leaves the optimizer step out
and is the strict figure. "idle" is the tool constructed and not yet started, "after stop" is an unrecorded
iteration between recorded ones, both against the twin. "records" are the entries of dump.json (debug_mode:
its log lines).

The dumps go to a folder of their own under .bench, and are removed; the environment variable BENCH_DUMPS names
another place for them, for example one in memory (BENCH_DUMPS=/dev/shm/dumps), where the disk's own pace should
not count; there, earlier steps are removed between the iterations.

26.2.0 records by default with risk_level FOCUS (fewer APIs); "26.2.0-ALL" is the same with risk_level ALL.

    python bench/capture/run.py --device [--levels L0,L1,mix] [--tasks statistics,xxh3,tensor] [--widths 32,256] \\
        [--readers kernel,reductions,reductions-alone]

On the simulated accelerator of the tests, and of ours alone: kernels launched in a step and how many of them the
recording adds, also for each tensor that was not met before (by rows, where the task has them); how often the host
waits for the device before `stop` and in it; the most memory of the device that recording holds; CPU time of the thread
that trains, added for each record. A launch costs that thread more there than on a real device.

    python bench/capture/run.py --replays [--levels L0,L1,mix] [--widths 32,256] [--readers kernel,reductions]

On the same, a network that is captured as a graph and replayed, its replays recorded: kernels in the graph and how many
of them the recording adds; what the host launches and spends in each replay.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import device
import replays
from measure import PAIRS, QUICK_PAIRS, Case, Outcome, measure
from report import as_json, markdown

TOOLS = ("ours", "8.1.1", "26.2.0", "26.2.0-ALL", "debug_mode")
LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "md5", "tensor")


def choices(text: str, allowed: tuple[str, ...], name: str) -> list[str]:
    wanted = [item.strip() for item in text.split(",") if item.strip()]
    unknown = [item for item in wanted if item not in allowed]
    if unknown:
        raise SystemExit(f"--{name}: unknown {', '.join(unknown)}; allowed: {', '.join(allowed)}")
    return wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="ours,8.1.1,26.2.0,debug_mode")
    parser.add_argument("--sizes", default="tiny,small,medium")
    parser.add_argument("--levels", default="L0,L1,mix")
    parser.add_argument("--tasks", default="statistics")
    parser.add_argument("--quick", action="store_true", help="fewer pairs")
    parser.add_argument("--pairs", type=int, help="this many pairs, whatever the size")
    parser.add_argument("--json", type=Path, help="also write everything measured here")
    parser.add_argument("--device", action="store_true", help="on a simulated accelerator")
    parser.add_argument("--replays", action="store_true", help="of a captured graph on a simulated accelerator")
    parser.add_argument("--widths", default="32", help="of the model, with --device and --replays")
    parser.add_argument("--readers", default="kernel", help="what measures a large tensor, with these")
    asked = parser.parse_args()
    if asked.device:
        levels = choices(asked.levels, LEVELS, "levels")
        tasks = choices(asked.tasks, (*TASKS, "xxh3", "overflow_check"), "tasks")
        readers = choices(asked.readers, device.READERS, "readers")
        print(device.table(levels, tasks, [int(width) for width in asked.widths.split(",")], readers))
        return
    if asked.replays:
        readers = choices(asked.readers, device.READERS[:2], "readers")
        levels = choices(asked.levels, LEVELS, "levels")
        print(replays.table(levels, [int(width) for width in asked.widths.split(",")], readers))
        return
    cases = [
        Case(tool, size, level, task, (("risk_level", "ALL"),) if tool.endswith("-ALL") else ())
        for size, level, task, tool in product(
            choices(asked.sizes, tuple(PAIRS), "sizes"),
            choices(asked.levels, LEVELS, "levels"),
            choices(asked.tasks, TASKS, "tasks"),
            choices(asked.tools, TOOLS, "tools"),
        )
        if not (tool == "debug_mode" and task == "tensor")
    ]
    outcomes: list[Outcome] = []
    failed = 0
    for case in cases:
        pairs = asked.pairs or (QUICK_PAIRS if asked.quick else PAIRS)[case.size]
        try:
            outcomes.append(measure(case, pairs))
        except RuntimeError as error:
            failed += 1
            print(f"failed: {case}: {error}", file=sys.stderr)
            continue
        print(markdown(outcomes[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(as_json(outcomes), indent=1))
    print(markdown(outcomes))
    if failed:
        raise SystemExit(f"{failed} of {len(cases)} cases failed")


if __name__ == "__main__":
    main()
