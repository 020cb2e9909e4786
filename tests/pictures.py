"""The pictures of the documents, taken of today's pages in both languages.

``PYTHONPATH=tests python tests/pictures.py`` writes docs/images/*.png: the pair of ``msprobe demo`` as ``msprobe view``
shows it, the monitored pair of examples/05_find_the_step, and two runs of the gradient probe. ``NAME-zh.png`` is for
Chinese pages. Needs Chromium, and a font with Chinese characters.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from support import forked

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LANGUAGES = {"en-US": "", "zh-CN": "-zh"}
#: A training whose gradients are probed; from the step that is given on, its batches are noisy.
PROBED = """
import sys

import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(48, 48), nn.Tanh()) for _ in range(8)]
model = nn.Sequential(*layers, nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
PrecisionDebugger(task="grad_probe", dump_path=sys.argv[1]).monitor(model)
begin = int(sys.argv[2]) if len(sys.argv) > 2 else 60
batches, noise = (torch.Generator().manual_seed(seed) for seed in (1, 2))
for step in range(60):
    x = torch.randn(64, 48, generator=batches)
    given = x if step < begin else x + 0.3 * torch.randn(x.shape, generator=noise)
    loss = (model(given) - x[:, :1] * x[:, 1:2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Picture:
    """One picture: of which page, how bright and large, and what is done before it is taken."""

    name: str
    page: Path
    theme: str = "light"
    height: int = 900
    before: Callable[[Any], object] = lambda page: None


def call(folder: Path, *words: str, **variables: str) -> None:
    """Run a program in a folder; an answer of 1 says that something was found."""
    done = forked.run(*words, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1", **variables}, timeout=250)
    assert done.returncode in (0, 1), done.stderr


def pictures(folder: Path) -> Iterator[Picture]:
    """All of them; what they show is made in a folder."""
    call(folder, "-m", "msprobe", "demo", "-o", "demo", "--no-open")
    call(folder / "demo", "-m", "msprobe", "view", "bad", "good", "--html", "pair.html")
    pair = folder / "demo" / "pair.html"
    yield Picture("page", pair, before=_row)
    yield Picture("page-layers", pair, theme="dark", before=_layers)

    steps = folder / "steps"
    shutil.copytree(ROOT / "examples" / "05_find_the_step", steps, ignore=shutil.ignore_patterns("output"))
    call(steps, "train.py", "--steps", "60", MONITOR_OUTPUT_DIR="good")
    call(steps, "train.py", "--steps", "60", "--bug", "50", MONITOR_OUTPUT_DIR="bad")
    call(steps, "-m", "msprobe", "monitor", "report", "bad", "good", "-o", "both.html")
    yield Picture("monitor", steps / "both.html")

    (folder / "probed.py").write_text(PROBED, encoding="utf-8")
    for words in (("good",), ("bad", "23")):
        call(folder, "probed.py", *words)
    call(folder, "-m", "msprobe", "grad_compare", "bad", "good", "-o", "gradients")
    yield Picture("grad_compare", folder / "gradients" / "gradients.html", height=640)


def _row(page: Any) -> None:
    page.wait_for_selector("[role=treegrid] .row")


def _layers(page: Any) -> None:
    _row(page)
    page.locator("[role=tab]").nth(1).click()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """The Chromium of this machine."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit("no Chromium on this machine; .ci/browser installs it")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def main() -> None:
    """Take them."""
    # Its name stands in the pictures.
    folder = Path(tempfile.gettempdir()) / "trial"
    folder.mkdir()
    with browser() as opened:
        for picture in pictures(folder):
            for language, ending in LANGUAGES.items():
                context = opened.new_context(
                    viewport={"width": 1440, "height": picture.height}, color_scheme=picture.theme, locale=language
                )
                page = context.new_page()
                page.goto(picture.page.as_uri())
                picture.before(page)
                if ending and (switch := page.locator("label:has(#in-zh)")).count():
                    switch.click()
                page.wait_for_timeout(500)  # until what moves has come to rest
                taken = Image.open(io.BytesIO(page.screenshot()))
                # A third of the bytes, and nobody sees it.
                taken.quantize(256).save(IMAGES / f"{picture.name}{ending}.png", optimize=True)
                context.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
