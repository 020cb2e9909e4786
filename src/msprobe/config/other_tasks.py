"""Sections of tasks that are not the recorder's. Most of them are not there yet: they are read all the same, so that
their mistakes are reported.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from msprobe.config.fields import AddressFields, Fields, Ranges, choices
from msprobe.config.settings import (
    Checksum,
    DirectionKind,
    FuzzStage,
    GradientLevel,
    HandlerType,
    NoiseKind,
    PerturbationMode,
    RiskReport,
    quoted,
)
from msprobe.messages import both, said

FuzzDevice = Literal["npu", "cpu", "gpu", "cuda", "device"]

_TEXTS = "a list of texts"
_APIS = "a list of names of APIs"
_BOOL = "true or false"
_COUNT = "a whole number above 0"


def _ascending(bounds: list[int | float]) -> list[int | float]:
    if any(not -(2**63) <= bound < 2**63 for bound in bounds):
        raise ValueError(said("numbers-within-64-bits"))
    if any(left >= right for left, right in itertools.pairwise(bounds)):
        raise ValueError(said("numbers-must-ascend"))
    return bounds


def _modes(value: object) -> object:
    known = get_args(PerturbationMode)
    if isinstance(value, list) and value:
        unknown = [mode for mode in value if mode not in known]
        if not unknown:
            return list(dict.fromkeys(value))
        raise ValueError(said("no-such-mode", ", ".join(map(repr, unknown))))
    if isinstance(value, str) and value in known:
        return [value]
    # As if it were a Literal: the nearest allowed value is reported.
    raise PydanticCustomError("literal_error", "")


class FreeBenchmarkFields(Fields):
    """Section ``free_benchmark``."""

    scope: list[str] = Field([], description=_TEXTS)
    api_list: list[str] = Field([], alias="list", description=_TEXTS)
    fuzz_device: FuzzDevice = Field("npu", description=choices(FuzzDevice))
    pert_mode: Annotated[list[PerturbationMode], PlainValidator(_modes)] = Field(
        ["improve_precision"],
        description=both(
            "{}, or a list of several of {}",
            "{0}，或由 {1} 中若干项组成的列表",
            choices(PerturbationMode),
            quoted(get_args(PerturbationMode)),
        ),
    )
    handler_type: HandlerType = Field("check", description=choices(HandlerType))
    fuzz_level: Literal["L1"] = Field("L1", description='"L1"')
    fuzz_stage: FuzzStage = Field("forward", description=choices(FuzzStage))
    if_preheat: bool = Field(False, description=_BOOL)
    preheat_step: int = Field(15, gt=0, description=_COUNT)
    max_sample: int = Field(15, gt=0, description=_COUNT)
    # Ours.
    noise: NoiseKind = Field("ulp", description=choices(NoiseKind))
    noise_scale: int = Field(1, gt=0, le=1024, description="a whole number 1..1024")
    sample_ratio: int | float = Field(1.0, gt=0, le=1, description="a number above 0, at most 1")
    max_calls_per_api: int | None = Field(None, gt=0, description=_COUNT)
    fix_graph: bool = Field(False, description=_BOOL)
    offload: bool = Field(False, description=_BOOL)
    report: RiskReport | None = Field(None, description=choices(RiskReport))


class RunUtFields(AddressFields):
    """Sections ``run_ut`` and ``acc_check``."""

    white_list: list[str] = Field([], description=_APIS)
    black_list: list[str] = Field([], description=_APIS)
    error_data_path: str = Field("./", description="the path of a folder, as a text")
    # Decimals of the floats in the csv files.
    precision: int = Field(14, ge=0, le=20, description="a whole number from 0 to 20")
    is_online: bool = Field(False, description=_BOOL)
    rank_list: list[Annotated[int, Field(ge=0)]] = Field(
        [0], description="a list of ranks, whole numbers of 0 or more; [] means all"
    )


class GradientProbeFields(Fields):
    """Section ``grad_probe``."""

    grad_level: GradientLevel = Field("L1", description=choices(GradientLevel))
    param_list: list[str] = Field([], description=_TEXTS)
    bounds: Annotated[list[int | float], AfterValidator(_ascending)] = Field(
        [-1, 0, 1], description="a list of ascending numbers, each within -2^63 and 2^63 - 1"
    )
    # Ours.
    checksum: Checksum = Field("crc32", description=choices(Checksum))
    direction: DirectionKind = Field("bool", description=choices(DirectionKind))
    compat_norm: bool = Field(False, description=_BOOL)


class LoadFields(Fields):
    """Section ``load``, an addition to a task: module inputs are replaced by those of an earlier dump."""

    path: str = Field("", description="the path of an earlier dump, as a text")
    modules: list[str] = Field([], description=_TEXTS)
    step: Ranges = Field([], description='a list of numbers and of ranges such as "4-6"')
    rank: Ranges = Field([], description='a list of numbers and of ranges such as "4-6"')
    dump_after_load: bool = Field(False, description=_BOOL)


# None: the fields are not known; any are taken.
OTHER_TASK_SECTIONS: dict[str, type[Fields] | None] = {
    "free_benchmark": FreeBenchmarkFields,
    "run_ut": RunUtFields,
    "acc_check": RunUtFields,
    "grad_probe": GradientProbeFields,
    "diff_check": None,
}
