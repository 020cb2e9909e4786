"""What a recording was asked for, checked and complete: the recorder's only input, free of any framework."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from msprobe.config.scope_patterns import ListPattern, compile_list
from msprobe.errors import InvalidInputError
from msprobe.messages import joined, said
from msprobe.statistics_table import NAMES

Task = Literal["statistics", "tensor", "structure", "overflow_check", "nan_check", "exception_dump"]
# Tasks of rooms above the recorder.
ProbeTask = Literal["grad_probe", "free_benchmark", "lockstep"]
Level = Literal["L0", "L1", "L2", "mix", "debug"]
GradientLevel = Literal["L0", "L1", "L2"]
Checksum = Literal["crc32", "md5"]
DirectionKind = Literal["bool", "ternary", "packed"]
PerturbationMode = Literal["improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu"]
HandlerType = Literal["check", "fix"]
FuzzStage = Literal["forward", "backward"]
NoiseKind = Literal["ulp", "absolute"]
RiskReport = Literal["all", "risks"]
SummaryMode = Literal["statistics", "md5", "xor", "xxh3"]
# What MindSpore itself can say of the kernels of a static graph.
KernelKind = Literal[
    "max",
    "min",
    "mean",
    "l2norm",
    "md5",
    "hash",
    "count",
    "negative zero count",
    "positive zero count",
    "nan count",
    "negative inf count",
    "positive inf count",
    "zero count",
]
KERNEL_KINDS: tuple[KernelKind, ...] = get_args(KernelKind)
# What a list in ``summary_mode`` may have: statistics of tensors, a CRC-32 beside them, and what is there for kernels.
TENSOR_KINDS: tuple[str, ...] = (*NAMES, "md5")
SUMMARY_KINDS: tuple[str, ...] = tuple(dict.fromkeys((*TENSOR_KINDS, *KERNEL_KINDS)))
DataMode = Literal["all", "forward", "backward", "input", "output"]
FileFormat = Literal["npy", "bin"]
Device = Literal["host", "device"]
LockstepVerdict = Literal["here", "later"]
CheckMode = Literal["all", "aicore", "atomic"]
Precision = Literal["low", "high"]
RiskLevel = Literal["CORE", "FOCUS", "ALL"]
ApiScope = Literal["all", "listed"]
ExistingFiles = Literal["overwrite", "clean", "refuse"]
CompiledRegions = Literal["boundary", "eager"]
Graphs = Literal["skip", "record"]
Compression = Literal["none", "zstd"]

TASKS: tuple[Task, ...] = get_args(Task)
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class GradientProbe:
    """What task ``grad_probe`` writes of each parameter's gradient; the names are those of its section, but for
    ``parameters`` (``param_list`` there; empty: all).
    """

    grad_level: GradientLevel = "L1"
    parameters: tuple[str, ...] = ()
    bounds: tuple[int | float, ...] = (-1, 0, 1)
    checksum: Checksum = "crc32"
    direction: DirectionKind = "bool"
    # The norm in the gradient's own type, as mindstudio-probe computes it.
    compat_norm: bool = False


@dataclass(frozen=True)
class Online:
    """Where records are sent to be checked, in place of a folder: ``nfs_path``, a folder that both sides see, or
    ``host`` and ``port``. ``tls_path``: the folder of keys and certificates; empty for plain TCP.
    """

    nfs_path: str = ""
    host: str = ""
    port: int = -1
    tls_path: str = ""


@dataclass(frozen=True)
class FreeBenchmark:
    """What task ``free_benchmark`` does to calls; the names are those of its section, but for ``modes`` (``pert_mode``
    there) and ``api_list`` (``list``).
    """

    modes: tuple[PerturbationMode, ...] = ("improve_precision",)
    scope: tuple[str, ...] = ()
    api_list: tuple[str, ...] = ()
    handler: HandlerType = "check"
    stage: FuzzStage = "forward"
    if_preheat: bool = False
    preheat_step: int = 15
    max_sample: int = 15
    noise: NoiseKind = "ulp"
    noise_scale: int = 1
    sample_ratio: float = 1.0
    max_calls_per_api: int | None = None
    fix_graph: bool = False
    offload: bool = False
    # None: by the mode, see :meth:`lists`.
    report: RiskReport | None = None

    def lists(self, mode: PerturbationMode, is_risk: bool) -> bool:
        """True if a deviation of this kind has a row in ``free_benchmark.csv``. Of modes that ask how strongly a call
        reacts all have one, unless ``report`` says otherwise.
        """
        reacts = mode in ("add_noise", "bit_noise", "change_value")
        return is_risk or self.report == "all" or (self.report is None and reacts)


@dataclass(frozen=True)
class Lockstep:
    """What task ``lockstep`` runs against: ``reference`` is the path of a dump. ``verdict``: whether it is judged when
    the program ends, or by somebody ``later``. ``only``: the records of the calls that alone are put right, with ``*``
    in place of its number each call of an API; empty: all are.
    """

    reference: str
    verdict: LockstepVerdict = "here"
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Everything the recorder needs to know; made by :func:`msprobe.config.load.load_settings`.

    Values are legal each for itself and together. The names are those of config.json, except ``ranks``,
    ``steps`` (``rank``, ``step`` there), ``api_list`` (``list``) and the four booleans of ``data_mode``.
    """

    task: Task | ProbeTask = "statistics"
    level: Level = "L1"
    dump_path: str = "./dump_path"
    # Ascending, each number once. Empty: all.
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    enable_dataloader: bool = False
    async_dump: bool = False

    # Which entries. scope: the first and the last entry of a closed interval, or empty.
    scope: tuple[str, ...] = ()
    api_list: tuple[str, ...] = ()
    tensor_list: tuple[str, ...] = ()
    # data_mode, completed: a pair of which neither was named has both.
    forward: bool = True
    backward: bool = True
    input: bool = True
    output: bool = True

    # What is kept of a tensor.
    summary_mode: SummaryMode = "statistics"
    # Where the mode was a list: these statistics alone. Empty: all that the mode has.
    summary_kinds: tuple[str, ...] = ()
    precision: Precision = "low"
    # Where MindSpore computes the statistics of kernels, and how precisely.
    device: Device = "host"
    device_precision: Precision = "high"
    file_format: FileFormat | None = None

    # overflow_check and nan_check: stop after so many hits, -1 means never.
    overflow_nums: int = 1
    check_mode: CheckMode = "all"

    # None: the field is absent, recording cannot be switched by editing the file while the training runs.
    dump_enable: bool | None = None
    # False: neither stack.json nor construct.json.
    extra_info: bool = True
    # None: not asked for; api_scope decides alone.
    risk_level: RiskLevel | None = None
    custom_op_namespaces: tuple[str, ...] = ("_C_ascend",)

    # all: also calls that the list does not name; listed: only those it names. None: all for PyTorch; for MindSpore
    # listed, as there a call of the list inside of another one is not seen.
    api_scope: ApiScope | None = None
    # A list in place of the shipped one.
    api_list_file: str | None = None
    # Functions of the user's own, which PyTorch's recorder records as calls: module -> names.
    custom_api_file: str | None = None
    # Weights before and after an optimizer step, moments, hyper-parameters.
    # None: where the step happens between start and stop.
    optimizer: bool | None = None
    # True: NaN and infinities are written as texts, so that any JSON reader takes the files.
    strict_json: bool = False
    # True: what operators compute is moved by a unit in the last place, for a healthy run to measure rounding by.
    jitter: bool = False
    # zstd: dump.json is packed, as dump.json.zst.
    compress: Compression = "none"
    record_root: bool = False
    # What to do with files of an earlier run in a step's folder.
    existing: ExistingFiles = "clean"
    # boundary: compiled regions stay compiled and are recorded from outside.
    # eager: they run uncompiled while recording.
    compile: CompiledRegions = "boundary"
    # skip: of a graph of kernels that the program captures the calls alone are recorded, and none of its replays.
    # record: each replay in a recorded step writes the records of the calls in the graph, with its numbers.
    graphs: Graphs = "skip"
    buffers: bool = False
    # Task tensor with online_run_ut; None: records go to dump_path.
    online: Online | None = None
    # Task grad_probe; None with any other.
    gradient_probe: GradientProbe | None = None
    # Task free_benchmark; None with any other.
    free_benchmark: FreeBenchmark | None = None

    # Task lockstep, which records as task tensor does; None with any other.
    lockstep: Lockstep | None = None

    # The file these settings came from; None for the packaged default.
    config_path: Path | None = field(default=None, compare=False)

    def wants_rank(self, rank: int) -> bool:
        """True if this rank is to be recorded."""
        return not self.ranks or _contains(self.ranks, rank)

    def wants_step(self, step: int) -> bool:
        """True if this step is to be recorded."""
        return not self.steps or _contains(self.steps, step)

    @property
    def last_step(self) -> int | None:
        """The last step that is to be recorded; None if there is no end."""
        return self.steps[-1] if self.steps else None

    @property
    def keeps_few(self) -> bool:
        """True if what a record holds decides whether it is kept: few are, and those with their tensors."""
        return self.task in ("overflow_check", "nan_check", "exception_dump")

    @property
    def keeps_none(self) -> bool:
        """True if the dump has no records: what is found stands in other files."""
        return self.free_benchmark is not None

    def list_patterns(self) -> tuple[ListPattern, ...]:
        """``list``, ready to match entry names."""
        return compile_list(self.api_list)

    def tensor_list_patterns(self) -> tuple[ListPattern, ...]:
        """``tensor_list``, ready to match entry names."""
        return compile_list(self.tensor_list)

    def check_npu_kernel_dump(self) -> None:
        """Raise InvalidInputError unless level L2 on an NPU can do this: the kernels of exactly one API.

        Only the recorder knows the device, so it calls this where the device is an NPU; elsewhere L2 records
        operators and has no such limits.
        """
        if self.level != "L2":
            return
        mistakes: list[str] = []
        if self.task != "tensor":
            mistakes.append(said("l2-task", self.task))
        if self.scope:
            mistakes.append(said("l2-scope", len(self.scope)))
        if len(self.api_list) != 1:
            mistakes.append(said("l2-list", len(self.api_list)))
        if mistakes:
            raise InvalidInputError(said("l2-of-npu", joined("; ", mistakes)))


def _contains(ascending: tuple[int, ...], number: int) -> bool:
    # A range may hold a million numbers, and this is asked at every step.
    at = bisect_left(ascending, number)
    return at < len(ascending) and ascending[at] == number


def quoted(words: Iterable[str]) -> str:
    """Words as a message lists them."""
    return ", ".join(f'"{word}"' for word in words)
