"""A function of the framework is named for users only if users call it."""

from __future__ import annotations

from support.row_by_row import for_each

from msprobe.diagnose.steps.public_functions import public_function

PLACE = "/opt/lib/python3.11/site-packages"
USER = "File /home/me/train.py, line 9, in construct, \\n y = self.fc(x)"


def frame(file: str, function: str) -> str:
    return f"File {PLACE}/{file}, line 35, in {function}, \\n return fn(*args)"


@for_each(
    ("stack", "expected"),
    [
        ([frame("mindspore/graph/_utils/check_jit_forbidden_api.py", "jit_forbidden")], ""),
        ([frame("mindspore/nn/layer/basic.py", "construct"), frame("mindspore/nn/cell.py", "run_construct")], ""),
        ([frame("mindspore/common/api.py", "staging_specialize")], ""),
        ([frame("mindspore/ops/composite/base.py", "after_grad")], ""),
        ([frame("mindspore/ops/function/nn_func.py", "dropout")], "dropout"),
        ([frame("mindspore/mint/nn/functional.py", "layer_norm")], "layer_norm"),
        ([frame("torch/nn/utils/clip_grad.py", "clip_grad_norm_")], "clip_grad_norm_"),
        ([frame("torch/nn/modules/linear.py", "forward")], ""),
        ([], ""),
    ],
)
def test_the_function_that_users_call(stack: list[str], expected: str) -> None:
    assert public_function([*stack, USER]) == expected
