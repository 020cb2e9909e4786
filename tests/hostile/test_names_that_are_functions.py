"""A text of a dump that names a type, a layout, a format or a call is looked up in a list, never among functions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from support import forked

import msprobe
from hostile.limits import Answer, Called, Ended
from hostile.made import TENSOR, dump, record
from msprobe.foreign import known_words
from msprobe.precheck.known_names import is_known
from msprobe.precheck.side.functions import operator_of
from msprobe.precheck.side.types import CONSTANTS

CALLED = """
import runpy, sys, torch
place = torch
*parents, name = {0!r}.split(".")
for one in parents:
    place = getattr(place, one)
setattr(place, name, lambda *a, **k: print("CALLED"))
sys.argv = ["x"]
runpy.run_path({1!r}, run_name="__main__")
"""


def demand_not_called(folder: Path, key: str, function: str, *args: Any, **kwargs: Any) -> Ended:
    """The script that is made of the call, if one is, never calls the function of torch that an argument names."""
    file = dump(folder / "A", {f"{key}.forward": record(*args, **kwargs)})
    answer = Called("op_generate", "--dump", file, "--api", key, "-o", folder / "out", cwd=folder)
    answer.demand_quick()
    for script in (folder / "out").glob("*.py"):
        ast.parse(script.read_text())
        done = Answer("-c", CALLED.format(function, str(script)), cwd=folder, python=True, seconds=60)
        assert "CALLED" not in done.text, f"the script has called torch.{function}"
    return answer


@pytest.mark.parametrize("kind", ["torch.dtype", "torch.layout", "torch.memory_format"])
@pytest.mark.parametrize(
    ("key", "function"),
    [
        ("Tensor.apply_.0", "set_num_threads"),
        ("Tensor.map_.0", "set_num_threads"),
        ("Tensor.to.0", "seed"),
        ("Tensor.to.0", "hub.load"),
        ("Tensor.relu.0", "from_file"),
    ],
)
def test_an_argument_that_names_a_function_is_none(tmp_path: Path, kind: str, key: str, function: str) -> None:
    evil = {"type": kind, "value": f"torch.{function}"}
    demand_not_called(tmp_path, key, function, TENSOR, evil).demand_refused()


@pytest.mark.parametrize(
    "dtype", ["torch.set_num_threads", "torch.Tensor", "torch.load", "float32.__class__", "nosuch"]
)
def test_the_type_of_a_tensor_is_looked_up_in_a_list(tmp_path: Path, dtype: str) -> None:
    name = dtype.rpartition(".")[2]
    demand_not_called(tmp_path, "Tensor.relu.0", name, {**TENSOR, "dtype": dtype}).demand_refused()


@pytest.mark.parametrize("value", ["torch.float16", "torch.int64", "torch.strided", "torch.channels_last"])
def test_what_names_a_type_is_one(tmp_path: Path, value: str) -> None:
    name = value.partition(".")[2]
    kind = next(kind for kind, words in known_words.CONSTANTS.items() if name in words)
    key = "Tensor.contiguous.0" if kind == "torch.memory_format" else "Torch.zeros_like.0"
    word = {"torch.memory_format": "memory_format", "torch.layout": "layout"}.get(kind, "dtype")
    tensor = {**TENSOR, "shape": [1, 2, 3, 4]}
    file = dump(tmp_path / "A", {f"{key}.forward": record(tensor, **{word: {"type": kind, "value": value}})})
    answer = Called("op_generate", "--dump", file, "--api", key, "-o", tmp_path / "out", cwd=tmp_path)
    assert answer.status == 0, answer.text
    script = next((tmp_path / "out").glob("*.py"))
    done = forked.run(str(script), cwd=tmp_path)
    assert "Verdict: pass" in done.stdout, done


def test_run_ut_skips_a_call_with_a_function_for_a_type(tmp_path: Path) -> None:
    evil = {"type": "torch.dtype", "value": "torch.set_num_threads"}
    data = {"Tensor.apply_.0.forward": record(TENSOR, evil), "Tensor.to.0.forward": record(TENSOR, evil)}
    answer = Called("run_ut", "-api_info", dump(tmp_path / "A", data), "-o", "out", cwd=tmp_path, seconds=90)
    answer.demand_quick(90)
    assert "2 skip" in answer.text, answer.text


def test_the_words_of_scripts_and_of_readers_are_the_same() -> None:
    """A script has a list of its own, as it runs where msprobe is not."""
    for kind, table in CONSTANTS.items():
        of = type(next(iter(table.values())))
        assert set(table) <= known_words.CONSTANTS[kind]
        here = {name for name in dir(torch) if isinstance(getattr(torch, name), of)} - {"legacy_contiguous_format"}
        assert here - {"bit"} <= set(table), "torch has a new one: add it to both lists"


# Names of records that act on more than tensors, as they may stand in a dump of a stranger.
ACTING = """
Torch.load Torch.save Torch.compile Torch.hub.load Torch.hub.download_url_to_file Torch.ops.load_library Torch.from_file
Torch.ops.aten.save Torch.utils.cpp_extension.load_inline Torch.utils.data.get_worker_info Torch.set_default_device
Torch.set_num_threads Torch.manual_seed Torch.seed Torch.set_printoptions Torch.set_default_dtype Torch.cuda.set_device
Torch._C._set_deterministic_algorithms Torch._C._jit_init Torch.os.system Torch.sys.exit Torch.builtins.exec
Torch.importlib.import_module Torch.jit.load Torch.jit.script Torch.package.PackageImporter Torch.serialization.load
Torch.multiprocessing.spawn Torch.distributed.init_process_group Torch.frombuffer Torch.library.define Torch.onnx.export
Torch.set_grad_enabled Torch.use_deterministic_algorithms Torch.classes.load_library Torch.__class__ Torch.__init__
Torch._dynamo.reset Torch._inductor.compile Torch.testing.assert_close Torch.typename Torch.profiler.profile
Tensor.apply_ Tensor.map_ Tensor.map2_ Tensor.register_hook Tensor.register_post_accumulate_grad_hook Tensor.backward
Tensor.__reduce__ Tensor.__reduce_ex__ Tensor.__setstate__ Tensor.__class__ Tensor.__init__ Tensor.__new__
Tensor.__torch_function__ Tensor.__subclasshook__ Tensor.__init_subclass__ Tensor.__setattr__ Tensor.__getattribute__
Tensor.share_memory_ Tensor.set_ Tensor.module_load Tensor.__dlpack__ Tensor.record_stream Tensor._make_subclass
Tensor.relu.__globals__ Tensor.relu.__call__ Tensor.split.__globals__.get Tensor.relu.__self__ Tensor.storage.__code__
Functional.load Functional.___ Functional.warnings.warn Functional.importlib.import_module Functional.torch.load
Functional.Callable Functional.__builtins__ Functional.__dict__ Functional.relu.__globals__.pop
Functional.handle_torch_function
Functional.boolean_dispatch Functional.has_torch_function Functional._jit_internal.loader VF.from_file VF._from_blob
VF.frombuffer VF._cufft_clear_plan_cache VF.__class__ VF.__init__
Ops.aten_save Ops.aten_from_file Ops.aten_warn Ops.aten__print Ops.aten_manual_seed Ops.aten_set_grad_enabled
Ops.aten__cufft_clear_plan_cache Ops.prim_RaiseException Ops.image_read_file Ops.profiler__record_function_enter
Ops.c10d_broadcast_ Ops.symm_mem__barrier Ops.debugprims_load_tensor Ops.aten_get_gradients Ops.aten_str
Distributed.all_reduce Optimizer.step MindSpeed.x Aten.relu Nosuch.relu
""".split()


@pytest.mark.parametrize("name", ACTING)
def test_a_call_that_acts_on_more_than_tensors_is_not_known(name: str) -> None:
    prefix, _, api = name.partition(".")
    known = is_known(prefix, api)
    if prefix == "Ops" and known:  # the list of where they are is that of torch: they are refused when looked up
        with pytest.raises(LookupError):
            operator_of(api)
        return
    assert not known


@pytest.mark.parametrize(
    "name",
    [
        "Torch.softmax",
        "Torch.linalg.norm",
        "Tensor.__add__",
        "Tensor.to",
        "Functional.relu",
        "Torch.fft.fft",
        "VF.lstm",
    ],
)
def test_honest_calls_are_known(name: str) -> None:
    prefix, _, api = name.partition(".")
    assert is_known(prefix, api)


def test_honest_operators_are_known() -> None:
    for name in ("aten_relu", "aten_add_", "aten_native_layer_norm", "aten_gelu", "aten_einsum", "prims_add"):
        assert operator_of(name)


NOT_FOLLOWED = "Torch.load Torch.hub.load Tensor.apply_ Torch.os.system Ops.aten_save Torch.set_num_threads".split()


def test_neither_a_check_nor_a_script_runs_them(tmp_path: Path) -> None:
    mark = {"type": "str", "value": "touched"}
    data = {f"{name}.0.forward": record(TENSOR, mark) for name in NOT_FOLLOWED}
    data |= {f"{name}.1.forward": {**record(), "input_args": [mark]} for name in NOT_FOLLOWED}
    file = dump(tmp_path / "A", data)
    answer = Called("run_ut", "-api_info", file, "-o", "out", cwd=tmp_path, seconds=90)
    answer.demand_quick(90)
    for name in NOT_FOLLOWED:
        words = ("op_generate", "--dump", file, "--api", f"{name}.0", "-o", "scripts")
        made = Called(*words, cwd=tmp_path)
        if not name.startswith("Ops."):
            made.demand_refused()
        for script in (tmp_path / "scripts").glob(f"{name}*.py"):
            assert forked.run(str(script), cwd=tmp_path).returncode == 2
    assert not (tmp_path / "touched").exists()


# Rooms whose texts come from files. Where a module of a framework is asked for a name that is no constant of ours.
ROOMS = ("precheck", "store", "compare", "diagnose", "graph", "view", "environment", "lockstep", "results", "report")
MODULES = {"torch", "mindspore", "np", "numpy", "functional", "mint", "builtins"}
ALLOWED = {
    "precheck/side/types.py": 2,  # the list itself
    "precheck/mindspore/standalone.py": 2,  # the list itself
    "precheck/side/machine.py": 2,  # the kind of a device, of our own list
    "precheck/torch/beside.py": 1,  # our own list of devices
}


def lookups_in(tree: ast.Module) -> int:
    """How often a module of a framework is asked for a name that stands not in the code."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id in MODULES
        and not isinstance(node.args[1], ast.Constant)
        for node in ast.walk(tree)
    )


def test_no_text_is_looked_up_in_a_framework() -> None:
    root = Path(msprobe.__file__).parent
    found = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            count = lookups_in(ast.parse(path.read_text(encoding="utf-8")))
            if count != ALLOWED.get(name, 0):
                found[name] = count
    assert not found, "look it up with msprobe.foreign.known_words or msprobe.precheck.side.types"


@pytest.mark.parametrize(
    "text", ["getattr(torch, name)", "getattr(np, info['kind'])(1)", "getattr(torch, f'{a}_', None)"]
)
def test_the_rule_sees_a_lookup(text: str) -> None:
    assert lookups_in(ast.parse(text)) == 1
    assert lookups_in(ast.parse("getattr(torch, 'uint16', None)")) == 0
