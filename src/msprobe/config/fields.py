"""The fields of config.json: type, default and what is allowed; the common part and one model for each task.

The description of a field is the text behind "allowed:" in messages. Types are strict: ``"true"`` is not a
boolean, ``1.0`` and ``true`` are not whole numbers. ``null`` means absent and never comes here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from msprobe import distribution
from msprobe.config import settings
from msprobe.config.ranges import LARGEST, MOST_ELEMENTS, Interval, parse_element
from msprobe.config.scope_patterns import compile_list_item
from msprobe.foreign import zstd
from msprobe.messages import both, said

# Tasks of the file that are not the recorder's.
OtherTask = Literal["run_ut", "acc_check", "diff_check"]


class Fields(BaseModel):
    """Base of all sections. Unknown names are the business of whoever reads the file, not an error here."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def known_names(model: type[Fields]) -> tuple[str, ...]:
    """The names of a section's fields as they stand in the file."""
    return tuple(info.alias or name for name, info in model.model_fields.items())


def allowed(model: type[Fields], name: str) -> str:
    """What is allowed in the field of this name."""
    for own_name, info in model.model_fields.items():
        if name == (info.alias or own_name):
            return info.description or ""
    return ""


def choices(literal: Any) -> str:
    """The members of a Literal as a message lists them."""
    return settings.quoted(get_args(literal))


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(said("path-is-blank"))
    return text


def _possible(compression: str) -> str:
    if compression == "zstd" and not zstd.is_available():
        raise ValueError(said("compression-needs-package", distribution.install("zstd")))
    return compression


def _bounded(elements: object) -> object:
    if isinstance(elements, list) and len(elements) > MOST_ELEMENTS:
        raise ValueError(said("list-has-elements", len(elements)))
    return elements


def _list_item(item: str) -> str:
    compile_list_item(item)
    return item


def _data_mode(value: object) -> list[str]:
    members = get_args(settings.DataMode)
    if not isinstance(value, list) or any(not isinstance(item, str) or item not in members for item in value):
        raise ValueError("")
    if "all" in value and len(value) > 1:
        raise ValueError(said("all-stands-alone"))
    return value


def _summary_mode(value: object) -> object:
    if isinstance(value, list) and value:
        unknown = [kind for kind in value if kind not in settings.SUMMARY_KINDS]
        if not unknown:
            return value
        raise ValueError(said("no-such-statistic", ", ".join(map(repr, unknown))))
    if isinstance(value, str) and value in get_args(settings.SummaryMode):
        return value
    # As if it were a Literal: the nearest allowed value is reported.
    raise PydanticCustomError("literal_error", "")


def _overflow_nums(value: int) -> int:
    if value != -1 and value < 1:
        raise ValueError("")
    return value


Ranges = Annotated[list[Annotated[Interval, PlainValidator(parse_element)]], BeforeValidator(_bounded)]
Names = list[Annotated[str, AfterValidator(_list_item)]]

_RANGE = both(
    'a list of numbers 0..{} and of ranges such as "4-6"; [] means all',
    '由 0..{0} 的数和 "4-6" 这样的区间组成的列表；[] 表示全部',
    LARGEST,
)
_FOLDER = "the path of a folder, as a text"
# Labels of the names of hosts.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
_NAMES = "a list of texts: parts of entry names, or name-regex(...)"
_BOOL = "true or false"


def _switch(default: bool | None) -> Any:
    return Field(default, description=_BOOL)


class CommonFields(Fields):
    """The top level of the file."""

    task: Literal[settings.Task, settings.ProbeTask, OtherTask] = Field(
        "statistics", description=f"{choices(settings.Task)}, {choices(settings.ProbeTask)}"
    )
    # Required, but an argument may stand in for it: that one of both is there is checked later.
    dump_path: Annotated[str, AfterValidator(_not_blank)] = Field("", description=_FOLDER)
    rank: Ranges = Field([], description=_RANGE)
    step: Ranges = Field([], description=_RANGE)
    level: settings.Level = Field("L1", description=choices(settings.Level))
    enable_dataloader: bool = _switch(False)
    async_dump: bool = _switch(False)
    # Of mindstudio-probe 26.
    dump_enable: bool | None = _switch(None)
    extra_info: bool = _switch(True)
    precision: settings.Precision = Field("low", description=choices(settings.Precision))
    risk_level: settings.RiskLevel | None = Field(None, description=choices(settings.RiskLevel))
    custom_op_namespaces: list[str] = Field(["_C_ascend"], description="a list of torch.ops namespaces")
    # Ours.
    api_scope: settings.ApiScope | None = Field(None, description=choices(settings.ApiScope))
    api_list_file: Annotated[str, AfterValidator(_not_blank)] | None = Field(
        None, description="the path of a .yaml file like support_wrap_ops.yaml, as a text"
    )
    custom_api_file: Annotated[str, AfterValidator(_not_blank)] | None = Field(
        None, description="the path of a .yaml file like custom_wrap_ops.yaml, as a text"
    )
    optimizer: bool | None = _switch(None)
    strict_json: bool = _switch(False)
    jitter: bool = _switch(False)
    compress: Annotated[settings.Compression, AfterValidator(_possible)] = Field(
        "none", description=choices(settings.Compression)
    )
    record_root: bool = _switch(False)
    existing: settings.ExistingFiles = Field("clean", description=choices(settings.ExistingFiles))
    compile: settings.CompiledRegions = Field("boundary", description=choices(settings.CompiledRegions))
    graphs: settings.Graphs = Field("skip", description=choices(settings.Graphs))
    buffers: bool = _switch(False)


class SliceFields(Fields):
    """One element of ``slice``."""

    dim: int
    begin: int
    end: int
    size: int | None = None


class FilterFields(Fields):
    """Which entries, and which parts of them: common to all tasks that record."""

    scope: list[str] = Field([], description="[] or two names of entries, the first and the last to record")
    api_list: Names = Field([], alias="list", description=_NAMES)
    data_mode: Annotated[list[str], PlainValidator(_data_mode)] = Field(
        ["all"], description='["all"], or a list of any of "forward", "backward", "input", "output"'
    )


class ValueFields(FilterFields):
    """What is kept of tensors: common to statistics and tensor."""

    summary_mode: Annotated[str | list[str], PlainValidator(_summary_mode)] = Field(
        "statistics",
        description=both(
            "{}; or a list of any of {}; of the kernels of MindSpore's static graphs, of any of {}",
            "{0}；或由 {1} 中若干项组成的列表；MindSpore 静态图的 kernel 为 {2} 中若干项",
            choices(settings.SummaryMode),
            settings.quoted(settings.TENSOR_KINDS),
            settings.quoted(settings.KERNEL_KINDS),
        ),
    )
    slices: list[SliceFields] = Field(
        [],
        alias="slice",
        description='a list of {"dim": 0, "begin": 0, "end": 8, "size": 64}, size may be left out',
    )
    request_id: str | None = Field(None, description="a text")
    # Of the kernels of MindSpore; checked, not used elsewhere.
    device: settings.Device = Field("host", description=choices(settings.Device))
    precision: settings.Precision | None = Field(None, description=choices(settings.Precision))


class StatisticsFields(ValueFields):
    """Section ``statistics``."""

    tensor_list: Names = Field([], description=_NAMES)


def _host(text: str) -> str:
    parts = text.split(".")
    if all(part.isdigit() for part in parts):
        if len(parts) != 4 or any(int(part) > 255 for part in parts):
            raise ValueError("")
    elif text and not _HOST_NAME.fullmatch(text):
        raise ValueError("")
    return text


def _port(number: int) -> int:
    if number != -1 and not 1 <= number <= 65535:
        raise ValueError("")
    return number


class AddressFields(Fields):
    """Where records go, or come from: a folder that both sides see, or a host and a port."""

    nfs_path: str = Field("", description=_FOLDER)
    host: Annotated[str, AfterValidator(_host)] = Field(
        "", description="an IPv4 address or the name of a host, as a text"
    )
    port: Annotated[int, AfterValidator(_port)] = Field(-1, description="a whole number 1..65535, or -1 for none")
    tls_path: str = Field("", description=both('{}, or "" for none', '{0}，或 ""（不使用）', _FOLDER))


class TensorFields(ValueFields, AddressFields):
    """Section ``tensor``."""

    file_format: settings.FileFormat | None = Field(None, description=choices(settings.FileFormat))
    # Streaming to a remote checker, and comparing while recording.
    online_run_ut: bool = _switch(False)
    online_run_ut_recompute: bool = _switch(False)
    bench_path: str = Field("", description="the path of an earlier dump, as a text")
    diff_nums: int = Field(1, description="a whole number")


class OverflowFields(FilterFields):
    """Sections ``overflow_check`` and ``nan_check``."""

    overflow_nums: Annotated[int, AfterValidator(_overflow_nums)] = Field(
        1, description="a whole number above 0, or -1 for no limit"
    )
    check_mode: settings.CheckMode = Field("all", description=choices(settings.CheckMode))


class LockstepFields(FilterFields):
    """Section ``lockstep``."""

    reference: Annotated[str, AfterValidator(_not_blank)] = Field("", description="the path of a dump, as a text")
    verdict: settings.LockstepVerdict = Field("here", description=choices(settings.LockstepVerdict))
    only: str = Field("", description="names of entries, as a text, with commas")


class StructureFields(FilterFields):
    """Section ``structure``."""


class ExceptionFields(FilterFields):
    """Section ``exception_dump``."""


TASK_SECTIONS: dict[str, type[FilterFields]] = {
    "statistics": StatisticsFields,
    "tensor": TensorFields,
    "overflow_check": OverflowFields,
    "nan_check": OverflowFields,
    "structure": StructureFields,
    "exception_dump": ExceptionFields,
    "lockstep": LockstepFields,
}
