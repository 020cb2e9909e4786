"""Gradients on their way through a backward pass are described without the engine noticing."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.native_and_python import use_python

from msprobe.capture import native
from msprobe.capture.torch.tensors import statistics as module
from msprobe.capture.torch.tensors import storages
from msprobe.capture.torch.tensors.statistics import TensorStatistics


@pytest.fixture(params=["native", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    return str(request.param)


@pytest.fixture
def statistics(engine: str) -> Iterator[TensorStatistics]:
    made = TensorStatistics()
    yield made
    made.reset()


def top(statistics: TensorStatistics, tensor: torch.Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        return json.loads(statistics.describe(tensor).text)["Max"]


def in_backward(work: Callable[[], None]) -> None:
    """Run ``work`` where the hooks of a backward pass run."""
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    errors: list[BaseException] = []

    def hook(*_: object) -> None:
        try:
            work()
        except BaseException as error:  # the engine would tell of it in its own words
            errors.append(error)

    y.grad_fn.register_hook(hook)
    y.sum().backward()
    if errors:
        raise errors[0]


def train(see: Callable[[torch.Tensor], object], dtype: torch.dtype = torch.float32) -> list[int]:
    """How often the gradients of weights that are used five times were added to in place."""
    weight = torch.ones(3, 3, dtype=dtype, requires_grad=True)
    bias = torch.ones(3, dtype=dtype, requires_grad=True)
    x = torch.ones(2, 3, dtype=dtype, requires_grad=True)

    def hook(passed_on: tuple[Any, ...], received: tuple[Any, ...]) -> None:
        with torch._C.DisableTorchFunction():
            for gradient in (*received, *passed_on):
                if gradient is not None:
                    see(gradient)

    h = x
    for _ in range(5):
        h = torch.addmm(bias, h, weight.t()) + x.tanh() * bias
        todo, seen = [h.grad_fn], set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if not hasattr(node, "variable"):
                node.register_hook(hook)
                todo += [following for following, _ in node.next_functions]
    h.abs().sum().backward()
    gradients = (weight.grad, bias.grad, x.grad)
    assert all(gradient is not None for gradient in gradients)
    return [gradient._version for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("mode", ["statistics", "md5", "xor", "xxh3", "structure"])
def test_the_engine_adds_in_place_as_without_us(engine: str, mode: Any, dtype: torch.dtype) -> None:
    without = train(lambda gradient: None, dtype)
    assert max(without) > 1, "the case must have something to lose"
    statistics = TensorStatistics(mode)
    assert train(statistics.describe, dtype) == without
    statistics.reset()


def test_late_descriptions_leave_gradients_alone_too() -> None:
    statistics = TensorStatistics(defer=True)
    assert train(statistics.describe) == train(lambda gradient: None)
    statistics.flush()


def test_to_copy_the_values_leaves_gradients_alone_too(engine: str) -> None:
    statistics = TensorStatistics()

    def see(gradient: torch.Tensor) -> None:
        statistics.describe(gradient)
        statistics.copy(gradient, memoryview(bytearray(gradient.numel() * 4)))

    assert train(see) == train(lambda gradient: None)


def test_to_forget_a_gradient_leaves_it_alone_too(engine: str) -> None:
    statistics = TensorStatistics()

    def see(gradient: torch.Tensor) -> None:
        statistics.describe(gradient)
        statistics.invalidate(gradient)

    assert train(see) == train(lambda gradient: None)


def test_a_gradient_met_again_is_not_read_again(engine: str, statistics: TensorStatistics) -> None:
    def work() -> None:
        gradient = torch.zeros(6, 4)
        assert top(statistics, gradient) == 0
        for view in (gradient, gradient.t(), gradient.view(24), gradient.view(2, 3, 4), gradient.detach()):
            assert top(statistics, view) == 0
        assert statistics.reads == 1
        assert top(statistics, gradient[:3]) == 0
        assert statistics.reads == 2

    in_backward(work)


def test_a_view_takes_the_place_of_the_gradient_it_was_made_of(engine: str, statistics: TensorStatistics) -> None:
    def work() -> None:
        gradient = torch.zeros(6, 4)
        assert top(statistics, gradient) == 0
        for shape in ((24,), (4, 6), (2, 12), (8, 3), (24, 1)):
            following = gradient.view(shape)
            assert top(statistics, following) == 0
            gradient = following
        assert statistics.reads == 1, "each was described while the one before was alive"

    in_backward(work)


def test_a_write_to_a_gradient_is_seen(engine: str, statistics: TensorStatistics) -> None:
    def work() -> None:
        gradient = torch.zeros(4)
        assert top(statistics, gradient) == 0
        gradient += 1
        assert top(statistics, gradient) == 1
        gradient.view(2, 2)[0].fill_(2)
        assert top(statistics, gradient) == 2
        gradient.data.fill_(5)
        statistics.invalidate(gradient.view(2, 2))
        assert top(statistics, gradient) == 5

    in_backward(work)


def test_the_place_of_a_gradient_that_is_gone_is_not_confused(engine: str, statistics: TensorStatistics) -> None:
    places = set()

    def work() -> None:
        for i in range(300):
            gradient = torch.full((100,), float(i))
            places.add(storages.address_of_storage(gradient))
            assert top(statistics, gradient) == i
            assert top(statistics, gradient.view(10, 10)) == i

    in_backward(work)
    # Nor is a place that a gradient had, when something else lies there after the pass.
    for i in range(300):
        assert top(statistics, torch.full((100,), -float(i))) == -i
    if len(places) == 300:
        pytest.skip("this allocator uses no address again, so nothing was tried")


def test_a_tensor_with_another_storage_vouches_for_the_old_one_no_longer(engine: str) -> None:
    statistics = TensorStatistics()
    stale: list[float] = []

    def work() -> None:
        for i in range(200):
            owner = torch.full((50,), float(i))
            view = owner.view(5, 10)
            assert top(statistics, owner) == i
            assert top(statistics, view) == i
            # The two go elsewhere but live on; their storage is free for the next one.
            owner.data = torch.zeros(1)
            view.data = torch.zeros(1)
            following = torch.full((50,), 1000.0 + i)
            if top(statistics, following) != 1000 + i:
                stale.append(i)
            kept.append((owner, view))

    kept: list[Any] = []
    in_backward(work)
    assert not stale


def test_what_was_described_before_the_pass_is_known_in_it_and_after(engine: str, statistics: TensorStatistics) -> None:
    x = torch.zeros(5)
    late = []
    assert top(statistics, x) == 0

    def work() -> None:
        assert top(statistics, x) == 0
        y = torch.zeros(5)
        assert top(statistics, y) == 0
        late.append(y)

    in_backward(work)
    assert top(statistics, x) == 0
    assert top(statistics, late[0]) == 0
    assert top(statistics, late[0].view(5, 1)) == 0
    assert statistics.reads == 2
    statistics.reset()
    assert top(statistics, late[0]) == 0
    assert statistics.reads == 3


def test_gradients_are_not_kept_alive(engine: str, statistics: TensorStatistics) -> None:
    import weakref

    references = []

    def work() -> None:
        for _ in range(20):
            gradient = torch.randn(100)
            statistics.describe(gradient)
            statistics.describe(gradient.view(10, 10))
            references.append(weakref.ref(gradient))

    in_backward(work)
    gc.collect()
    assert [reference() for reference in references] == [None] * 20


def test_the_memory_of_gradients_is_bounded(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMO_LIMIT", 10)
    statistics = TensorStatistics()

    def work() -> None:
        kept = [torch.full((3,), float(i)) for i in range(50)]
        for _ in range(2):
            for i, x in enumerate(kept):
                assert top(statistics, x) == i

    in_backward(work)
    statistics.reset()


def test_a_storage_that_was_freed_in_the_pass_is_not_read(engine: str, statistics: TensorStatistics) -> None:
    def work() -> None:
        gradient = torch.ones(1000)
        gradient.untyped_storage().resize_(0)
        assert top(statistics, gradient) is None

    in_backward(work)


def test_without_the_question_for_the_address_all_is_as_in_older_versions(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch before 2.3 has no way to ask; there, storage objects leave no trace."""
    monkeypatch.setattr(storages, "storage_of", None)
    monkeypatch.setattr(module, "storage_of", None)
    statistics = TensorStatistics()

    def work() -> None:
        for i in range(50):
            gradient = torch.full((100,), float(i))
            assert top(statistics, gradient) == i
            assert top(statistics, gradient.view(10, 10)) == i
            gradient += 1
            assert top(statistics, gradient) == i + 1

    in_backward(work)
    work()
    statistics.reset()
