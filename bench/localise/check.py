"""What does one dump alone tell? Which planted bugs does `msprobe check` find, and where is it silent?

    python bench/localise/check.py                               # every pattern and clean pair, one draw, digests
    python bench/localise/check.py --only B01,D --mode tensor --draws 3
    python bench/localise/check.py --mode statistics --precision float32,bfloat16,autocast --cache .bench/pairs --jobs 2

Each pattern is recorded on both sides, and each side is checked by itself. The candidate's bug should be found where it
can be seen without a reference (VISIBLE: pattern -> the checks of which one must find it; "tensor": only with recorded
tensors); the reference, and both sides of a clean pair, must pass. The table goes to the terminal, everything else to
check_results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

MODES = ("statistics", "digest", "tensor")
#: Patterns whose bug shows in its own dump, and the checks that see it.
VISIBLE: dict[str, str] = {
    "F01": "attention", "F01B": "attention", "F02": "tensor attention", "F02B": "tensor attention",
    "F04": "overflow", "F09": "dtypes", "F13": "dtypes softmax", "F16": "dropout", "F16M": "dropout", "F17": "labels",
    "F19": "averaging", "F20": "overflow", "B01": "unreached", "B01N": "unreached", "B02": "mutation",
    "B02C": "mutation", "B03": "recompute", "B03R": "recompute", "B04": "overflow", "B05": "scale", "B05U": "scale",
    "B06": "ties", "B07": "clearing", "B07M": "clearing", "O08": "updates", "O08F": "updates", "D01": "replicas",
    "D02": "replicas", "D04": "replicas", "D04W": "replicas", "D05": "replicas", "D06": "collectives",
    "D07": "replicas", "D10": "replicas", "D11": "replicas", "X04": "replicas", "X06": "replicas", "X07": "replicas",
    "X11": "dtypes", "X14": "updates", "X18": "dtypes", "X22": "dtypes", "X36": "recompute mutation",
}  # fmt: skip


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Record a pair and check both sides. Runs in a process of its own."""
    import torch
    from bugs.cache import recorded
    from bugs.clean import CLEAN
    from bugs.patterns import PATTERNS
    from bugs.planting import draw
    from bugs.record import record

    torch.set_num_threads(1)
    clean = job["pattern"] in CLEAN
    pattern = (CLEAN if clean else PATTERNS)[job["pattern"]]
    result: dict[str, Any] = {**job, "clean": clean, "title": pattern.title}
    with tempfile.TemporaryDirectory(prefix="check-") as temporary:
        folder = Path(job["keep"] or temporary) / f"{pattern.id}-{job['draw']}-{job['mode']}-{job['precision']}"
        drawn = draw(pattern, job["draw"], job["salt"])
        try:
            if job["cache"]:
                folder = recorded(pattern, drawn, job["mode"], job["precision"], Path(job["cache"])).folder
            elif not (folder / "reference" / "outcome.json").exists():
                record(pattern, drawn, job["mode"], folder, job["precision"])
            for side in ("candidate", "reference"):
                result[side] = _checked(folder / side / "dump")
        except Exception:
            result["error"] = traceback.format_exc()[-2000:]
    return result


def _checked(dump: Path) -> dict[str, Any]:
    from msprobe.diagnose.check import check_run

    began = time.perf_counter()
    found = check_run(dump)
    return {
        "status": found.status,
        "seconds": time.perf_counter() - began,
        "findings": [[one.evidence["check"], one.step, one.where, one.message] for one in found.findings],
    }


def expected(result: dict[str, Any]) -> set[str]:
    """The checks of which one must find the bug of this pair in this mode; none where it cannot be seen."""
    words = set(VISIBLE.get(result["pattern"], "").split())
    if "tensor" in words and result["mode"] != "tensor":
        return set()
    return words - {"tensor"}


def is_found(result: dict[str, Any]) -> bool:
    """True if the first finding on the candidate is of a check that should find the bug."""
    findings = result["candidate"]["findings"]
    return bool(findings) and findings[0][0] in expected(result)


def alarms(result: dict[str, Any]) -> list[str]:
    """Sides that are sound and on which something was found."""
    sides = ("candidate", "reference") if result["clean"] else ("reference",)
    return [side for side in sides if result[side]["status"] == "found"]


def table(results: list[dict[str, Any]]) -> str:
    """One line for each mode and precision."""
    heads = ("bugs", "told", "visible", "found", "sound dumps", "alarms", "errors")
    lines = [f"{'mode':10}  {'precision':9}  " + " ".join(f"{head:>{max(len(head), 6)}}" for head in heads)]
    for mode, precision in dict.fromkeys((one["mode"], one["precision"]) for one in results):
        every = [one for one in results if (one["mode"], one["precision"]) == (mode, precision)]
        found = [one for one in every if "error" not in one]
        bugs = [one for one in found if not one["clean"]]
        seen = [one for one in bugs if expected(one)]
        told = sum(one["candidate"]["status"] == "found" for one in bugs)
        sound = sum(2 if one["clean"] else 1 for one in found)
        lines.append(
            f"{mode:10}  {precision:9}  {len(bugs):6} {told:6} {len(seen):7} {sum(map(is_found, seen)):6} {sound:11} "
            f"{sum(len(alarms(one)) for one in found):6} {len(every) - len(found):6}"
        )
    return "\n".join(lines)


def misses(results: list[dict[str, Any]]) -> str:
    """Pairs that were missed, false alarms and errors, a line each."""
    lines = []
    for one in results:
        name = f"{one['mode']:10} {one['precision']:9} {one['pattern']}:{one['draw']}"
        if "error" in one:
            lines.append(f"{name}  ERROR {one['error'].strip().splitlines()[-1]}")
            continue
        lines += [f"{name}  FALSE ALARM on the {side}: {one[side]['findings'][0]}" for side in alarms(one)]
        if not one["clean"] and expected(one) and not is_found(one):
            told = one["candidate"]["findings"][:1] or "nothing said"
            lines.append(f"{name}  MISSED ({', '.join(sorted(expected(one)))}): {told}")
    return "\n".join(lines)


def main() -> int:
    from bugs.clean import CLEAN
    from bugs.patterns import PATTERNS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1, help="how often each pattern is drawn")
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--only", default="", help="patterns, e.g. F05,B02; a letter is a whole class")
    parser.add_argument("--mode", default="digest", help="of statistics, digest, tensor")
    parser.add_argument("--precision", default="float32", help="of float32, bfloat16, autocast")
    parser.add_argument("--cache", default="", help="take recorded pairs from this folder, and put them there")
    parser.add_argument("--clean", action="store_true", help="the clean pairs alone")
    parser.add_argument("--large", action="store_true", help="with the model of real size, too")
    parser.add_argument("--salt", default="", help="other draws: any word")
    parser.add_argument("--visible", action="store_true", help="only the patterns that can be seen")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="", help="keep the recorded pairs in this folder, and use what is there")
    parser.add_argument("--json", default="check_results.json", help="where everything is written")
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    known = {**({} if options.clean else PATTERNS), **CLEAN}
    chosen = [one for one in known if not only or one in only or one[0] in only]
    chosen = [one for one in chosen if options.large or not known[one].large]
    chosen = [one for one in chosen if not options.visible or one in VISIBLE]
    if not chosen:
        parser.error(f"no such pattern: {options.only}")
    jobs = [
        {"pattern": one, "draw": number, "mode": mode, "precision": precision, "salt": options.salt,
         "keep": options.keep, "cache": options.cache}
        for one in chosen for number in range(options.first, options.first + options.draws)
        for mode in options.mode.split(",") for precision in options.precision.split(",")
        if precision in known[one].precisions
    ]  # fmt: skip
    if options.jobs == 1:
        results = [judge(job) for job in jobs]
    else:
        with ProcessPoolExecutor(options.jobs) as pool:
            results = list(pool.map(judge, jobs))
    Path(options.json).write_text(json.dumps({"options": vars(options), "results": results}, indent=1))
    told = misses(results)
    if told:
        print(told)
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
