"""Collectives: seen by any name, recorded as one unit, never waited for. One process stands for all ranks."""

from __future__ import annotations

import gc
import inspect
import json
import threading
import types
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as all_reduce_imported_before
from torch.distributed import distributed_c10d as c10d
from torch.distributed import irecv, isend

from msprobe.capture.torch.collectives.collective_calls import UNLISTED, WRITTEN, find_collectives
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.pytorch import PrecisionDebugger

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo"),
    pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning"),
    pytest.mark.usefixtures("group_of_one"),
]


Record = Callable[..., dict[str, Any]]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Run a function while recording; give the records of what it did."""

    def run(work: Callable[[], Any], **settings: Any) -> dict[str, Any]:
        settings = {"task": "statistics", "level": "L1", **settings}
        debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), **settings)
        debugger.start()
        try:
            work()
        finally:
            debugger.stop()
            debugger.step()
            PrecisionDebugger.reset()
        (file,) = (tmp_path / "dump").glob("step0/*/dump.json")
        assert file.parent.name == "rank0"
        found: dict[str, Any] = json.loads(file.read_text())["data"]
        return found

    yield run
    PrecisionDebugger.reset()


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (3,))


def maximum(entry: dict[str, Any]) -> Any:
    return entry["Max"]


# ---------------------------------------------------------------- functions keep their identity


def test_functions_are_the_same_objects_while_recording(record: Record) -> None:
    names = [name for name, _ in inspect.getmembers(dist, inspect.isfunction)]
    before = {name: getattr(dist, name) for name in names}
    during: dict[str, Any] = {}
    record(lambda: during.update({name: getattr(dist, name) for name in names}) or dist.barrier())
    assert all(during[name] is before[name] for name in names)


def test_signature_name_and_place_stay_while_recording(record: Record) -> None:
    def look() -> list[object]:
        found: list[object] = []
        for name in ("all_reduce", "isend", "batch_isend_irecv", "_reduce_scatter_base"):
            function = getattr(c10d, name)
            code = function.__code__
            found += [
                inspect.signature(function),
                function.__qualname__,
                code.co_filename,
                code.co_firstlineno,
            ]
        return found

    before, during = look(), []
    record(lambda: during.extend(look()) or dist.barrier())
    assert during == before


def test_every_function_has_its_own_code_and_nothing_else_after_stop(record: Record) -> None:
    functions = [function for _, function in find_collectives(True)]
    before = [(function.__code__, dict(function.__dict__)) for function in functions]
    during: list[Any] = []
    record(lambda: during.extend(f.__code__ for f in functions) or dist.barrier())
    assert all(code is not own for code, (own, _) in zip(during, before, strict=True))
    assert [(function.__code__, dict(function.__dict__)) for function in functions] == before


def test_a_name_imported_before_is_seen(record: Record) -> None:
    data = record(lambda: all_reduce_imported_before(ones()))
    assert "Distributed.all_reduce.0.forward" in data


def test_a_send_made_before_start_is_still_a_send(record: Record) -> None:
    # P2POp and batch_isend_irecv tell sends by the identity of the function.
    assert record(lambda: c10d._check_op(isend) or c10d._check_op(irecv) or dist.barrier())


def test_a_thread_between_two_codes_ends_up_at_the_original() -> None:
    def add(a: int, b: int = 2, *, c: int = 3) -> int:
        return a + b + c

    watched = FunctionCalls()
    assert watched.add(add, lambda original, args, kwargs: -original(*args, **kwargs))
    watched.attach()
    entered = add.__code__
    assert (add(1), add(1, c=0)) == (-6, -3)
    watched.detach()
    # A thread that was about to run the exchanged code when it was taken away:
    late = types.FunctionType(entered, add.__globals__, "add", add.__defaults__, add.__closure__)
    assert (add(1), late(1), late(1, b=0)) == (6, 6, 4)


def test_a_function_with_free_variables_can_be_watched() -> None:
    factor = 10

    def times(a: int) -> int:
        return a * factor

    watched = FunctionCalls()
    watched.add(times, lambda original, args, kwargs: ("seen", original(*args, **kwargs)))
    for _ in range(2):
        watched.attach()
        assert times(2) == ("seen", 20)
        watched.detach()
        assert times(2) == 20


def test_watching_twice_leaves_the_first_in_place() -> None:
    def name() -> str:
        return "own"

    first, second = FunctionCalls(), FunctionCalls()
    first.add(name, lambda original, args, kwargs: "first")
    second.add(name, lambda original, args, kwargs: "second")
    first.attach()
    second.attach()
    assert name() == "first"
    second.detach()
    assert name() == "first"
    first.detach()
    assert name() == "own"


def test_what_is_no_python_function_cannot_be_watched() -> None:
    assert not FunctionCalls().add(len, lambda *_: None)


# ---------------------------------------------------------------- what a record says


def test_output_is_all_arguments_after_the_call(record: Record) -> None:
    buffers = [torch.zeros(3)]
    data = record(lambda: dist.all_gather(buffers, ones() * 4, async_op=False))
    entry = data["Distributed.all_gather.0.forward"]
    assert maximum(entry["input_args"][0][0]) == 0
    assert maximum(entry["output"][0][0]) == 4
    assert maximum(entry["output"][1]) == 4
    assert entry["output"][2] == {"type": "bool", "value": False}
    assert entry["process_group"] == {
        "type": "torch.ProcessGroup",
        "group_ranks": [0],
        "group_id": f"{zlib.crc32(b'[0]'):08x}",
    }
    assert "async" not in entry


def test_groups_and_reductions_are_written_as_specified(record: Record) -> None:
    group = dist.new_group([0])
    data = record(lambda: dist.all_reduce(ones(), dist.ReduceOp.MAX, group))
    _, operation, found = data["Distributed.all_reduce.0.forward"]["input_args"]
    assert operation == {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}
    assert found["type"] == "torch.ProcessGroup"
    assert found["group_ranks"] == [0]
    assert len(found["group_id"]) == 8


def test_a_reduction_object_is_written_as_its_operation(record: Record) -> None:
    data = record(lambda: dist.all_reduce(ones(), op=dist.ReduceOp(dist.ReduceOp.SUM)))
    operation = data["Distributed.all_reduce.0.forward"]["input_kwargs"]["op"]
    assert operation == {"type": "torch.distributed.ReduceOp", "value": "RedOpType.SUM"}


def test_the_group_id_is_that_of_the_reference() -> None:
    from msprobe.capture.torch.tensors.values import group_id

    assert group_id([0, 1]) == "77849d8c"


def test_what_a_collective_calls_inside_is_part_of_it(record: Record) -> None:
    objects: list[Any] = [None]
    data = record(lambda: dist.all_gather_object(objects, {"a": 1}))
    assert list(data) == ["Distributed.all_gather_object.0.forward"]
    assert objects == [{"a": 1}]
    entry = data["Distributed.all_gather_object.0.forward"]
    assert entry["input_args"][0] == [None]
    assert entry["output"][0] == [{"a": {"type": "int", "value": 1}}]


def test_listed_only_leaves_out_what_the_list_does_not_name(record: Record) -> None:
    data = record(lambda: dist.barrier() or dist.all_reduce(ones()), api_scope="listed")
    assert [name for name in data if name.startswith("Distributed")] == ["Distributed.all_reduce.0.forward"]


def test_a_filter_is_obeyed_and_the_collective_still_happens(record: Record) -> None:
    x, y = ones(), ones()

    def work() -> None:
        dist.all_reduce(x)
        dist.broadcast(y, 0)

    data = record(work, list=["broadcast"])
    assert list(data) == ["Distributed.broadcast.0.forward"]


def test_a_failing_collective_is_marked_and_the_next_is_recorded(record: Record) -> None:
    def work() -> None:
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            dist.all_reduce("no tensor")
        dist.all_reduce(ones())
        ones() + 1

    data = record(work)
    assert "error" in data["Distributed.all_reduce.0.forward"]
    assert "error" not in data["Distributed.all_reduce.1.forward"]
    assert "Tensor.__add__.0.forward" in data


def test_the_source_is_the_line_of_the_user(record: Record) -> None:
    data = record(lambda: dist.all_reduce(ones()))
    assert data["Distributed.all_reduce.0.forward"]["msprobe"]["source"].startswith(__file__)


def test_no_backward_is_recorded_and_no_node_touched(record: Record) -> None:
    x = torch.ones(3, requires_grad=True)

    def work() -> None:
        y = x * 2
        with torch.no_grad():
            dist.all_reduce(y)
        y.sum().backward()

    data = record(work)
    assert not [name for name in data if name.startswith("Distributed") and "backward" in name]
    assert x.grad is not None


def test_differentiable_collectives_show_the_collective_inside(record: Record) -> None:
    import torch.distributed.nn.functional as differentiable

    x = torch.ones(3, requires_grad=True)
    data = record(lambda: differentiable.all_reduce(x).sum().backward())
    assert "Distributed.all_reduce.0.forward" in data
    assert "Distributed.all_reduce.1.forward" in data, "the backward reduces the gradient"


def test_a_result_known_before_is_read_again_after_the_collective(record: Record) -> None:
    # A collective does not raise the version counter of the buffer that it fills.
    buffer = torch.zeros(3)
    source = ones() * 7

    def work() -> None:
        buffer + 0
        dist.all_gather_into_tensor(buffer, source)
        buffer + 0

    data = record(work)
    assert maximum(data["Tensor.__add__.0.forward"]["input_args"][0]) == 0
    assert maximum(data["Tensor.__add__.1.forward"]["input_args"][0]) == 7


def test_whole_tensors_are_saved_before_and_after(record: Record, tmp_path: Path) -> None:
    buffer = torch.zeros(2)
    record(lambda: dist.all_gather([buffer], ones(2) * 3), task="tensor")
    folder = tmp_path / "dump/step0/rank0/dump_tensor_data"
    before = torch.load(folder / "Distributed.all_gather.0.forward.input.0.0.pt", weights_only=True)
    after = torch.load(folder / "Distributed.all_gather.0.forward.output.0.0.pt", weights_only=True)
    assert (before.tolist(), after.tolist()) == ([0, 0], [3, 3])


def test_every_listed_collective_exists_and_says_what_it_writes() -> None:
    found = {collective.name: collective for collective, _ in find_collectives(True)}
    assert set(UNLISTED) - set(found) <= {
        "all_gather_single",
        "reduce_scatter_single",
        "all_gather_coalesced",
    }
    for name, written in WRITTEN.items():
        if name in found:
            assert set(written) <= set(found[name].positions), name


# ---------------------------------------------------------------- asynchronous work


def test_the_user_gets_the_very_work_that_torch_made(record: Record) -> None:
    kinds: list[type] = []
    record(lambda: kinds.append(type(dist.all_reduce(ones(), async_op=True))))
    work = dist.all_reduce(ones(), async_op=True)
    assert kinds == [type(work)]


def test_a_result_appears_when_the_user_waits(record: Record) -> None:
    buffer = torch.zeros(3)

    def work() -> None:
        handle = dist.all_gather_into_tensor(buffer, ones() * 2, async_op=True)
        handle.wait()
        buffer.zero_()

    entry = record(work)["Distributed.all_gather_into_tensor.0.forward"]
    assert maximum(entry["output"][0]) == 2
    assert (entry["async"], entry["completed"]) == (True, True)
    assert "waited" not in entry


def test_asking_whether_it_is_done_counts_as_waiting(record: Record) -> None:
    buffer = torch.zeros(3)

    def work() -> None:
        handle = dist.all_gather_into_tensor(buffer, ones() * 2, async_op=True)
        while not handle.is_completed():
            pass
        buffer.zero_()

    entry = record(work)["Distributed.all_gather_into_tensor.0.forward"]
    assert maximum(entry["output"][0]) == 2
    assert entry["completed"] is True


def let_it_finish() -> None:
    """Time enough for the work of one process; nobody asks for it."""
    threading.Event().wait(0.2)


def test_work_nobody_waited_for_is_marked(record: Record) -> None:
    kept: list[Any] = []
    data = record(lambda: kept.append(dist.all_reduce(ones(), async_op=True)) or let_it_finish())
    entry = data["Distributed.all_reduce.0.forward"]
    assert (entry["completed"], entry["waited"]) == (True, False)
    assert maximum(entry["output"][0]) == 1


def test_a_buffer_written_before_anybody_looked_is_not_taken_for_the_result(record: Record) -> None:
    kept: list[Any] = []
    buffer = ones()

    def work() -> None:
        kept.append(dist.all_reduce(buffer, async_op=True))
        let_it_finish()
        buffer.fill_(99)

    entry = record(work)["Distributed.all_reduce.0.forward"]
    assert entry["completed"] is False
    assert entry["output"] == [None, None]


def test_a_handle_that_was_dropped_leaves_the_record_open_and_keeps_nothing_alive(record: Record) -> None:
    seen: list[Any] = []

    def work() -> None:
        buffer = ones()
        dist.all_reduce(buffer, async_op=True)
        seen.append(weakref.ref(buffer))
        del buffer
        let_it_finish()
        gc.collect()
        seen.append(seen[0]())

    entry = record(work)["Distributed.all_reduce.0.forward"]
    assert entry["completed"] is False
    assert seen[1] is None


def test_a_future_that_is_waited_for_completes_the_record(record: Record) -> None:
    buffer = torch.zeros(3)

    def work() -> None:
        future = dist.all_gather_into_tensor(buffer, ones() * 2, async_op=True).get_future()
        future.wait()
        buffer.zero_()

    entry = record(work)["Distributed.all_gather_into_tensor.0.forward"]
    assert maximum(entry["output"][0]) == 2
    assert entry["completed"] is True


def test_a_continuation_sees_what_it_would_see_and_the_record_what_came_before_it(record: Record) -> None:
    buffer = torch.zeros(3)
    results: list[Any] = []

    def work() -> None:
        future = dist.all_gather_into_tensor(buffer, ones() * 2, async_op=True).get_future()
        chained = future.then(lambda done: done.value()[0].mul_(10))
        results.append(chained.wait().tolist())

    entry = record(work)["Distributed.all_gather_into_tensor.0.forward"]
    assert results == [[20.0, 20.0, 20.0]]
    assert maximum(entry["output"][0]) == 2


def test_work_waited_for_in_the_next_step_does_not_touch_the_last_one(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    buffer = ones()
    try:
        with debugger.recording():
            handle = dist.all_reduce(buffer, async_op=True)
            let_it_finish()
            buffer.add_(1)
        with debugger.recording():
            handle.wait()
            dist.barrier()
    finally:
        PrecisionDebugger.reset()
    data = json.loads((tmp_path / "step1/rank0/dump.json").read_text())["data"]
    assert list(data) == ["Distributed.barrier.0.forward"]


def test_work_waited_for_after_recording_went_on_is_complete(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    buffer = torch.zeros(3)
    try:
        debugger.start()
        handle = dist.all_gather_into_tensor(buffer, ones() * 2, async_op=True)
        let_it_finish()
        # Nobody can tell any more whether this is the collective's work or the user's.
        buffer.add_(0)
        debugger.stop()
        first = json.loads((tmp_path / "step0/rank0/dump.json").read_text())["data"]
        with debugger.recording():
            handle.wait()
    finally:
        PrecisionDebugger.reset()
    name = "Distributed.all_gather_into_tensor.0.forward"
    assert first[name]["completed"] is False
    entry = json.loads((tmp_path / "step0/rank0/dump.json").read_text())["data"][name]
    assert entry["completed"] is True
    assert maximum(entry["output"][0]) == 2


def test_handles_have_their_own_methods_after_stop(record: Record) -> None:
    names = ("wait", "is_completed", "get_future", "synchronize")
    before = {name: vars(dist.Work).get(name) for name in names}
    wait_of_future = vars(torch._C.Future)["wait"]
    record(lambda: dist.all_reduce(ones(), async_op=True).get_future().wait())
    assert {name: vars(dist.Work).get(name) for name in names} == before
    assert vars(torch._C.Future)["wait"] is wait_of_future


def test_a_class_of_work_with_its_own_wait_is_listened_to(record: Record) -> None:
    class OwnWork(dist.Work):
        def wait(self, timeout: Any = None) -> bool:
            return True

    from msprobe.capture.torch.collectives.collectives_work import Unfinished, WorkWatch

    class Session:
        @staticmethod
        def guard(work: Callable[..., Any], *args: Any) -> Any:
            return work(*args)

    watch = WorkWatch(Session())  # type: ignore[arg-type]
    done: list[bool] = []
    first, second = OwnWork(), OwnWork()
    original = OwnWork.wait
    watch.watch(Unfinished(done.append, [ones()]), [first, second])
    first.wait()
    assert done == []
    second.wait()
    second.wait()
    assert done == [True]
    watch.detach()
    assert OwnWork.wait is original


# ---------------------------------------------------------------- coalescing


def test_coalesced_collectives_are_recorded_with_their_results(record: Record) -> None:
    first, second = torch.zeros(3), torch.zeros(2)

    def work() -> None:
        with c10d._coalescing_manager():
            dist.all_gather_into_tensor(first, ones())
            dist.all_gather_into_tensor(second, ones(2))

    data = record(work)
    for n in (0, 1):
        entry = data[f"Distributed.all_gather_into_tensor.{n}.forward"]
        assert entry["coalesced"] is True
        assert maximum(entry["input_args"][0]) == 0
        assert maximum(entry["output"][0]) == 1
        assert "async" not in entry


def test_coalesced_collectives_wait_for_the_managers_work(record: Record) -> None:
    buffer = torch.zeros(3)

    def work() -> None:
        with c10d._coalescing_manager(async_ops=True) as manager:
            dist.all_gather_into_tensor(buffer, ones())
        manager.wait()
        buffer.zero_()

    entry = record(work)["Distributed.all_gather_into_tensor.0.forward"]
    assert (entry["async"], entry["completed"], entry["coalesced"]) == (True, True, True)
    assert maximum(entry["output"][0]) == 1


def test_an_exception_inside_a_coalescing_block_is_the_users(record: Record) -> None:
    def work() -> None:
        with pytest.raises(KeyError), c10d._coalescing_manager():
            raise KeyError("mine")
        c10d._world.pg_coalesce_state.clear()
        dist.barrier()

    assert "Distributed.barrier.0.forward" in record(work)


# ---------------------------------------------------------------- functional collectives


def test_a_functional_collective_is_read_when_it_is_waited_for(record: Record) -> None:
    import torch.distributed._functional_collectives as functional

    def work() -> None:
        result = functional.all_reduce(ones() * 3, "sum", dist.group.WORLD)
        functional.wait_tensor(result)

    data = record(work)
    entry = data["Ops._c10d_functional_all_reduce.0.forward"]
    assert maximum(entry["output"][0]) == 3
    assert (entry["async"], entry["completed"]) == (True, True)
    assert entry["process_group"]["group_ranks"] == [0]
    assert entry["input_args"][-1] == entry["process_group"], "not the name that torch made up"


def test_a_functional_collective_used_in_a_recorded_call_is_complete(record: Record) -> None:
    import torch.distributed._functional_collectives as functional

    data = record(lambda: functional.all_reduce(ones() * 3, "sum", dist.group.WORLD) + 1)
    assert data["Ops._c10d_functional_all_reduce.0.forward"]["completed"] is True
    assert maximum(data["Tensor.__add__.0.forward"]["output"][0]) == 4


def test_a_functional_collective_nobody_used_is_not_read_and_not_waited_for(record: Record) -> None:
    import torch.distributed._functional_collectives as functional

    kept: list[Any] = []
    data = record(lambda: kept.append(functional.all_reduce(ones(), "sum", dist.group.WORLD)))
    entry = data["Ops._c10d_functional_all_reduce.0.forward"]
    assert entry["completed"] is False
    assert entry["output"] == [None]
    assert kept[0].completed is False
    functional.wait_tensor(kept[0])


def test_several_functional_results_are_complete_when_all_are_waited_for(record: Record) -> None:
    import torch.distributed._functional_collectives as functional

    def work() -> None:
        first, second = functional.all_reduce_coalesced([ones(), ones(2)], "sum", dist.group.WORLD)
        first + 1
        second + 1

    entry = record(work)["Ops._c10d_functional_all_reduce_coalesced.0.forward"]
    assert entry["completed"] is True
    assert [value["shape"] for value in entry["output"][0]] == [[3], [2]]


def test_the_gradient_of_a_functional_collective_is_recorded_by_its_operator(record: Record) -> None:
    import torch.distributed._functional_collectives as functional

    x = torch.ones(3, requires_grad=True)
    data = record(lambda: functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD).sum().backward())
    assert not [name for name in data if "GeneratedBackwardFor" in name]
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1]
