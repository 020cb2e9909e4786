"""Healthy runs agree: trainings of the zoo, recorded plain and with jitter (``msprobe run --jitter``), are compared.

``PYTHONPATH=tests:tests/integration python tests/bugs/test_jittered.py [--autocast] [NAME ...]`` compares all of them,
or these, and prints what is not called the same.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import record_zoo  # noqa: E402
import zoo  # noqa: E402

from msprobe.diagnose.runs import compare_runs  # noqa: E402

#: One of each kind; those in the second line were called different once.
NAMES = (
    "lstm gqa_rope vae unet recompute_selective optimizers_of_many_kinds gradient_accumulation fake_quant"
    " multihead_attention_shared_input gnn_scatter gru_cell_loop resnet moe_top_k tracing_inside_the_region"
    " lazy_modules batched_gradients saved_and_copied_while_recording"
).split()
#: What is compiled has no jitter inside, and so other calls.
COMPILED = "compiled_model compiled_parts compiled_with_graph_break compiled_by_inductor".split()


def answer(name: str, autocast: bool, folder: Path) -> str:
    """The status of the jittered training against the plain one."""
    for way, jitter in (("plain", False), ("jittered", True)):
        settings = {"task": "statistics", "level": "mix", "rank": [], "step": [], "jitter": jitter}
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            record_zoo.record(name, folder / way, settings)
    verdict = compare_runs(folder / "jittered" / "dump", folder / "plain" / "dump")
    first = verdict.findings[0] if verdict.findings else None
    return verdict.status if first is None else f"{verdict.status} {first.kind} {first.entry}"


@pytest.mark.bugs
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_jittered_training_agrees_or_has_no_effect(name: str, autocast: bool, tmp_path: Path) -> None:
    zoo.load_all()
    found = answer(name, autocast, tmp_path)
    assert found.split()[0] in ("agree", "harmless"), found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare plain and jittered trainings of the zoo.")
    parser.add_argument("--autocast", action="store_true", help="to bfloat16")
    parser.add_argument("names", nargs="*", metavar="NAME")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = zoo.load_all()
    names = chosen.names or [name for name, one in known.items() if one.ranks == 1 and name not in COMPILED]
    counts: dict[str, int] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = answer(name, chosen.autocast, Path(folder))
            except RuntimeError as error:  # not all are made for autocast
                found = f"error {error}"
        counts[found.split()[0]] = counts.get(found.split()[0], 0) + 1
        if not found.startswith("agree"):
            print(f"{name}: {found}", flush=True)
    print(", ".join(f"{number} {word}" for word, number in counts.items()))


if __name__ == "__main__":
    main()
