"""How many of several planted bugs does one run in lockstep name, and does it say anything of healthy pairs?

    python bench/lockstep/run.py                          # single bugs, two and five at once, clean pairs
    python bench/lockstep/run.py --bugs 5 --draws 20      # five bugs at once, twenty programs
    python bench/lockstep/run.py --only F05,B02 --bugs 1  # these patterns
    python bench/lockstep/run.py --clean                  # the clean pairs alone
    python bench/lockstep/run.py --rewrites               # what computes the same and is written otherwise

Bugs of tests/bugs that fit into one program are planted together, the reference is recorded, and the candidate runs
against it in lockstep. Patterns whose harm is a matter of opinion (the same product in another memory layout) are not
planted. A bug is named if a finding is one that its truth lists (tests/bugs/truth.py), wherever it stands in the
verdict, and whichever pass of the line it names, in whichever step: a divisor that counts padding shows in a batch with
padding alone; a finding on a row of calls names each of them. What is told as harmless does not count. A bug that was
not named is planted alone then, and left out of the program of all bugs: if loss, gradients and weights stay the same
bit for bit in one of both, it has no effect there, and is left out of the count (``without_effect``). A draw is void,
counted apart, if the bugs take each other's place or the program ends with an error that is not of msprobe: nothing
could be named then. ``--rewrites`` takes the pairs of tests/rewritings instead: what each is called at level mix in
float32 and bfloat16 and at L1 in float32, and how many of the bugs beside it are found in float32. The table goes to
the terminal, everything else to .bench/lockstep.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "src"))

_MOST_TRIES = 400

#: What is drawn of how many parameters there are, and what makes some.
_COUNTS, _MAKES = ("@matrices", "@query", "@total"), ("nn.Linear(", "nn.Parameter(", "nn.Embedding(", "nn.LayerNorm(")


def choose(count: int, number: int, only: Sequence[str]) -> tuple[list[Any], dict[str, Any], list[dict[str, str]]]:
    """Patterns that can be planted together, the settings of their program, and the words drawn for each."""
    from bugs.patterns import PATTERNS
    from bugs.planting import draw

    generator = random.Random(f"{count} {number}")
    usable = [
        one
        for name, one in sorted(PATTERNS.items())
        if (not only or name in only or name[0] in only)
        and one.harmless is False
        and not one.large
        and one.reference_world in (None, one.world)
    ]
    for _ in range(_MOST_TRIES):
        first = usable[number % len(usable)] if count == 1 else generator.choice(usable)
        alike = [one for one in usable if (one.program, one.world) == (first.program, first.world)]
        if len(alike) < count:
            continue
        chosen = [first, *generator.sample([one for one in alike if one is not first], count - 1)]
        settings: dict[str, Any] = dict(draw(first, number).settings)
        if any(
            key in settings and settings[key] != value and one is not first
            for one in chosen
            for key, value in one.settings.items()
        ):
            continue
        for one in chosen:
            settings |= one.settings
        words = []
        for one in chosen:
            fixed = replace(one, settings=settings, suits=None)
            fits = (draw(fixed, number + 1000 * attempt).words for attempt in range(20))
            found = next((word for word in fits if one.suits is None or one.suits(settings, word)), None)  # type: ignore[arg-type]
            if found is None:
                break
            words.append(dict(found))
        texts = _texts(chosen, settings, words) if len(words) == count else None
        if texts is not None and (count == 1 or first.world > 1 or all(_begins(one, settings) for one in texts)):
            return chosen, settings, words
    raise RuntimeError("no patterns fit together")


def _texts(chosen: Sequence[Any], settings: dict[str, Any], words: Sequence[dict[str, str]]) -> tuple[str, str] | None:
    """The programs of candidate and reference; None if the edits get in each other's way."""
    from bugs.planting import BEDS, Draw, edited, line_number

    draws = [Draw(0, settings, one) for one in words]
    counted = len(chosen) > 1 and any(word in repr(one) for one in chosen for word in _COUNTS)
    if counted and any(map(_has_other_parameters, chosen)):
        return None
    try:
        reference = (BEDS / f"{chosen[0].program}.py").read_text()
        for edits in dict.fromkeys(one.bed for one in chosen):
            place = next(number for number, one in enumerate(chosen) if one.bed == edits)
            reference = edited(reference, edits, draws[place])
        candidate = reference
        for one, drawn in zip(chosen, draws, strict=True):
            candidate = edited(candidate, one.plant, drawn)
        for one, drawn in zip(chosen, draws, strict=True):
            for answer in one.truth:
                if answer.line:
                    line_number(candidate if answer.side == "candidate" else reference, drawn.fill(answer.line))
        compile(candidate, "candidate", "exec")
        compile(reference, "reference", "exec")
    except (ValueError, SyntaxError):
        return None
    return candidate, reference


def _begins(text: str, settings: dict[str, Any]) -> bool:
    """True if the training of a program can be made: one bug may ask for a parameter that another one has renamed."""
    from bugs.record import loaded

    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        (Path(folder) / "program.py").write_text(text)
        try:
            with loaded(Path(folder) / "program.py") as program:
                program.Training(program.Settings(**settings))
        except Exception:
            return False
    return True


def _has_other_parameters(pattern: Any) -> bool:
    """True if its program has other parameters than the bare one, so that their counts do not hold."""
    edits = [*pattern.bed, *pattern.plant]
    adds = any(one.new.count(word) > one.old.count(word) for one in edits for word in _MAKES)
    return adds or any("self.head.weight = self.embedding.weight" in one.old for one in edits)


def record(place: Path, side: str, text: str, job: dict[str, Any], mode: str) -> None:
    """Run one side of a pair."""
    from bugs import ranks_run
    from bugs.record import record_side

    folder = place / side
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(text)
    if job["world"] > 1:
        ranks_run.record(folder, job["settings"], mode, job["steps"], job["world"], job["precision"])
    else:
        record_side(folder, job["settings"], mode, job["steps"], precision=job["precision"])


def judge(asked: dict[str, Any]) -> dict[str, Any]:
    """Record a pair in lockstep and say which bugs were named. Runs in a process of its own."""
    import torch
    from bugs.planting import Draw
    from bugs.record import Pair, tell_precision

    from msprobe.lockstep.verdict import judge_lockstep

    torch.set_num_threads(1)
    result: dict[str, Any] = dict(asked)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as temporary:
        own = asked.get("pattern") or f"{asked['bugs']}-{asked['number']}"
        place = Path(asked["keep"]) / own if asked["keep"] else Path(temporary)
        try:
            chosen, settings, words, texts = _job(asked)
            result["patterns"] = [one.id for one in chosen]
            job = {
                "settings": settings,
                "world": chosen[0].world,
                "steps": max(one.steps for one in chosen),
                "precision": asked["precision"],
            }
            for side, text, mode in (("reference", texts[1], "whole"), ("candidate", texts[0], "lockstep")):
                record(place, side, text, job, mode)
                if len(chosen) == 1 and side in chosen[0].headers:
                    tell_precision(place / side / "dump", chosen[0].headers[side])
            verdict = judge_lockstep(place / "candidate" / "dump", place / "reference" / "dump").to_json()
            result["status"] = verdict["status"]
            result["notes"] = verdict["notes"]
            result["findings"] = [
                {
                    key: one.get(key)
                    for key in ("rank", "step", "direction", "kind", "where", "entry", "message", "harmless")
                }
                for one in verdict["findings"]
            ]
            result["named"] = {
                one.id: _is_named(
                    verdict["findings"], Pair(one, Draw(0, settings, word), "tensor", place), job["steps"]
                )
                for one, word in zip(chosen, words, strict=True)
                if asked["bugs"]
            }
            result["without_effect"] = [
                one.id
                for one in chosen
                if result["named"].get(one.id) is False and not _has_effect(one, chosen, words, texts, place, job)
            ]
            for name in result["without_effect"]:
                del result["named"][name]
        except Exception:
            result["error"] = traceback.format_exc()[-2500:]
    return result


def _has_effect(
    pattern: Any,
    chosen: Sequence[Any],
    words: Sequence[dict[str, str]],
    texts: tuple[str, str],
    place: Path,
    job: dict[str, Any],
) -> bool:
    """Whether loss, gradients or weights change when this bug alone is planted, and when it alone is left out: another
    one may undo it.
    """
    from bugs.planting import Draw, edited

    alone = rest = texts[1]
    for one, word in zip(chosen, words, strict=True):
        drawn = Draw(0, job["settings"], word)
        alone = edited(alone, one.plant, drawn) if one is pattern else alone
        rest = rest if one is pattern else edited(rest, one.plant, drawn)
    return not any(
        _outcome(place, pattern.id, both[0], job) == _outcome(place, pattern.id, both[1], job)
        for both in ((alone, texts[1]), (rest, texts[0]))
    )


def _outcome(place: Path, side: str, text: str, job: dict[str, Any]) -> list[bytes]:
    """Losses, gradients and weights of all ranks of a program that is run by itself."""
    record(place, f"alone-{side}", text, job, "statistics")
    found = [path.read_bytes() for path in sorted((place / f"alone-{side}").glob("outcome*.json"))]
    shutil.rmtree(place / f"alone-{side}")
    return found


#: Where a bug shows first in programs that others were planted into, as kinds and the line.
_BESIDE_OTHERS = {"B07M": (("parameter_gradient gradient mutation", "parameter.grad.mul_("),)}


def _wherever(one: Any) -> Any:
    """In lockstep each pass of a line is judged by itself, and not each need show what is wrong with it."""
    return replace(one, occurrence="any") if one.line and one.occurrence == "0" else one


def _is_named(findings: Sequence[Any], pair: Any, steps: int) -> bool:
    """Whether one of the findings is a right answer, among those that the other bugs have left in the program."""
    from bugs import truth
    from bugs.planting import answer

    answers, problem = [], None
    further = [answer(kinds, line) for kinds, line in _BESIDE_OTHERS.get(pair.pattern.id, ())]
    for one in (*pair.pattern.truth, *further):
        try:
            answers.append(truth.resolve_one(pair, _wherever(one)))
        except ValueError as error:
            problem = error
            continue
        if one.line:
            # Another bug may keep this one from showing in its step.
            for step in range(steps):
                with contextlib.suppress(ValueError):
                    answers.append(truth.resolve_one(pair, replace(_wherever(one), step=step)))
    if not answers:
        raise ValueError(f"{pair.pattern.id}: other bugs have taken its place: {problem}")
    return any(truth.is_right(found, answers) for found in _counting(findings))


def _counting(findings: Sequence[Any]) -> Iterator[Any]:
    """The findings that are no remark on what is harmless; one on a row of calls, or on other arguments of calls that
    one line makes, once for each of them.
    """
    for one in findings:
        if not one.get("harmless"):
            yield one
            rows = ["candidate_alone", "reference_alone", *(["alike"] if one["kind"] == "argument" else [])]
            for name in (name for row in rows for name in one.get("evidence", {}).get(row, ())):
                yield {**one, "entry": name}


def _job(asked: dict[str, Any]) -> tuple[Any, ...]:
    if asked["bugs"]:
        chosen, settings, words = choose(asked["bugs"], asked["number"], asked["only"])
        return chosen, settings, words, _texts(chosen, settings, words)
    from bugs.clean import CLEAN
    from bugs.planting import draw, programs

    pattern = CLEAN[asked["pattern"]]
    drawn = draw(pattern, asked["number"])
    return [pattern], dict(drawn.settings), [dict(drawn.words)], programs(pattern, drawn)


def table(results: Sequence[dict[str, Any]]) -> str:
    """One line for each number of bugs."""
    head = f"{'bugs':>5} {'runs':>5} {'all named':>10} {'named':>8} {'alarms':>7} {'findings':>9} {'errors':>7}"
    lines = [f"{head} {'no effect':>10}"]
    for count in sorted({one["bugs"] for one in results}):
        own = [one for one in results if one["bugs"] == count]
        done = [one for one in own if "error" not in one]
        errors = len(own) - len(done)
        if not count:
            alarms = sum(one["status"] not in ("agree", "harmless") for one in done)
            lines.append(f"{'clean':>5} {len(own):5} {'':>10} {'':>8} {alarms:7} {'':>9} {errors:7}")
            continue
        every = sum(all(one["named"].values()) for one in done)
        named = [found for one in done for found in one["named"].values()]
        findings = sum(len(one["findings"]) for one in done) / max(1, len(done))
        lines.append(
            f"{count:5} {len(own):5} {_percent(every, len(done)):>10} {_percent(sum(named), len(named)):>8} {'':>7}"
            f" {findings:9.1f} {errors:7} {sum(len(one['without_effect']) for one in done):10}"
        )
    return "\n".join(lines)


def misses(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What was not named, and what healthy pairs were accused of."""
    for one in results:
        if "error" in one:
            yield f"{one['bugs']}:{one['number']} {one.get('patterns')} ERROR {one['error'].strip().splitlines()[-1]}"
        elif not one["bugs"]:
            if one["status"] not in ("agree", "harmless"):
                yield f"clean {one['pattern']}:{one['number']} ALARM {one['findings'][0]['message'][:150]}"
        elif not all(one["named"].values()):
            lost = [name for name, found in one["named"].items() if not found]
            said = [f"{found['kind']} {found['entry'] or found['where']}" for found in one["findings"][:6]]
            yield f"{one['bugs']}:{one['number']} {one['patterns']} not named: {lost}; said {said}"


def rewritings(only: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """What pairs that compute the same are called, as a table and one by one."""
    import torch
    from rewritings.table import TABLE, judged

    torch.set_num_threads(1)
    columns = (("float32", torch.float32, "mix"), ("bfloat16", torch.bfloat16, "mix"), ("L1", torch.float32, "L1"))
    results: list[dict[str, Any]] = []
    for name, one in TABLE.items():
        if only and name not in only:
            continue
        result: dict[str, Any] = {"rewriting": name, "bugs": {}}
        with tempfile.TemporaryDirectory(prefix="lockstep-") as temporary:
            place = Path(temporary)
            for word, dtype, level in columns:
                result[word] = judged(name, dtype, place / word, level=level).status
            for bug in one.bugs:
                result["bugs"][bug] = judged(name, torch.float32, place / f"bug-{bug}", bug).status
        results.append(result)
    rows = [
        [one["rewriting"], *(one[word] for word, _, _ in columns), f"{_found(one)} of {len(one['bugs'])}"]
        for one in results
    ]
    diverged = [str(sum(one[word] not in ("agree", "harmless") for one in results)) for word, _, _ in columns]
    found = f"{sum(map(_found, results))} of {sum(len(one['bugs']) for one in results)}"
    rows.append([f"diverged, of {len(results)}", *diverged, found])
    head = ["rewriting", *(word for word, _, _ in columns), "bugs found"]
    return "\n".join(f"{row[0]:24} {row[1]:>9} {row[2]:>9} {row[3]:>9} {row[4]:>10}" for row in [head, *rows]), results


def _found(result: dict[str, Any]) -> int:
    return sum(status == "diverged" for status in result["bugs"].values())


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "-"


def main() -> int:
    from bugs.clean import CLEAN
    from bugs.patterns import PATTERNS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bugs", default="1,2,5", help="how many at once, several with commas")
    parser.add_argument("--draws", type=int, default=40, help="programs for each number of bugs")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program (0)")
    parser.add_argument("--only", default="", help="patterns, e.g. F05,B02; a letter is a whole class")
    parser.add_argument("--precision", default="float32", help="float32, bfloat16 or autocast")
    parser.add_argument("--clean", action="store_true", help="the clean pairs alone")
    parser.add_argument("--planted", action="store_true", help="the planted pairs alone")
    parser.add_argument("--rewrites", action="store_true", help="what computes the same, written otherwise")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="", help="keep what was recorded in this folder")
    parser.add_argument("--misses", action="store_true", help="list what was not named")
    parser.add_argument("--json", default=str(ROOT / ".bench" / "lockstep.json"))
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    if options.rewrites:
        text, results = rewritings(only)
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
        Path(options.json).write_text(json.dumps({"options": vars(options), "results": results}, indent=1))
        print(text)
        return 0
    common = {"only": only, "precision": options.precision, "keep": options.keep}
    counts = [] if options.clean else [int(one) for one in options.bugs.split(",")]
    jobs = [
        {**common, "bugs": count, "number": number}
        for count in counts
        for number in range(
            options.first, options.first + (min(options.draws, len(PATTERNS)) if count == 1 else options.draws)
        )
    ]
    if not options.planted:
        healthy = [one for one in CLEAN.values() if not one.large and one.reference_world in (None, one.world)]
        jobs += [
            {**common, "bugs": 0, "number": 0, "pattern": one.id}
            for one in healthy
            if options.precision in one.precisions and (not only or one.id in only or one.id[0] in only)
        ]
    place = Path(options.json)
    place.parent.mkdir(parents=True, exist_ok=True)
    results = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for result in pool.map(judge, jobs):
            results.append(result)
            place.write_text(json.dumps({"options": vars(options), "results": results}, indent=1))
            sys.stderr.write(f"\r{len(results)} of {len(jobs)} " if sys.stderr.isatty() else "")
    if options.misses:
        print("\n".join(misses(results)))
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
