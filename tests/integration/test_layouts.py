"""One training in many parallel layouts, on real ranks: healthy ones agree, and a planted fault is named with its rank.

The layouts are those of `layout_trainings.py`: DDP, FSDP, DTensor's tensor and sequence parallelism, tensor and data
parallelism written by hand, and a pipeline; each against one process, and some against each other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from layout_trainings import name_of, record
from support.coded_texts import mentions
from support.page_data import page_words

from msprobe.cli import main
from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.messages import said

pytest.importorskip("torch")

TWO = ("ddp2", "ddpaccumulate2", "fsdp2", "tensor2", "sequence2", "manual2", "stages2")
FOUR = ("ddp4", "fsdp4", "tensor4", "fsdp2tensor2", "data2manual2", "stages2manual2")
OF_AS_MANY_RANKS = (("tensor2", "ddp2"), ("stages2", "manual2"), ("fsdp2", "ddp2"), ("stages2", "ddpaccumulate2"))
#: A fault, and what has to be said first: kind, rank, words of the message, module.
FAULTS = {
    "manual2:no_sum": (
        "collective",
        None,
        "their sum agrees with the reference; nothing added them up",
        "blocks.1.down",
    ),
    "manual2:no_sum_on_rank1": ("collective", 1, "it differs from the reference on rank 1", "blocks.1.down"),
    "manual2:wrong_shard": ("initial_weights", 1, "rank 1 holds the same part of it as rank 0", "blocks.1.up"),
    "tensor2:wrong_shard": ("initial_weights", 1, "rank 1 holds the same part of it as rank 0", "blocks.1.up"),
    "ddp2:not_averaged": ("replica", None, "their mean agrees with the reference; nothing put them together", None),
    "ddp2:same_data": ("data", 1, "rank 1 has the same part of it as rank 0", "embedding"),
    "fsdp2:other_rate": ("optimizer", None, "lr is 0.02, in the reference 0.01, for all parameters", None),
    "tensor2:other_gelu": ("computation", None, "it is computed between them in blocks.1", "blocks.1.down"),
    "sequence2:other_eps": ("computation", None, "output.0 differs", "blocks.1.norm2"),
    "stages2:sent_again": (
        "collective",
        1,
        "Distributed.recv.0.forward brought it from another rank",
        "blocks.1.norm1",
    ),
}
FAULTS_OF_FOUR = {
    "data2manual2:not_averaged": (
        "replica",
        None,
        'the gradient of "blocks.0.up.weight" at the optimizer',
        "blocks.0.up",
    ),
    "data2manual2:not_divided": ("parameter_gradient", None, "2 times as large", "embedding"),
}


#: Jobs of two ranks at most that tests name in their text.
_NAMED = (
    *(f"{layout}::tensor" for layout in ("one", "tensor2", "manual2", "ddp2", "stages2", "accumulate")),
    *("one::statistics", "one::digest", "manual2:recompute", "manual2:no_sum", "manual2:no_sum_on_rank1"),
)


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumps of all jobs of two ranks at most that the chosen tests ask for, in one launch of the ranks."""
    folder = tmp_path_factory.mktemp("layouts")
    jobs = dict.fromkeys(_NAMED)
    for item in request.session.items:
        if item.path == request.path and "recorded" in getattr(item, "fixturenames", ()):
            jobs.update(dict.fromkeys(_jobs_of(item.callspec.params if hasattr(item, "callspec") else {})))
    record(folder, list(jobs))
    return folder


def _jobs_of(row: dict[str, str]) -> list[str]:
    """What one row of a test compares."""
    if "fault" in row:
        return [row["fault"]]
    if "layout" in row:
        return [f"{row['layout']}::{row.get('mode', 'tensor')}"]
    return [f"{row[side]}::tensor" for side in ("candidate", "reference") if side in row]


@pytest.fixture(scope="module")
def in_statistics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumps of the faults, statistics alone."""
    folder = tmp_path_factory.mktemp("statistics")
    record(folder, ["one::statistics", *(f"{fault}:statistics" for fault in FAULTS)])
    return folder


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumps of the jobs of four ranks, and of one process."""
    folder = tmp_path_factory.mktemp("layouts4")
    record(folder, ["one::tensor", "ddp2::tensor", *(f"{layout}::tensor" for layout in FOUR), *FAULTS_OF_FOUR])
    return folder


def verdict(folder: Path, candidate: str, reference: str, layout: Path | None = None) -> Verdict:
    return compare_runs(folder / name_of(candidate), folder / name_of(reference), layout=layout)


def check_agreement(found: Verdict) -> None:
    assert (found.status, found.findings) == ("agree", ())
    tensors = found.summary["layouts"]["tensors"]
    assert tensors["not_comparable"] == 0
    # All modules forward and backward, all gradients, and the optimizer.
    assert found.summary["pairs"] == 2 * 65
    assert tensors["reassembled"] + tensors["invariants"] > 200


def test_nothing_was_lost_in_recording(recorded: Path) -> None:
    assert [str(path) for path in recorded.rglob("dump_error_info.log")] == []


@pytest.mark.parametrize(
    ("layout", "mode"),
    [
        *((layout, mode) for layout in TWO for mode in ("tensor", "statistics")),
        ("ddp2", "digest"),
        ("tensor2", "digest"),
    ],
)
def test_a_healthy_layout_agrees_with_one_process(recorded: Path, layout: str, mode: str) -> None:
    found = verdict(recorded, f"{layout}::{mode}", f"one::{mode}")
    check_agreement(found)
    tensors = found.summary["layouts"]["tensors"]
    assert (tensors["reassembled"] > 0) == (mode == "tensor"), "values are put together where they were recorded"
    told = any("put together from what ranks hold" in note for note in found.notes)
    assert told == (mode == "tensor")


@pytest.mark.parametrize(("layout", "source"), [("tensor2", "placements"), ("manual2", "guess"), ("ddp2", "guess")])
def test_where_the_layout_is_known_from_is_reported(recorded: Path, layout: str, source: str) -> None:
    found = verdict(recorded, f"{layout}::tensor", "one::tensor")
    assert source in found.summary["layouts"]["candidate"]["found_from"]
    assert found.summary["layouts"]["reference"] == {
        "ranks": 1, "mesh": None, "found_from": [], "held": {}, "stages": None,
    }  # fmt: skip


def test_recomputed_passes_do_not_count(recorded: Path) -> None:
    check_agreement(verdict(recorded, "manual2:recompute", "one::tensor"))


def test_the_reference_may_be_the_one_with_several_ranks(recorded: Path) -> None:
    check_agreement(verdict(recorded, "one::tensor", "tensor2::tensor"))


@pytest.mark.parametrize(("candidate", "reference"), OF_AS_MANY_RANKS)
def test_layouts_of_as_many_ranks_are_distinguished(recorded: Path, candidate: str, reference: str) -> None:
    check_agreement(verdict(recorded, f"{candidate}::tensor", f"{reference}::tensor"))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_first(recorded: Path, fault: str) -> None:
    check_first(verdict(recorded, fault, "one::tensor"), fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_first_by_statistics_alone(in_statistics: Path, fault: str) -> None:
    check_first(verdict(in_statistics, f"{fault}:statistics", "one::statistics"), fault)


def check_first(found: Verdict, fault: str) -> None:
    kind, rank, words, module = FAULTS[fault]
    assert found.status == "diverged"
    first = found.findings[0]
    assert (first.kind, first.rank, first.step) == (kind, rank, 0)
    assert words in first.message
    if module is not None:
        assert first.module == module


#: Without what changes a result by less than these types round: another form of an activation, another eps.
FAULTS_OF_FEW_DIGITS = tuple(fault for fault in FAULTS if fault not in ("tensor2:other_gelu", "sequence2:other_eps"))


@pytest.fixture(scope="module", params=("bfloat16", "autocast"))
def of_few_digits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The dumps of two ranks, wholly in bfloat16 or under autocast."""
    folder, precision = tmp_path_factory.mktemp(request.param), request.param
    healthy = [f"{layout}::{mode}:{precision}" for mode in ("tensor", "statistics") for layout in ("one", *TWO)]
    record(folder, [*healthy, *(f"{fault}:statistics:{precision}" for fault in FAULTS_OF_FEW_DIGITS)])
    return folder, precision


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["tensor", "statistics"])
@pytest.mark.parametrize(("candidate", "reference"), [*((layout, "one") for layout in TWO), *OF_AS_MANY_RANKS])
def test_healthy_layouts_agree_in_types_with_few_digits(
    of_few_digits: tuple[Path, str], candidate: str, reference: str, mode: str
) -> None:
    folder, precision = of_few_digits
    found = verdict(folder, f"{candidate}::{mode}:{precision}", f"{reference}::{mode}:{precision}")
    assert (found.status, found.findings) == ("agree", ())


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS_OF_FEW_DIGITS)
def test_a_fault_is_named_first_in_types_with_few_digits(of_few_digits: tuple[Path, str], fault: str) -> None:
    folder, precision = of_few_digits
    found = verdict(folder, f"{fault}:statistics:{precision}", f"one::statistics:{precision}")
    kind, _, _, module = FAULTS[fault]
    assert (found.status, found.findings[0].kind) == ("diverged", kind)
    if module is not None:
        assert found.findings[0].module == module


def test_shares_of_a_wrong_rank_are_measured(recorded: Path) -> None:
    evidence = verdict(recorded, "manual2:no_sum_on_rank1", "one::tensor").findings[0].evidence
    assert evidence["ranks_at_fault"] == [1]
    assert evidence["compared_by"] == "values put together"
    assert evidence["communications"] == ["Distributed.all_reduce.3.forward"]


def annotation(folder: Path, side: dict[str, object]) -> Path:
    path = folder / "layout.json"
    path.write_text(json.dumps({"candidate": side}))
    return path


def test_an_annotation_says_how_tensors_lie(recorded: Path, tmp_path: Path) -> None:
    column = {"tensor": "shard(0)"}
    side = {
        "mesh": {"tensor": 2},
        "parameters": {
            **{f"*.{name}.*": column for name in ("q", "k", "v", "up")}, "head.*": column,
            "*.out.weight": {"tensor": "shard(1)"}, "*.down.weight": {"tensor": "shard(1)"},
            "*": {"tensor": "replicate"},
        },
        "modules": {"*.up": {"output": {"tensor": "shard(2)"}}},
    }  # fmt: skip
    found = verdict(recorded, "manual2::tensor", "one::tensor", annotation(tmp_path, side))
    check_agreement(found)
    assert found.summary["layouts"]["candidate"]["found_from"] == ["annotation", "guess"]


def test_a_wrong_annotation_does_not_agree(recorded: Path, tmp_path: Path) -> None:
    side = {"mesh": {"tensor": 2}, "modules": {"blocks.*.down": {"output": {"tensor": "partial"}}}}
    found = verdict(recorded, "manual2::tensor", "one::tensor", annotation(tmp_path, side))
    assert (found.status, found.findings[0].module) == ("diverged", "blocks.0.down")


def test_an_annotation_makes_passes_of_one_process_comparable(recorded: Path, tmp_path: Path) -> None:
    found = verdict(recorded, "accumulate::tensor", "one::tensor", annotation(tmp_path, {"mesh": {"all": 1}}))
    check_agreement(found)
    assert any(mentions(note, "tensors-of-several-passes") for note in found.notes)


def test_stages_are_numbered_by_the_annotation(recorded: Path, tmp_path: Path) -> None:
    side: dict[str, object] = {"mesh": {"stage": 2}, "stages": {"axis": "stage", "layers": {"blocks": [0, 1]}}}
    found = verdict(recorded, "stages2::tensor", "one::tensor", annotation(tmp_path, side))
    check_agreement(found)
    stages = said("stages-of-ranks", 2, "0; 1", "the annotation file")
    assert found.summary["layouts"]["candidate"]["stages"] == stages
    side["stages"] = {"axis": "stage", "layers": {"blocks": [1, 0]}}
    assert verdict(recorded, "stages2::tensor", "one::tensor", annotation(tmp_path, side)).status == "diverged"


@pytest.fixture
def files(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """What the command prints and writes for a fault."""
    dumps = [str(recorded / name_of(job)) for job in ("manual2:no_sum", "one::tensor")]
    assert main(["compare", *dumps, "-o", str(tmp_path / "out"), "--html"]) == 1
    out = tmp_path / "out"
    return capsys.readouterr().out, (out / "verdict.json").read_text(), page_words(out / "verdict.html")


def test_the_command_says_the_layouts(files: tuple[str, str, str]) -> None:
    printed, written, page = files
    place = said("named-at", "DIVERGED", "step 0, forward pass")
    assert printed.startswith(f"{place}{said('in-module', 'blocks.1.down')}")
    reassembled = "put together from what ranks hold"
    for text in (" ".join(printed.split()), page):
        assert said("layout-of-ranks", "candidate", "2", "shapes and values") in text
        assert said("layout-of-one-rank", "reference") in text
        assert reassembled in text
    assert json.loads(written)["summary"]["layouts"]["candidate"]["ranks"] == 2


def test_mistakes_of_an_annotation_are_reported_at_once(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = {"mesh": {"tensor": 0}, "parameters": {"a": {"data": "shard"}}, "more": 1}
    dumps = [str(recorded / name_of(job)) for job in ("manual2::tensor", "one::tensor")]
    assert main(["compare", *dumps, "--layout", str(annotation(tmp_path, side))]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for words in ("candidate.mesh.tensor must be a whole number", "'data' is no axis of the mesh", "candidate.more"):
        assert words in said


@pytest.mark.slow
@pytest.mark.parametrize("layout", FOUR)
def test_four_ranks_agree_with_one_process(of_four: Path, layout: str) -> None:
    check_agreement(verdict(of_four, f"{layout}::tensor", "one::tensor"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "reference"),
    [("tensor4", "ddp4"), ("data2manual2", "stages2manual2"), ("fsdp2tensor2", "data2manual2"), ("fsdp4", "ddp2")],
)
def test_layouts_of_several_ranks_agree_with_each_other(of_four: Path, candidate: str, reference: str) -> None:
    check_agreement(verdict(of_four, f"{candidate}::tensor", f"{reference}::tensor"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS_OF_FOUR)
def test_a_fault_of_four_ranks_is_named_first(of_four: Path, fault: str) -> None:
    kind, rank, words, module = FAULTS_OF_FOUR[fault]
    first = verdict(of_four, fault, "one::tensor").findings[0]
    assert (first.kind, first.rank, first.module) == (kind, rank, module)
    assert words in first.message
