"""Pages of docs/reference are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference_pages import FOLDER, PAGES
from support.row_by_row import for_each

from msprobe.config.settings import FreeBenchmark, GradientProbe, Settings

DOCS = Path(__file__).parents[2] / "docs"


@for_each("name", PAGES)
def test_a_page_that_is_made_from_the_code_is_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `python tests/reference_pages.py`"


@pytest.mark.parametrize(
    ("page", "fields"),
    [("configuration.md", Settings), ("grad_probe.md", GradientProbe), ("free_benchmark.md", FreeBenchmark)],
)
def test_the_page_of_settings_names_every_field(page: str, fields: type) -> None:
    # Fields whose name in config.json is another one, or that no file has.
    others = {
        "ranks": "rank", "steps": "step", "api_list": "list", "forward": "forward", "summary_kinds": "summary_mode",
        "device_precision": "precision", "online": "online_run_ut", "gradient_probe": "grad_probe",
        "parameters": "param_list", "modes": "pert_mode", "stage": "fuzz_stage", "handler": "handler_type",
    }  # fmt: skip
    text = (DOCS / page).read_text(encoding="utf-8")
    without = {"config_path", "lockstep", "online"}
    missing = [
        name
        for name in fields.__dataclass_fields__
        if name not in without and f"`{others.get(name, name)}`" not in text
    ]
    assert not missing
