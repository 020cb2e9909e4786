"""What two real ranks record: collectives with their results, sharded tensors, one folder for each rank."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from distributed_ranks import WORLD_SIZE, launch

pytest.importorskip("torch")

Data = dict[str, Any]
SCENARIOS = [
    "start_before_the_group",
    "every_kind",
    "only_rank_1",
    "data_parallel",
    "communication_hook",
    "sharded",
    "listened",
    "tensor_parallel",
    "pipelined",
    "checked",
    "stuck",
]
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "77849d8c"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the dumps of all scenarios."""
    folder = tmp_path_factory.mktemp("ranks")
    launch(folder, SCENARIOS)
    return folder


def read(recorded: Path, scenario: str, rank: int, step: int = 0) -> Data:
    file = recorded / scenario / f"step{step}" / f"rank{rank}" / "dump.json"
    assert not (file.parent / "dump_error_info.log").exists()
    data: Data = json.loads(file.read_text())["data"]
    return data


def folders(recorded: Path, scenario: str) -> set[str]:
    return {str(path.relative_to(recorded / scenario)) for path in (recorded / scenario).glob("step*/*")}


def extremes(info: Data) -> tuple[float, float]:
    return info["Min"], info["Max"]


# ---------------------------------------------------------------- folders


def test_a_start_before_the_group_takes_the_rank_of_the_launcher(recorded: Path) -> None:
    assert folders(recorded, "start_before_the_group") == {
        f"step{step}/rank{rank}" for step in (0, 1) for rank in (0, 1)
    }
    for rank in range(WORLD_SIZE):
        assert read(recorded, "start_before_the_group", rank)["Torch.ones.0.forward"]


def test_without_a_launcher_no_folder_is_shared(tmp_path: Path) -> None:
    launch(tmp_path, ["start_before_the_group"], with_launcher=False)
    found = folders(tmp_path, "start_before_the_group")
    assert {"step1/rank0", "step1/rank1"} <= found
    first = [name for name in found if name.startswith("step0/")]
    assert len(first) == WORLD_SIZE
    for name in first:
        dump = json.loads((tmp_path / "start_before_the_group" / name / "dump.json").read_text())
        assert len([entry for entry in dump["data"] if entry.startswith("Distributed.")]) == 1


def test_only_the_wanted_rank_is_recorded(recorded: Path) -> None:
    assert folders(recorded, "only_rank_1") == {"step0/rank1"}


@pytest.mark.parametrize(("wanted", "found"), [([0], {"step0/rank"}), ([1], set()), ([], {"step0/rank"})])
def test_a_single_process_is_rank_0(tmp_path: Path, wanted: list[int], found: set[str]) -> None:
    import torch

    from msprobe.pytorch import PrecisionDebugger

    try:
        debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), task="statistics", level="L1", rank=wanted)
        with debugger.recording():
            torch.ones(2) + 1
    finally:
        PrecisionDebugger.reset()
    assert folders(tmp_path, "dump") == found


# ---------------------------------------------------------------- collectives


def test_a_sum_shows_the_parts_and_the_whole(recorded: Path) -> None:
    for rank in range(WORLD_SIZE):
        entry = read(recorded, "every_kind", rank)["Distributed.all_reduce.0.forward"]
        assert extremes(entry["input_args"][0]) == (rank + 1, rank + 1)
        assert extremes(entry["output"][0]) == (3, 3)
        assert entry["process_group"] == GROUP


def test_an_asynchronous_maximum_shows_the_result_that_the_user_waited_for(recorded: Path) -> None:
    for rank in range(WORLD_SIZE):
        entry = read(recorded, "every_kind", rank)["Distributed.all_reduce.1.forward"]
        assert entry["input_kwargs"]["op"] == {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}
        assert extremes(entry["output"][0]) == (2, 2)
        assert (entry["async"], entry["completed"]) == (True, True)


def test_a_gather_in_a_sub_group_names_the_group(recorded: Path) -> None:
    entry = read(recorded, "every_kind", 0)["Distributed.all_gather.0.forward"]
    assert entry["input_kwargs"]["group"] == GROUP
    assert entry["output"][-1] == GROUP
    assert [extremes(part) for part in entry["output"][0]] == [(3, 3), (3, 3)]


def test_send_and_receive_do_not_hang_and_show_both_ends(recorded: Path) -> None:
    sender, receiver = (read(recorded, "every_kind", rank) for rank in range(WORLD_SIZE))
    assert extremes(sender["Distributed.send.0.forward"]["output"][0]) == (5, 5)
    assert extremes(receiver["Distributed.recv.0.forward"]["input_args"][0]) == (0, 0)
    assert extremes(receiver["Distributed.recv.0.forward"]["output"][0]) == (5, 5)
    assert receiver["Distributed.recv.0.forward"]["source_rank"] == {"type": "int", "value": 0}
    assert sender["Distributed.isend.0.forward"]["completed"] is True
    assert extremes(receiver["Distributed.irecv.0.forward"]["output"][0]) == (6, 6)


def test_operations_of_a_batch_are_written_as_specified(recorded: Path) -> None:
    for rank in range(WORLD_SIZE):
        entry = read(recorded, "every_kind", rank)["Distributed.batch_isend_irecv.0.forward"]
        sent, received = entry["input_args"][0]
        assert list(sent) == ["class_type", "tensor", "op", "peer", "tag", "group_id"]
        assert sent["class_type"] == "torch.distributed.P2POp"
        assert (sent["op"], sent["peer"], sent["tag"], sent["group_id"]) == ("isend", 1 - rank, 0, "77849d8c")
        assert received["op"] == "irecv"
        assert extremes(received["tensor"]) == (0, 0)
        sent, received = entry["output"][0]
        assert extremes(sent["tensor"]) == (10 + rank, 10 + rank)
        assert extremes(received["tensor"]) == (11 - rank, 11 - rank)
        assert entry["completed"] is True


def test_all_other_kinds_are_recorded_with_their_results(recorded: Path) -> None:
    data = read(recorded, "every_kind", 1)
    assert extremes(data["Distributed.broadcast.0.forward"]["output"][0]) == (1, 1)
    assert extremes(data["Distributed.reduce_scatter_tensor.0.forward"]["output"][0]) == (4, 6)
    assert extremes(data["Distributed.all_to_all_single.0.forward"]["output"][0]) == (0, 1)
    assert "Distributed.gather.0.forward" in data
    objects = data["Distributed.all_gather_object.0.forward"]["output"][0]
    assert [value["value"] for value in objects] == [0, 1]
    assert "Distributed.barrier.0.forward" in data
    assert "Distributed.all_gather.1.forward" not in data, "part of all_gather_object"


def test_a_collective_that_never_ended_is_in_the_journal(recorded: Path) -> None:
    from msprobe.store.reader import open_dump

    part = open_dump(recorded / "stuck").part(step=0, rank=1)
    assert not part.complete
    entry = part.record("Distributed.irecv.0.forward")
    assert entry["completed"] is False
    assert entry["output"] == [None, None]


# ---------------------------------------------------------------- layouts


def test_the_optimizer_of_DDP_sees_the_mean_of_the_gradients(recorded: Path) -> None:
    found = [read(recorded, "data_parallel", rank, step=1) for rank in range(WORLD_SIZE)]
    name = "Optimizer.SGD.0.forward"
    reduced = [data[name]["input_kwargs"]["module.1.bias"]["grad"] for data in found]
    own = [data["Module.module.1.Linear.parameters_grad"]["bias"][0] for data in found]
    # d(sum)/d(bias) = rows * (rank + 1); DDP hands out the mean.
    assert [gradient["Max"] for gradient in own] == [2, 4]
    assert [gradient["Max"] for gradient in reduced] == [3, 3]
    after = [re.sub(r'"row": \d+', "", json.dumps(data[name]["output"])) for data in found]
    assert after[0] == after[1], "the replicas agree after the step"


def test_the_collectives_of_a_communication_hook_show_the_sum_before_the_hook_went_on(recorded: Path) -> None:
    for rank in range(WORLD_SIZE):
        entry = read(recorded, "communication_hook", rank)["Distributed.all_reduce.0.forward"]
        assert entry["completed"] is True
        assert entry["input_args"][0]["dtype"] == "torch.float16"
        # weight gradients: 2 rows of (rank + 1), divided by the number of ranks before they are summed
        assert entry["output"][0]["Max"] == pytest.approx(3)


def test_FSDP2_shows_what_is_gathered_and_what_is_scattered(recorded: Path) -> None:
    for rank in range(WORLD_SIZE):
        data = read(recorded, "sharded", rank)
        collectives = [name for name in data if name.startswith("Distributed.")]
        assert any("all_gather" in name for name in collectives)
        assert any("reduce_scatter" in name for name in collectives)
        assert all(data[name].get("completed", True) for name in collectives)
        assert any(name.startswith("Module.0.FSDPLinear.forward") for name in data)
        step = data["Optimizer.AdamW.0.forward"]
        weight = step["input_kwargs"]["0.weight"]["weight"]
        assert weight["type"] == "torch.distributed.tensor.DTensor"
        assert weight["shape"] == [6, 4]
        assert weight["local_shape"] == [3, 4]
        assert "Shard" in json.dumps(weight["placements"])
        assert step["input_kwargs"]["0.weight"]["grad"]["local_shape"] == [3, 4]
        assert step["output"][0]["0.weight"]["exp_avg"]["local_shape"] == [3, 4]


def test_a_listener_is_reported_reduced_gradients_and_shards_and_of_the_collectives_of_fsdp(recorded: Path) -> None:
    found = [json.loads((recorded / "listened" / f"rank{rank}.json").read_text()) for rank in range(WORLD_SIZE)]
    for told in found:
        steps = [moment for moment in told if moment[0] == "end" or moment[1].startswith("Optimizer.")]
        assert [moment[:2] for moment in steps] == [
            ["before", "Optimizer.Adam.0.forward"],
            ["after", "Optimizer.Adam.0.forward"],
            ["end", "DistributedDataParallel"],
            ["before", "Optimizer.Adam.0.forward"],
            ["after", "Optimizer.Adam.0.forward"],
            ["end", "FSDPSequential"],
        ]
        for before, after, (_, _, gradients) in (steps[:3], steps[3:]):
            assert [[name, values[1]] for name, values in before[2].items()] == gradients
            assert [len(values) for values in before[2].values()] == [2] * 4
            # Weight, gradient, step, and both moments.
            assert [len(values) for values in after[2].values()] == [5] * 4
            assert all(values[0] != after[2][name][0] for name, values in before[2].items())
        collectives = {moment[1].split(".")[1] for moment in told if moment[1].startswith("Distributed.")}
        assert any("all_gather" in name for name in collectives)
        assert any("reduce_scatter" in name for name in collectives)
    (ddp, fsdp), (other_ddp, other_fsdp) = ([m for m in told if m[0] == "end"] for told in found)
    assert ddp == other_ddp, "each rank is told of the mean over ranks"
    assert fsdp != other_fsdp, "each rank is told of its shard"


def test_tensor_parallel_layers_show_placements_and_their_reduction(recorded: Path) -> None:
    data = read(recorded, "tensor_parallel", 0)
    linear = data["Functional.linear.0.forward"]
    assert linear["input_args"][1]["local_shape"] == [3, 4]
    reductions = [entry for name, entry in data.items() if name.startswith("Ops._c10d_functional_all_reduce")]
    assert reductions
    assert all(entry["completed"] for entry in reductions if "completed" in entry)
    product = data["Tensor.__matmul__.0.forward"]
    assert "Partial" in json.dumps(product["output"][0]["placements"])


def test_planning_of_sharded_calls_leaves_no_trace_and_shifts_no_number(recorded: Path) -> None:
    first, second = (read(recorded, "tensor_parallel", 0, step) for step in (0, 1))
    assert "FakeTensor" not in json.dumps(first)
    assert list(first) == list(second)


@pytest.mark.parametrize("level", ["mix", "L0", "L2"])
def test_a_pipeline_that_finds_out_its_shapes_leaves_no_trace_and_shifts_no_number(recorded: Path, level: str) -> None:
    for rank in range(WORLD_SIZE):
        first, second = (read(recorded, f"pipelined_{level}", rank, step) for step in (0, 1))
        assert list(first) == list(second)
        if level != "L2":
            assert [name for name in first if name.startswith("Module.0.Linear.forward")] == [
                "Module.0.Linear.forward.0",
                "Module.0.Linear.forward.1",
            ]


# ---------------------------------------------------------------- the configuration check


def test_both_ranks_put_what_they_begin_with_into_one_pack(recorded: Path) -> None:
    with zipfile.ZipFile(recorded / "checked" / "pack.zip") as archive:
        names = archive.namelist()
        found = {name: json.loads(archive.read(name)) for name in names if name.endswith(".json")}
    kinds = (("dataset", "dataset"), ("weights", "weight"))
    places = [(step, rank) for step in (0, 1) for rank in (0, 1)]
    parts = [f"{part}/step{step}/rank{rank}/{file}.json" for part, file in kinds for step, rank in places]
    parts += [f"digests/step{step}/rank{rank}.json" for step in (0, 1) for rank in (0, 1)]
    parts += [f"{part}/rank{rank}.json" for part in ("random", "random_state") for rank in (0, 1)]
    assert sorted(names) == sorted(["env", "pip", *parts])
    shards = [found[f"weights/step0/rank{rank}/weight.json"] for rank in (0, 1)]
    assert list(shards[0]) == list(shards[1]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    # Each rank has its own part of a sharded weight.
    assert shards[0]["0.weight"] != shards[1]["0.weight"]
    assert found["dataset/step0/rank0/dataset.json"] != found["dataset/step0/rank1/dataset.json"]
    states = [found[f"random_state/rank{rank}.json"] for rank in (0, 1)]
    for rank, state in enumerate(states):
        assert state["seeds"] == [["torch.manual_seed", rank], ["torch.manual_seed", 0]]
    assert states[0]["dropout"] == {"1": {"p": 0.5, "training": True}}
    for rank in (0, 1):
        bare, checked = json.loads((recorded / "checked" / f"losses.{rank}.json").read_text())
        assert bare == checked
