"""A tensor is read once for each version of its elements, and never taken for another."""

from __future__ import annotations

import gc
import json

import pytest
import torch
from support.coded_texts import mentions
from support.native_and_python import use_python

from msprobe.capture import native
from msprobe.capture.torch import private
from msprobe.capture.torch.tensors import host_elements
from msprobe.capture.torch.tensors import statistics as module
from msprobe.capture.torch.tensors.statistics import TensorStatistics


@pytest.fixture(params=["native", "torch"])
def engine(request, monkeypatch) -> str:
    if request.param == "torch":
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    return request.param


@pytest.fixture
def statistics(engine):
    made = TensorStatistics()
    yield made
    made.reset()


@pytest.fixture
def reads(monkeypatch):
    """How often elements were read; seen where torch's own reductions do it."""
    counted = []
    real = host_elements.reduce

    def reduce(*arguments):
        counted.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(host_elements, "reduce", reduce)
    return counted


def top(statistics: TensorStatistics, tensor: torch.Tensor, remember: bool = True) -> float:
    return json.loads(statistics.describe(tensor, remember).text)["Max"]


def test_the_same_elements_are_read_once(reads, engine, statistics) -> None:
    x = torch.randn(6, 4)
    views = [
        x,
        x,
        x.t(),
        x.view(24),
        x.reshape(4, 6),
        x.permute(1, 0),
        x.unsqueeze(0),
        x.detach(),
        x.view(2, 3, 4),
    ]
    infos = [statistics.describe(v) for v in views]
    assert len(reads) == (1 if engine == "torch" else 0)
    assert infos[0] is infos[1], "nothing is even written twice"
    first = json.loads(infos[0].text)
    for view, info in zip(views, infos, strict=True):
        found = json.loads(info.text)
        assert found["shape"] == list(view.shape)
        assert [found[k] for k in ("Max", "Min", "Mean", "Norm")] == [first[k] for k in ("Max", "Min", "Mean", "Norm")]


def test_heads_of_a_fused_projection_are_read_once_each(reads, engine, statistics) -> None:
    fused = torch.randn(2, 5, 24)
    for part in fused.split(8, dim=-1):
        statistics.describe(part)
        statistics.describe(part.view(2, 5, 2, 4).transpose(1, 2))
    assert len(reads) == (3 if engine == "torch" else 0)


def test_other_elements_of_the_same_storage_are_read_themselves(statistics) -> None:
    x = torch.arange(12.0)
    assert top(statistics, x) == 11
    assert top(statistics, x[:6]) == 5
    assert top(statistics, x[::2]) == 10
    assert top(statistics, x.view(3, 4)[:, 0]) == 8
    assert top(statistics, x.view(torch.int32)) == 1093664768


def test_a_write_is_seen(statistics) -> None:
    x = torch.zeros(4)
    assert top(statistics, x) == 0
    x += 1
    assert top(statistics, x) == 1
    x[2] = 5
    assert top(statistics, x) == 5
    x.view(2, 2).t().mul_(2)
    assert top(statistics, x.view(2, 2)) == 10
    x.detach().fill_(7)
    assert top(statistics, x) == 7


def test_a_write_past_the_version_counter_is_seen_after_invalidate(statistics) -> None:
    x = torch.zeros(4)
    assert top(statistics, x) == 0
    x.data.fill_(3)
    statistics.invalidate(x.data.view(2, 2))
    assert top(statistics, x) == 3
    statistics.invalidate(torch.ones(2))  # nothing is known of it
    statistics.invalidate(torch.eye(2).to_sparse())  # it has no storage


def test_replaced_data_is_another_tensor(statistics) -> None:
    x = torch.zeros(4)
    assert top(statistics, x) == 0
    x.data = torch.ones(4)
    assert top(statistics, x) == 1
    x.data = torch.arange(6.0)
    assert top(statistics, x) == 5


def test_an_address_that_is_used_again_is_not_confused(statistics) -> None:
    for i in range(200):
        assert top(statistics, torch.full((100,), float(i))) == i


def test_requires_grad_is_that_of_now(statistics) -> None:
    x = torch.zeros(4)
    assert json.loads(statistics.describe(x).text)["requires_grad"] is False
    x.requires_grad_()
    assert json.loads(statistics.describe(x).text)["requires_grad"] is True


def test_what_may_be_written_from_elsewhere_is_read_every_time(statistics) -> None:
    array = torch.zeros(4).numpy()
    x = torch.from_numpy(array)
    assert top(statistics, x, remember=False) == 0
    array[1] = 9
    assert top(statistics, x, remember=False) == 9
    assert top(statistics, x) == 9
    array[1] = 11
    assert top(statistics, x) == 11


def test_memory_of_others_is_not_remembered_but_weights_that_were_loaded_into_it_are(statistics) -> None:
    x = torch.from_numpy(torch.zeros(4).numpy())
    weight = torch.nn.Parameter(torch.from_numpy(torch.zeros(4).numpy()))
    assert statistics.describe(x) is not statistics.describe(x)
    assert statistics.describe(weight) is statistics.describe(weight)


def test_a_write_that_torch_did_not_count_is_seen_and_its_memory_never_trusted_again(statistics) -> None:
    for size in (4, 100_000):
        x = torch.zeros(size)
        assert top(statistics, x) == 0
        x.data.fill_(3)
        assert top(statistics, x.view(2, -1)) == 3
        assert top(statistics, x) == 3
        assert statistics.describe(x) is not statistics.describe(x)
        statistics.reset()
        assert statistics.describe(x) is not statistics.describe(x)
        x.add_(1)
        assert statistics.describe(x) is not statistics.describe(x)


def test_what_is_known_is_forgotten_where_unknown_code_ran(statistics) -> None:
    x = torch.zeros(4)
    info = statistics.describe(x)
    statistics.forget_all()
    again = statistics.describe(x)
    assert again is not info
    assert statistics.describe(x) is again


def test_memory_without_values_is_remembered_once_torch_has_written_it(statistics) -> None:
    x = torch.empty(4)
    statistics.distrust(x, for_good=False)
    statistics.forget_all()
    assert statistics.describe(x) is not statistics.describe(x)
    assert statistics.describe(x.view(2, 2)) is not statistics.describe(x.view(2, 2))
    x.fill_(1)
    assert statistics.describe(x) is statistics.describe(x)


def test_memory_that_others_know_is_not_remembered_while_it_lives(statistics) -> None:
    for _ in range(50):
        x = torch.zeros(1000)
        assert statistics.describe(x) is statistics.describe(x), "another one had this address"
        statistics.distrust(x)
        for _ in range(2):
            assert statistics.describe(x) is not statistics.describe(x)
            x.add_(1)
            statistics.reset()


@pytest.mark.parametrize("task", ["md5", "xxh3", "xor"])
def test_digests_are_only_repeated_of_what_is_the_same_in_every_byte(engine, task: str) -> None:
    statistics = TensorStatistics(task)
    x = torch.zeros(300, 1000)
    told = set()
    for place in (5, 77_777, 123_456, 299_999):
        x.data.view(-1)[place] = 1
        told.add(statistics.describe(x).text)
        told.add(statistics.describe(x).text)
    assert len(told) == 4
    statistics.close()


def test_closing_gives_every_weak_reference_back(monkeypatch, engine) -> None:
    given, real = [], private.free_weak_reference
    monkeypatch.setattr(private, "free_weak_reference", lambda weak: given.append(weak) or real(weak))
    statistics = TensorStatistics()
    x, y = torch.zeros(4), torch.zeros(4)
    statistics.describe(y)
    statistics.distrust(x)
    statistics.reset()
    before = len(given)
    assert before >= 1
    statistics.close()
    assert len(given) > before


def test_known_results_are_used_also_where_nothing_is_added(statistics) -> None:
    x = torch.ones(4)
    info = statistics.describe(x)
    assert statistics.describe(x, remember=False) is info
    assert statistics.describe(x, False) is info


def test_digests_of_a_transpose_are_its_own() -> None:
    statistics = TensorStatistics("md5")
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert json.loads(statistics.describe(x).text)["md5"] == "1939e524"
    assert json.loads(statistics.describe(x.t()).text)["md5"] == "aff2ec06"
    assert json.loads(statistics.describe(x.view(6)).text)["md5"] == "1939e524"


def test_a_conjugate_is_not_taken_for_what_it_conjugates() -> None:
    statistics = TensorStatistics("xxh3")
    x = torch.tensor([1 + 2j])
    plain = json.loads(statistics.describe(x).text)["digest"]
    assert json.loads(statistics.describe(x.conj()).text)["digest"] != plain
    assert json.loads(statistics.describe(x).text)["digest"] == plain
    y = torch.tensor([1.0, 2.0])
    assert top(TensorStatistics(), torch._neg_view(y)) == -1
    both = TensorStatistics()
    assert (top(both, y), top(both, torch._neg_view(y)), top(both, y)) == (2, -1, 2)
    late = TensorStatistics(defer=True)
    infos = [late.describe(v) for v in (y, torch._neg_view(y))]
    late.flush()
    assert [json.loads(info.text)["Max"] for info in infos] == [2, -1]


def test_tensors_are_neither_kept_alive_nor_their_memory(statistics) -> None:

    import weakref

    x = torch.randn(1000)
    statistics.describe(x)
    reference = weakref.ref(x)
    storage = weakref.ref(x.untyped_storage())
    del x
    gc.collect()
    assert reference() is None
    assert storage() is None


def test_the_memory_of_what_is_remembered_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(module, "MEMO_LIMIT", 10)
    statistics = TensorStatistics()
    kept = [torch.full((3,), float(i)) for i in range(50)]
    for round_ in range(2):
        for i, x in enumerate(kept):
            assert top(statistics, x) == i, round_
    statistics.reset()
    assert top(statistics, kept[7]) == 7


def test_reset_gives_every_weak_reference_back(monkeypatch, engine) -> None:
    taken, given_back = [], []
    take, give_back = torch.UntypedStorage._weak_ref, private.free_weak_reference
    monkeypatch.setattr(torch.UntypedStorage, "_weak_ref", lambda storage: taken.append(take(storage)) or taken[-1])
    monkeypatch.setattr(private, "free_weak_reference", lambda weak: given_back.append(weak) or give_back(weak))
    statistics = TensorStatistics()
    tensors = [torch.randn(3) for _ in range(50)]
    for x in tensors:
        statistics.describe(x)
    assert len(taken) == 50
    statistics.reset()
    assert sorted(given_back) == sorted(taken)
    for x in tensors:
        x += 1
        statistics.describe(x)
    statistics.reset()
    statistics.reset()
    assert len(taken) == 100
    assert sorted(given_back) == sorted(taken)


def test_inference_tensors_have_no_version_and_are_read_every_time(statistics) -> None:
    with torch.inference_mode():
        x = torch.zeros(3)
        assert top(statistics, x) == 0
        x += 1
        assert top(statistics, x) == 1
    assert statistics.errors == 0


def test_a_freed_storage_is_not_read(statistics) -> None:
    x = torch.ones(1000)
    assert top(statistics, x) == 1
    x.untyped_storage().resize_(0)
    found = json.loads(statistics.describe(x).text)
    assert found["Max"] is None
    assert "storage" in found["unsupported"]
    x.untyped_storage().resize_(400)  # fewer than the shape needs
    assert "storage" in json.loads(statistics.describe(x).text)["unsupported"]
    assert statistics.errors == 0


def test_a_lazy_copy_stays_lazy(statistics) -> None:
    x = torch.ones(5)
    lazy = torch._lazy_clone(x)
    assert torch._C._is_cow_tensor(lazy)
    assert top(statistics, lazy) == 1
    assert torch._C._is_cow_tensor(lazy)


def test_elements_are_not_read_again_for_another_view(statistics) -> None:
    x = torch.zeros(6, 4)
    for view in (x, x.t(), x.view(24), x.view(2, 3, 4).permute(2, 0, 1)):
        assert top(statistics, view) == 0
    assert statistics.reads == 1
    assert top(statistics, x[:3]) == 0
    assert statistics.reads == 2


def test_one_buffer_with_thousands_of_views_stays_right(statistics) -> None:
    buffer = torch.arange(3000.0)
    for _ in range(2):
        for i, view in enumerate(buffer.split(1)):
            assert top(statistics, view) == i


def test_arguments_are_checked(statistics) -> None:
    with pytest.raises(TypeError):
        statistics.describe()
    with pytest.raises(TypeError):
        statistics.describe(torch.ones(1), wrong=True)
    with pytest.raises(TypeError):
        statistics.describe(torch.ones(1), True, True)


def test_a_description_class_that_fails_does_not_reach_the_caller(monkeypatch) -> None:
    if not native.built:
        pytest.skip("the C extension was not built")

    class Failing:
        def __init__(self, *arguments) -> None:
            raise RuntimeError("no")

    monkeypatch.setattr(module, "TensorInfo", Failing)
    failing = TensorStatistics()
    monkeypatch.undo()
    assert top(failing, torch.ones(2)) == 1, "taken over by the way for unusual tensors"
    failing.reset()


SETS = ("baseline", "avx2", "avx512")


@pytest.mark.skipif(not native.built, reason="the C extension was not built")
@pytest.mark.parametrize("shape", [(1,), (3, 5), (64, 65), (4, 1000), (100_003,)])
def test_every_instruction_set_knows_the_same_elements_again_and_sees_each_that_was_written(shape) -> None:
    from msprobe.capture import _native

    known = TensorStatistics(exact=True)
    x = torch.randn(shape)
    transposed = torch.randn(shape[::-1]).mT if len(shape) > 1 else torch.randn(2 * x.numel())[::2]
    try:
        for tensor in (x, transposed):
            before = known.reads
            for name in SETS:
                if _native.choose_kernels(name):
                    known.describe(tensor)
            assert known.reads == before + 1, "the fingerprint is the same, whatever it was made with"
        for name in SETS:
            if not _native.choose_kernels(name):
                continue
            for place in {0, x.numel() // 3, x.numel() - 1}:
                y = torch.zeros_like(x)
                assert top(known, y) == 0
                y.data.view(-1)[place] = 2
                assert top(known, y) == 2
    finally:
        for name in SETS:
            _native.choose_kernels(name)
        known.close()


@pytest.fixture
def faults(monkeypatch) -> list[str]:
    if not native.built:
        pytest.skip("the C extension was not built")
    counted: list[str] = []
    monkeypatch.setattr(native, "_faults", counted)
    return counted


def test_after_repeated_faults_python_goes_on_and_one_line_says_so(monkeypatch, faults, capsys) -> None:
    calls = []

    def failing(*arguments) -> bytes:
        calls.append(arguments)
        raise ValueError("planted")

    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "1")
    monkeypatch.setattr(module, "_digest_of", failing)
    statistics = TensorStatistics()
    whole = [torch.arange(n, n + 5) for n in range(8)]
    for n, tensor in enumerate(whole):
        found = json.loads(statistics.describe(tensor).text)
        assert (found["Max"], found["Min"]) == (n + 4, n)
        assert found["digest"]
    assert len(calls) == 3, "it is not asked any more"
    assert faults == ["ValueError: planted"] * 3
    assert top(statistics, torch.ones(3)) == 1
    assert statistics.copy(torch.ones(3), memoryview(bytearray(12))) is None
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert mentions(told, "native-code-failed", count=3, error="ValueError: planted")
    statistics.reset()
    assert not TensorStatistics().is_native(), "nor by another part of this process"


def test_an_error_that_the_tensor_explains_is_no_fault(faults) -> None:
    statistics = TensorStatistics()
    with torch.inference_mode():
        unversioned = torch.ones(3)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    for _ in range(5):
        for tensor in (torch.eye(2).to_sparse(), unversioned, freed, torch.ones(2, device="meta")):
            statistics.describe(tensor)
            statistics.copy(tensor, memoryview(bytearray(16)))
    assert faults == []
    assert statistics.is_native()
    statistics.reset()


def test_an_interrupt_in_the_middle_of_a_description_is_handed_on(monkeypatch, faults) -> None:
    def interrupted(*arguments) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_digest_of", interrupted)
    statistics = TensorStatistics()
    with pytest.raises(KeyboardInterrupt):
        statistics.describe(torch.arange(3))
    assert faults == []
    statistics.reset()


def test_storages_that_are_gone_are_let_go_of_before_the_step_ends(engine, monkeypatch) -> None:
    freed, real = [], private.free_weak_reference

    def free(weak: int) -> None:
        freed.append(weak)
        real(weak)

    monkeypatch.setattr(private, "free_weak_reference", free)
    statistics = TensorStatistics()
    stay = [torch.full((3,), float(number)) for number in range(200)]
    for tensor in stay:
        statistics.describe(tensor)
    for number in range(2000):
        assert top(statistics, torch.full((4,), float(number))) == number
    assert len(freed) > 1500
    assert [top(statistics, tensor) for tensor in stay] == [float(number) for number in range(200)]
    statistics.reset()
    assert len(freed) == 2200
