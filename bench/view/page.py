"""What the page costs in a browser: opening, clicks and memory, by rows.

    python bench/view/page.py [ROWS ...]        (100000 and 1000000 when left out)

Made-up answers of the protocol are served from this process (tests/browser/stand_in_server.py) to headless Chromium.
Each page is opened several times; the tables show medians. Opening is counted from the navigation to the moment the
first rows are painted; a click from the event to the paint after it. The heap is V8's after a garbage collection,
typed arrays included.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from browser.stand_in_server import StandIn, serving

GOALS = {"open, ms": 1000, "slowest click, ms": 100, "heap, MB": 100}

#: Milliseconds from an action in the page to the end of the frame in which it shows.
TIMED = """async ([kind, target]) => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await painted();
  const from = performance.now();
  if (kind === 'key') (document.activeElement ?? document.body).dispatchEvent(
    new KeyboardEvent('keydown', { key: target, bubbles: true, cancelable: true }));
  else if (kind === 'scroll') {
    const rows = document.querySelector('.rows');
    rows.scrollTop = rows.scrollHeight * target;
  }
  else if (kind === 'search') {
    const field = document.querySelector('#search');
    field.value = target;
    field.dispatchEvent(new Event('input', { bubbles: true }));
  } else if (kind === 'strip') {
    const strip = document.querySelector('.heat canvas');
    const box = strip.getBoundingClientRect();
    const where = { clientX: box.left + box.width * target, clientY: box.top + 50, bubbles: true };
    strip.dispatchEvent(new MouseEvent('click', where));
  } else document.querySelector(target).click();
  await painted();
  return performance.now() - from;
}"""

ACTIONS: tuple[tuple[str, str, object], ...] = (
    ("first divergence", "key", "f"),
    ("next finding", "key", "n"),
    ("collapse all", "click", "[aria-label='Collapse all']"),
    ("expand all", "click", "[aria-label='Expand all']"),
    ("scroll to the middle", "scroll", 0.5),
    ("scroll to the end", "scroll", 1),
    ("next row", "key", "ArrowDown"),
    ("last row", "key", "End"),
    ("click on the strip", "strip", 0.6),
    ("worst path", "key", "e"),
    ("filter: unexplained", "click", ".chip.c-unexplained"),
    ("filter off", "click", ".chip.c-unexplained"),
    ("search", "search", "attn.q linear"),
    ("search off", "search", ""),
    ("layers", "key", "2"),
    ("calls", "key", "1"),
)


def open_page(browser: Any, address: str) -> tuple[Any, float]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address, wait_until="commit")
    page.wait_for_selector("[role=treegrid] .row", timeout=120_000)
    opened = page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done(performance.now())))")
    return page, float(opened)


def heap(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"] + usage.get("backingStorageSize", 0)) / 1e6


def timed(page: Any, kind: str, target: object) -> float:
    if kind != "search":
        return float(page.evaluate(TIMED, [kind, target]))
    before = page.evaluate("document.querySelector('[role=treegrid]').getAttribute('aria-rowcount')")
    script = """async ([target, before]) => {
      const field = document.querySelector('#search');
      const from = performance.now();
      field.value = target;
      field.dispatchEvent(new Event('input', { bubbles: true }));
      while (document.querySelector('[role=treegrid]').getAttribute('aria-rowcount') === before) {
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        if (performance.now() - from > 20000) break;
      }
      return performance.now() - from;
    }"""
    return float(page.evaluate(script, [target, before]))


def measure(browser: Any, rows: int, rounds: int) -> None:
    with serving(StandIn(rows)) as address:
        count = 0
        opens, heaps = [], []
        clicks: dict[str, list[float]] = {name: [] for name, _, _ in ACTIONS}
        for _ in range(rounds):
            page, opened = open_page(browser, address)
            opens.append(opened)
            page.wait_for_timeout(500)
            heaps.append(heap(page))
            page.get_by_label("Expand all").click()
            count = int(page.locator("[role=treegrid]").get_attribute("aria-rowcount"))
            page.get_by_label("Collapse all").click()
            for name, kind, target in ACTIONS:
                clicks[name].append(timed(page, kind, target))
                page.wait_for_timeout(150)
            page.close()
    print(f"\n{count:,} rows, {rounds} rounds\n")
    print("| action | median ms | worst ms |\n|---|---|---|")
    print(f"| open | {statistics.median(opens):.0f} | {max(opens):.0f} |")
    for name, times in clicks.items():
        print(f"| {name} | {statistics.median(times):.0f} | {max(times):.0f} |")
    slowest = max(statistics.median(times) for name, times in clicks.items())
    found = {"open, ms": statistics.median(opens), "slowest click, ms": slowest, "heap, MB": statistics.median(heaps)}
    print()
    for name, goal in GOALS.items():
        verdict = "reached" if found[name] <= goal else "missed"
        print(f"{name}: {found[name]:.0f} (goal at 100,000 rows: {goal}; {verdict})")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(
            f"Chromium {browser.version}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        for rows in args.rows:
            measure(browser, rows, args.rounds)
        browser.close()


if __name__ == "__main__":
    main()
