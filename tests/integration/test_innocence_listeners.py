"""Training with a listener that looks at everything is, bit for bit, the training without; alone, and beside a dump,
which has the same records then. On ranks: test_innocence_ranks.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import zoo
from innocence_listening import Listening
from innocence_observation import differences
from innocence_run import Setting, run, run_bare_twice, without_known_once
from support.coded_texts import mentions

pytestmark = pytest.mark.usefixtures("one_thread")

# One of each kind that could notice: in place and views, custom Functions, recomputation, autocast, random numbers,
# modes and classes of tensors of the user, transforms, threads, compiled code, errors, packed sequences, hooks.
CHOSEN = [
    "cnn_batchnorm",
    "gpt_tied",
    "module_returning_two_views",
    "in_place_relu_chain",
    "custom_function",
    "recompute_reentrant",
    "recompute_non_reentrant",
    "autocast_grad_scaler",
    "function_mode_inside_the_region",
    "dispatch_mode_of_the_user",
    "tensor_subclass",
    "saved_tensor_hooks",
    "per_sample_gradients",
    "threads",
    "compiled_model",
    "exceptions_caught_in_forward",
    "random_everywhere",
    "lbfgs_closure",
    "encoder_layer_fast_path",
]
ALONE = Setting("mix", top={"step": [99]})
BESIDE = Setting("mix")


@pytest.mark.parametrize("setting", [ALONE, BESIDE], ids=["alone", "beside"])
@pytest.mark.parametrize("name", CHOSEN)
def test_a_listener_that_looks_at_everything_changes_nothing(
    name: str, setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in zoo.load_all()
    _, off = run_bare_twice(name)
    watcher = Listening(tmp_path, setting)
    watcher.everything.draws = name != "per_sample_gradients"
    on = run(name, watcher)
    found = differences(*without_known_once(off, on))
    assert not found, f"{name}: {len(found)} differences\n" + "\n".join(map(str, found[:15]))
    assert not watcher.faults(), watcher.faults()[:2000]
    assert not mentions(capsys.readouterr().out, "listener-failed")
    assert len(watcher.everything.told) > 10
    assert bool(watcher.entries()) == (setting is BESIDE)
