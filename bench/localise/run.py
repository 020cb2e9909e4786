"""How often is the true origin of a planted bug named, named first, and nothing said where nothing is wrong?

    python bench/localise/run.py                                  # every pattern, three draws, all three modes
    python bench/localise/run.py --only F05,B02 --mode digest --draws 5
    python bench/localise/run.py --precision bfloat16,autocast    # the same trainings in other precisions
    python bench/localise/run.py --draws 1 --cache .bench/pairs --answers before.json    # what each pair is answered
    python bench/localise/run.py --draws 1 --cache .bench/pairs --against before.json    # what is answered otherwise
    python bench/localise/run.py --clean                          # the clean pairs alone
    python bench/localise/run.py --layouts                        # pairs whose sides have different parallel layouts
    python bench/localise/run.py --noise --only F,B,O             # bugs, while other things differ harmlessly
    python bench/localise/run.py --device tiles                   # the same, with the candidate on another device
    python bench/localise/run.py --peer                           # what the published advisor names, on statistics

Each pattern is drawn (seed, sizes, layer, magnitude), both sides are recorded, and the two dumps are given to
`msprobe compare`. An answer is exact when the first finding is one that the pattern's truth lists; see
tests/bugs/planting.py. Findings are judged by `tests/bugs/truth.py`, which reads the programs and the dumps and not the
tool. The table goes to the terminal, everything else to .bench/localise.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from bugs.precision import PRECISIONS

MODES = ("statistics", "digest", "tensor")


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Record one pair, ask, and compare the answer with the truth. Runs in a process of its own."""
    import torch
    from bugs.cache import recorded
    from bugs.clean import CLEAN
    from bugs.layouts import LAYOUTS
    from bugs.patterns import PATTERNS
    from bugs.planting import draw
    from bugs.record import record
    from bugs.under_noise import under_noise

    torch.set_num_threads(1)
    known = {**PATTERNS, **CLEAN, **LAYOUTS}
    pattern = known.get(job["pattern"]) or under_noise(job["pattern"])
    pattern = replace(pattern, device=job["device"])
    clean = bool(pattern.expected)
    result: dict[str, Any] = {**job, "group": pattern.group, "clean": clean}
    with tempfile.TemporaryDirectory(prefix="localise-") as temporary:
        name = f"{pattern.id}-{job['draw']}-{job['mode']}-{job['precision']}"
        folder = Path(job["keep"]) / name if job["keep"] else Path(temporary)
        drawn, precision = draw(pattern, job["draw"], job["salt"]), job["precision"]
        try:
            began = time.perf_counter()
            if job["cache"]:
                pair = recorded(pattern, drawn, job["mode"], precision, Path(job["cache"]))
            else:
                pair = record(pattern, drawn, job["mode"], folder / "pair", precision)
            result["record_seconds"] = time.perf_counter() - began
            began = time.perf_counter()
            result |= judged(pair, job["peer"])
            result["answer_seconds"] = time.perf_counter() - began
        except Exception:
            result["error"] = traceback.format_exc()[-2000:]
    return result


def judged(pair: Any, peer: bool = False) -> dict[str, Any]:
    """What is said of a pair, and whether that is right: ``place`` is that of the first right finding, from 0; of a
    healthy pair ``false_alarm``.
    """
    from bugs import truth

    pattern = pair.pattern
    verdict = ask(pair, peer)
    result: dict[str, Any] = {"status": verdict["status"], "headline": verdict.get("headline")}
    result["findings"] = [_short(finding) for finding in verdict["findings"][:5]]
    if pattern.expected:
        return {**result, "false_alarm": verdict["status"] not in pattern.expected}
    answers = truth.resolve(pair)
    places = [n for n, found in enumerate(verdict["findings"]) if truth.is_right(found, answers)]
    called_harmless = verdict["status"] == "harmless"
    return {
        **result,
        "detected": verdict["status"] in ("diverged", "harmless", "incomparable"),
        "place": places[0] if places else None,
        "severity_right": pattern.harmless is None or called_harmless == pattern.harmless,
        "blind": pattern.blind,
        "truth": [_told(one) for one in answers],
    }


def ask(pair: Any, peer: bool) -> dict[str, Any]:
    """What the tool says of the two dumps."""
    if peer:
        from peer import advisor_verdict

        return advisor_verdict(pair)
    from answer import answer

    return answer(pair.dump("candidate"), pair.dump("reference"))


def _short(finding: dict[str, Any]) -> dict[str, Any]:
    keys = ("rank", "step", "direction", "kind", "where", "entry", "module", "order", "message")
    return {key: finding.get(key) for key in keys if finding.get(key) not in (None, "")}


def _told(one: Any) -> dict[str, Any]:
    return {"kinds": sorted(one.kinds), "entries": sorted(one.entries)[:6], "parameter": one.parameter}


# ---------------------------------------------------------------- the table


def table(results: Iterable[dict[str, Any]]) -> str:
    """One line for each mode and class; ``all visible``: without the patterns that keep all statistics."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        noise = result["pattern"].partition("+")[2]
        recorded = result["precision"], result["mode"]
        groups[(*recorded, f"noise {noise}" if noise else result["group"])].append(result)
        groups[(*recorded, "all clean" if result["clean"] else "all planted")].append(result)
        if result["mode"] == "statistics" and not result["clean"] and not result.get("blind"):
            groups[(*recorded, "all visible")].append(result)
    heads = ("detected", "first", "in three", "severity", "alarms", "errors")
    lines = [f"{'precision':9}  {'mode':10}  {'class':12} {'pairs':>5} " + " ".join(f"{head:>8}" for head in heads)]
    places = {name: place for place, name in enumerate((*PRECISIONS, *MODES))}
    for (precision, mode, group), found in sorted(
        groups.items(), key=lambda item: (*map(places.__getitem__, item[0][:2]), item[0][2])
    ):
        errors = sum("error" in one for one in found)
        if found[0]["clean"]:
            alarms = sum(bool(one.get("false_alarm")) for one in found)
            cells = ["", "", "", "", str(alarms)]
        else:
            first = sum(one.get("place") == 0 for one in found)
            three = sum(one.get("place") in (0, 1, 2) for one in found)
            detected = sum(bool(one.get("detected")) for one in found)
            severity = sum(bool(one.get("severity_right")) for one in found)
            cells = [_percent(count, len(found)) for count in (detected, first, three, severity)] + [""]
        cells.append(str(errors or ""))
        lines.append(f"{precision:9}  {mode:10}  {group:12} {len(found):5} " + " ".join(f"{cell:>8}" for cell in cells))
    return "\n".join(lines)


def cost(results: Iterable[dict[str, Any]]) -> str:
    """What a pair costs."""
    done = [one for one in results if "error" not in one]
    middle = (
        [statistics.median(one[f"{what}_seconds"] for one in done) for what in ("record", "answer")] if done else []
    )
    return " ".join(
        f"{what} {seconds:.2f} s a pair (median);" for what, seconds in zip(("record", "answer"), middle, strict=False)
    )


def misses(results: Iterable[dict[str, Any]]) -> str:
    """One line for each pair that was not answered exactly."""
    lines = []
    for one in results:
        name = f"{one['precision']:9} {one['mode']:10} {one['pattern']}:{one['draw']}"
        if "error" in one:
            lines.append(f"{name}  ERROR {one['error'].strip().splitlines()[-1]}")
        elif one["clean"]:
            if one["false_alarm"]:
                lines.append(f"{name}  FALSE ALARM {one['status']}: {_first(one)}")
        elif one["place"] != 0 or not one["severity_right"]:
            place = "not named" if one["place"] is None else f"place {one['place'] + 1}"
            severity = "" if one["severity_right"] else f", called {one['status']}"
            lines.append(f"{name}  {place}{severity}: {_first(one)}; right: {one['truth']}")
    return "\n".join(lines)


def answers(results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What each pair was answered: status, headline and the first findings; by pattern, draw, mode and precision."""
    return {
        f"{one['pattern']}:{one['draw']} {one['mode']} {one['precision']}": {
            "place": "alarm" if one.get("false_alarm") else one.get("place"),
            **{key: one.get(key) for key in ("status", "headline", "findings")},
            **({"error": one["error"].strip().splitlines()[-1]} if "error" in one else {}),
        }
        for one in results
    }


def changes(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What is answered otherwise than before, one line each, and how often pairs are answered better or worse."""
    lines = []
    better = worse = 0
    for name in now:
        if name in before and now[name] != before[name]:
            one, other = now[name], before[name]
            better += _grade(one) > _grade(other)
            worse += _grade(one) < _grade(other)
            mark = {True: "BETTER", False: "WORSE "}.get(_grade(one) > _grade(other))
            mark = mark if _grade(one) != _grade(other) else "same  "
            lines.append(f"{mark} {name}: {_answer(other)}  ->  {_answer(one)}")
    lines.append(
        f"{len(lines)} of {sum(name in before for name in now)} answered otherwise; {better} better, {worse} worse"
    )
    return lines


def _grade(one: dict[str, Any]) -> int:
    if "error" in one or one["place"] == "alarm":
        return -100
    return -(one["place"] if one["place"] is not None else 50) - (one["status"] not in ("diverged", "agree"))


def _answer(one: dict[str, Any]) -> str:
    first = (one.get("findings") or [{}])[0]
    told = one.get("error") or f"{first.get('kind')} {first.get('entry') or first.get('where')}"
    return f"{one['status']}, place {one['place']}, {told}"


def _first(one: dict[str, Any]) -> str:
    return json.dumps(one["findings"][0]) if one["findings"] else "nothing said"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.0f} %"


def _judged(jobs: list[dict[str, Any]], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from map(judge, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(judge, jobs)


def main() -> int:
    from bugs.clean import CLEAN
    from bugs.kernels.variants import VARIANTS
    from bugs.layouts import LAYOUTS
    from bugs.patterns import PATTERNS
    from bugs.under_noise import pairs_under_noise

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=3, help="how often each pattern is drawn")
    parser.add_argument("--only", default="", help="patterns, e.g. F05,B02; a letter is a whole class")
    parser.add_argument("--mode", default=",".join(MODES), help="of statistics, digest, tensor")
    parser.add_argument("--precision", default="float32", help=f"of {', '.join(PRECISIONS)}")
    parser.add_argument("--cache", default="", help="take recorded pairs from this folder, and put them there")
    parser.add_argument("--answers", default="", help="write what each pair is answered to this file")
    parser.add_argument("--against", default="", help="list the pairs that are answered otherwise than in this file")
    parser.add_argument("--salt", default="", help="other draws: any word")
    parser.add_argument("--clean", action="store_true", help="the clean pairs alone")
    parser.add_argument("--planted", action="store_true", help="the planted pairs alone")
    parser.add_argument("--layouts", action="store_true", help="the pairs of different parallel layouts instead")
    parser.add_argument("--large", action="store_true", help="with the model of real size, too: half a minute a pair")
    parser.add_argument("--noise", action="store_true", help="the planted bugs behind harmless noise instead")
    parser.add_argument("--device", default="", choices=["", *VARIANTS], help="what the candidate runs on")
    parser.add_argument("--peer", action="store_true", help="ask the published advisor (8.1.1) instead; statistics")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="", help="keep the recorded pairs in this folder")
    parser.add_argument("--misses", action="store_true", help="list the pairs that were not answered exactly")
    parser.add_argument(
        "--json",
        default=str(Path(__file__).resolve().parents[2] / ".bench" / "localise.json"),
        help="where everything is written",
    )
    options = parser.parse_args()
    planted, clean = dict(PATTERNS), dict(CLEAN)
    if options.layouts:
        planted = {name: pattern for name, pattern in LAYOUTS.items() if not pattern.expected}
        clean = {name: pattern for name, pattern in LAYOUTS.items() if pattern.expected}
    if options.noise:
        planted, clean = pairs_under_noise(), {}
    if not options.large:
        planted, clean = ({name: one for name, one in kind.items() if not one.large} for kind in (planted, clean))
    every = [*(() if options.clean else planted), *(() if options.planted else clean)]
    only = [one for one in options.only.split(",") if one]
    chosen = [one for one in every if not only or one in only or one[0] in only]
    unknown = [one for one in only if one not in every and not any(name[0] == one for name in every)]
    if unknown or not chosen:
        parser.error(f"no such pattern: {', '.join(unknown) or options.only}; known: {', '.join(every)}")
    of_name = {**PATTERNS, **CLEAN, **LAYOUTS}.get if not options.noise else pairs_under_noise().get
    modes = ["statistics"] if options.peer else options.mode.split(",")
    jobs = [
        {"pattern": one, "draw": number, "mode": mode, "precision": precision, "salt": options.salt,
         "keep": options.keep, "cache": options.cache, "peer": options.peer, "device": options.device}
        for one in chosen for number in range(options.draws) for mode in modes
        for precision in options.precision.split(",") if precision in of_name(one).precisions
    ]  # fmt: skip
    place = Path(options.json)
    place.parent.mkdir(parents=True, exist_ok=True)
    results = []
    for result in _judged(jobs, options.jobs):
        results.append(result)
        place.write_text(json.dumps({"options": vars(options), "results": results}, indent=1))
        sys.stderr.write(f"\r{len(results)} of {len(jobs)} " if sys.stderr.isatty() else "")
    if options.misses:
        print(misses(results))
    if options.answers:
        Path(options.answers).write_text(json.dumps(answers(results), indent=1))
    if options.against:
        print("\n".join(changes(answers(results), json.loads(Path(options.against).read_text()))))
    print(table(results))
    print(cost(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
