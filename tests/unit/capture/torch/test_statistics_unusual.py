"""Tensors that are more, or less, than strided memory; and that describing touches nothing of the user's."""

from __future__ import annotations

import json
import warnings
import weakref

import pytest
import torch
from support.native_and_python import use_python
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.capture.torch.tensors import statistics_unusual
from msprobe.capture.torch.tensors.statistics import TensorStatistics

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = ("Max", "Min", "Mean", "Norm")


def described(tensor: torch.Tensor, mode="statistics", defer=False, errors=0) -> dict:
    statistics = TensorStatistics(mode, defer=defer)
    with torch._C.DisableTorchFunction():
        info = statistics.describe(tensor)
    statistics.flush()
    assert statistics.errors == errors
    return json.loads(info.text)


def four(found: dict) -> list:
    return [found[key] for key in VALUES]


deferred = pytest.mark.parametrize("defer", [False, True], ids=["now", "late"])
X = [6.0, 1.0, 3.5, 9.539392471313477]


def x() -> torch.Tensor:
    return torch.arange(1.0, 7.0)


@deferred
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_have_the_statistics_of_their_values(layout: str, defer: bool) -> None:
    dense = torch.diag(torch.tensor([2.0, -4.0, 4.0]))
    sparse = dense.to_sparse(layout=getattr(torch, layout))
    found = described(sparse, defer=defer)
    assert four(found) == [4.0, -4.0, 0.6666666865348816, 6.0]
    assert (found["shape"], found["layout"], found["nnz"]) == ([3, 3], f"torch.{layout}", 3)
    assert "zero" not in found


@deferred
def test_blocked_and_opaque_layouts(defer: bool) -> None:
    found = described(torch.eye(4).to_sparse_bsr((2, 2)), defer=defer)
    assert (found["layout"], found["nnz"], found["zero"]) == ("torch.sparse_bsr", 2, 4)
    found = described(torch.eye(3).to_mkldnn(), defer=defer)
    assert (found["layout"], found["Max"], found["zero"]) == ("torch._mkldnn", 1.0, 6)
    uncoalesced = torch.sparse_coo_tensor([[0, 0]], torch.tensor([1.0, 2.0]), (2,))
    assert described(uncoalesced, defer=defer)["nnz"] == 2
    assert not uncoalesced.is_coalesced(), "describing does not change it"


@deferred
def test_quantised_tensors_have_dequantised_statistics_scale_and_zero_point(defer: bool) -> None:
    q = torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 2.0]), 0.5, 3, torch.qint8)
    found = described(q, defer=defer)
    assert four(found)[:2] == [2.0, -1.0]
    assert (found["dtype"], found["scale"], found["zero_point"]) == ("torch.qint8", 0.5, 3)
    assert found["digest"] == described(q.int_repr())["digest"]
    q = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.quint8)
    found = described(q, defer=defer)
    assert (found["scale"], found["zero_point"], found["axis"]) == ([0.5, 0.25], [0, 1], 0)


@deferred
@pytest.mark.parametrize("name", ["uint1", "int4", "bits8", "float4_e2m1fn_x2"])
def test_types_without_numbers_are_marked_and_not_counted_as_errors(name: str, defer: bool) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    for mode in ("statistics", "md5", "xxh3", "xor", "structure"):
        found = described(torch.tensor([1, 2, 3], dtype=torch.uint8).view(dtype), mode, defer)
        assert (found["dtype"], found["shape"]) == (f"torch.{name}", [3])
        if mode in ("statistics", "md5", "xxh3"):
            assert four(found) == [None] * 4
            assert name in found["unsupported"]


@deferred
def test_complex32_is_read_as_complex64(defer: bool) -> None:
    found = described(torch.tensor([3 + 4j], dtype=torch.complex32), defer=defer)
    assert (found["dtype"], *four(found)) == ("torch.complex32", 5.0, 5.0, 5.0, None)


@pytest.mark.parametrize("mode", ["statistics", "md5", "xor", "xxh3", "structure"])
def test_meta_and_fake_tensors_have_no_values(mode: str) -> None:
    found = described(torch.empty(3, device="meta"), mode)
    assert (found["shape"], found["device"]) == ([3], "meta")
    assert found.get("Max") is found.get("md5") is None
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(2, 3)
        inside = described(fake, mode)
        real = described(x(), mode)
    assert inside == described(fake, mode)
    assert inside["type"] == "torch._subclasses.fake_tensor.FakeTensor"
    assert (inside["shape"], inside.get("Max")) == ([2, 3], None)
    if mode == "statistics":
        assert four(real) == [None] * 4, "made inside the mode, so it is fake, too"


@deferred
def test_real_tensors_keep_their_values_inside_a_fake_mode(defer: bool) -> None:
    from torch._subclasses import FakeTensorMode

    real = torch.quantize_per_tensor(torch.tensor([0.0, 2.0]), 0.5, 3, torch.qint8)
    plain = x()
    with FakeTensorMode():
        assert described(real, defer=defer)["Max"] == 2.0
        assert four(described(plain, defer=defer)) == X


@deferred
def test_transforms_show_the_value_inside(defer: bool) -> None:
    seen = []

    def look(a):
        seen.append(described(a, defer=defer))
        return (a * 2).sum()

    torch.func.vmap(look)(x().view(3, 2))
    torch.func.grad(look)(x())
    torch.func.vmap(torch.func.grad(look))(x().view(3, 2))
    torch.func.jvp(look, (x(),), (x(),))
    torch.func.functionalize(look)(x())
    assert [found["type"] for found in seen] == [
        "BatchedTensor", "GradTrackingTensor", "GradTrackingTensor", "GradTrackingTensor", "torch.Tensor"
    ]  # fmt: skip
    assert [four(found) for found in seen] == [X] * 5
    assert [found["shape"] for found in seen] == [[3, 2], [6], [3, 2], [6], [6]]
    assert seen[1]["requires_grad"] is True


@deferred
def test_plain_tensors_are_plain_inside_a_transform(defer: bool) -> None:
    outside = torch.eye(3).to_sparse()
    seen = []

    def look(a):
        seen.append((described(outside, defer=defer), described(x(), defer=defer)))
        return a

    torch.func.vmap(look)(torch.ones(2))
    assert seen[0][0]["Max"] == 1.0
    assert four(seen[0][1]) == X


@deferred
def test_nested_tensors_show_all_components_at_once(defer: bool) -> None:
    parts = [torch.ones(2), 2 * torch.ones(3)]
    found = described(torch.nested.nested_tensor(parts), defer=defer)
    assert (found["shape"], found["Max"], found["Min"]) == ([5], 2.0, 1.0)
    found = described(torch.nested.nested_tensor(parts, layout=torch.jagged), defer=defer)
    assert found["type"] == "torch.nested._internal.nested_tensor.NestedTensor"
    assert (found["shape"], found["layout"], found["Max"]) == ([5], "torch.jagged", 2.0)


class Noisy(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})

    @property
    def shape(self):
        self.calls.append("shape")
        return (99,)


class Wrapper(torch.Tensor):
    calls: list = []

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=True)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func)
        raise RuntimeError("not to be called")


@deferred
def test_subclasses_are_read_without_running_their_code(defer: bool) -> None:
    noisy = x().as_subclass(Noisy)
    Noisy.calls.clear()
    found = described(noisy, defer=defer)
    assert four(found) == X
    assert (found["type"], found["class"]) == ("torch.Tensor", f"{__name__}.Noisy")
    assert found["shape"] == [6]
    assert Noisy.calls == []


@deferred
@pytest.mark.parametrize("mode", ["statistics", "md5", "xor", "xxh3", "structure"])
def test_wrappers_without_memory_are_marked(mode: str, defer: bool) -> None:
    found = described(Wrapper(x()), mode, defer)
    assert (found["shape"], found["requires_grad"], found["class"]) == ([6], True, f"{__name__}.Wrapper")
    assert "without memory" in found["unsupported"]
    assert Wrapper.calls == []


def test_a_parameter_that_has_no_shape_yet_is_no_error() -> None:
    found = described(torch.nn.parameter.UninitializedParameter())
    assert found["class"] == "torch.nn.parameter.UninitializedParameter"


@deferred
def test_distributed_tensors_show_global_shape_local_values_and_placement(mesh, defer: bool) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    found = described(distribute_tensor(x().view(3, 2), mesh, [Shard(0)]), defer=defer)
    assert found["type"] == "torch.distributed.tensor.DTensor"
    assert four(found) == X
    assert (found["shape"], found["local_shape"]) == ([3, 2], [3, 2])
    assert found["placements"] == [{"Shard": {"dim": 0}}]
    assert found["device_mesh"] == [0]
    # Two ranks, of which this one holds half.
    halved = DTensor.from_local(x(), mesh, [Replicate()], run_check=False)
    halved._spec.placements = (Partial("sum"),)
    assert described(halved, defer=defer)["placements"] == [{"Partial": {"reduce_op": "sum"}}]
    parameter = torch.nn.Parameter(distribute_tensor(x(), mesh, [Replicate()]))
    found = described(parameter, defer=defer)
    assert (found["type"], found["requires_grad"]) == ("torch.distributed.tensor.DTensor", True)
    assert found["placements"] == [{"Replicate": {}}]


@pytest.mark.parametrize("native", [True, False])
def test_what_is_inside_of_a_wrapper_is_read_once_until_it_is_written(
    mesh, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.tensor import DTensor, Replicate

    if not native:
        use_python(monkeypatch)
    statistics = TensorStatistics("statistics")
    inside = torch.randn(300)
    wrappers = [DTensor.from_local(inside, mesh, [Replicate()], run_check=False) for _ in range(3)]

    def norms() -> list[float]:
        return [four(json.loads(statistics.describe(one).text))[3] for one in wrappers]

    first, reads = norms(), statistics.reads
    assert len(set(first)) == 1
    assert norms() == first
    assert statistics.reads == reads
    with torch.no_grad():
        wrappers[0].mul_(2)
    assert norms() == pytest.approx([2 * one for one in first])
    inside.numpy()[:] = 1.0  # as code writes that torch does not know of
    statistics.invalidate(wrappers[1])
    assert norms() == pytest.approx([300**0.5] * 3)


@deferred
def test_a_collective_is_never_waited_for(mesh, defer: bool, monkeypatch) -> None:
    import torch.distributed._functional_collectives as collectives

    waits = []
    real = collectives.wait_tensor
    monkeypatch.setattr(collectives, "wait_tensor", lambda t: waits.append(t) or real(t))
    pending = collectives.all_reduce(torch.ones(2), "sum", mesh)
    found = described(pending, defer=defer)
    assert found["type"] == "torch.distributed._functional_collectives.AsyncCollectiveTensor"
    assert four(found) == [None] * 4
    assert "not waited for" in found["unsupported"]
    assert waits == []
    pending.trigger_wait()
    assert four(described(pending, defer=defer))[0] == 1.0


# ---- innocence ----


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def everything() -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "plain": x(),
            "grad": torch.ones(3, requires_grad=True),
            "result": torch.ones(3, requires_grad=True) * 2,
            "half": torch.ones(3, dtype=torch.float16),
            "ints": torch.tensor([1, 2]),
            "uint64": torch.tensor([1, 2]).to(torch.uint64),
            "strided": torch.ones(4, 4)[:, ::2],
            "complex": torch.ones(2, dtype=torch.complex64).conj(),
            "negative": torch._neg_view(torch.ones(2)),
            "float8": torch.ones(2).to(torch.float8_e4m3fn),
            "sparse": torch.eye(2).to_sparse(),
            "csr": torch.eye(2).to_sparse_csr(),
            "quantised": torch.quantize_per_tensor(torch.ones(2), 0.5, 3, torch.qint8),
            "mkldnn": torch.eye(2).to_mkldnn(),
            "meta": torch.empty(2, device="meta"),
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
            "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged),
            "scalar": torch.tensor(1.0),
            "subclass": x().as_subclass(Noisy),
            "nan": torch.tensor([float("nan"), 1.0]),
        }


@pytest.mark.parametrize("with_native", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("mode", ["statistics", "md5", "xor", "xxh3", "structure"])
@deferred
def test_nothing_of_ours_is_seen_by_modes_or_left_behind(mode, defer, with_native, monkeypatch) -> None:
    if not with_native:
        use_python(monkeypatch)
    tensors = everything()
    generator = torch.get_rng_state()
    versions = {name: tensor._version for name, tensor in tensors.items()}
    nodes = {name: tensor.grad_fn for name, tensor in tensors.items()}
    statistics = TensorStatistics(mode, defer=defer)
    functions, operators = Functions(), Operators()
    with torch.autocast("cpu", dtype=torch.bfloat16), functions, operators:
        functions.seen.clear()
        operators.seen.clear()
        with torch._C.DisableTorchFunction():
            infos = {name: statistics.describe(tensor) for name, tensor in tensors.items()}
            statistics.flush()
        assert functions.seen == []
        assert operators.seen == []
        assert torch.is_grad_enabled()
    assert statistics.errors == 0
    expected = {name: described(tensor, mode, defer) for name, tensor in tensors.items()}
    assert {name: str(json.loads(info.text)) for name, info in infos.items()} == {
        k: str(v) for k, v in expected.items()
    }
    assert torch.equal(generator, torch.get_rng_state())
    assert versions == {name: tensor._version for name, tensor in tensors.items()}
    assert all(nodes[name] is tensor.grad_fn for name, tensor in tensors.items())
    assert all(tensor.grad is None for tensor in tensors.values() if tensor.is_leaf)


def test_an_error_while_describing_is_a_null_and_counted(monkeypatch) -> None:
    from msprobe.capture.torch.tensors import statistics as module

    def fail(tensor):
        raise ValueError("broken\nprobe")

    monkeypatch.setattr(module, "unwrap", fail)
    statistics = TensorStatistics()
    found = json.loads(statistics.describe(torch.eye(2).to_sparse()).text)
    assert four(found) == [None] * 4
    assert found["unsupported"] == "ValueError: broken probe"
    assert statistics.errors == 1


def test_what_is_no_tensor_at_all_is_a_null_and_counted() -> None:
    statistics = TensorStatistics()
    found = json.loads(statistics.describe("nonsense").text)  # type: ignore[arg-type]
    assert "unsupported" in found
    assert statistics.errors == 1


def test_describing_works_on_every_thread_at_once() -> None:
    import threading

    statistics = TensorStatistics()
    shared = [torch.full((200_000,), float(i)) for i in range(8)]
    wrong = []

    def look() -> None:
        for _ in range(20):
            for i, tensor in enumerate(shared):
                if json.loads(statistics.describe(tensor).text)["Max"] != i:
                    wrong.append(i)
            statistics.invalidate(shared[3])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    statistics.reset()


def test_the_ranks_of_a_mesh_are_put_together_once_and_the_mesh_is_not_kept() -> None:
    asked = []

    class Mesh:
        @property
        def mesh(self) -> torch.Tensor:
            asked.append("mesh")
            return torch.tensor([[0, 1], [2, 3]])

    one = Mesh()
    assert [statistics_unusual._ranks_of(one) for _ in range(3)] == [[[0, 1], [2, 3]]] * 3
    assert asked == ["mesh"]
    gone = weakref.ref(one)
    del one
    assert gone() is None
