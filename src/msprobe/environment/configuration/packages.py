"""Installed packages and what they run on: as a pack keeps them, and those of two packs compared."""

from __future__ import annotations

import contextlib
import glob
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlparse

from msprobe.environment.configuration.differences import ConfigurationFinding, DifferenceSheet, Level
from msprobe.errors import PathError
from msprobe.foreign.opening import open_regular
from msprobe.messages import both

HEADER = ("package", "bench version", "cmp version", "level")
COMMIT = "@commit"
SYSTEM = "system:"
_MOST_TEXT = 1 << 16
#: What runs the numbers of a training, by canonical name.
_COMPARED = frozenset(
    "torch mindspore transformers deepspeed megatron megatron-core numpy datasets peft accelerate torch-npu "
    "transformer-engine transformer-engine-torch flash-attn apex triton mindspeed mindspeed-llm mindspeed-mm "
    "mindformers mindspore-gs torchvision trl tokenizers safetensors bitsandbytes xformers liger-kernel verl vllm "
    "vllm-ascend lightning diffusers timm fairscale colossalai".split()
)
# Only one kind of device has these, so two kinds cannot agree in them.
_OF_A_DEVICE = re.compile(
    r"torch-npu|mindspeed.*|vllm-ascend|apex|triton.*|flash-attn|transformer-engine.*|xformers|bitsandbytes|liger-kernel|"
    r"nvidia-.*|system:(?:cuda|cudnn|cann|gpu|npu|nvidia|ascend).*"
)
#: Of those, what decides which numbers are computed, and not only how data comes or goes.
_MATHS = re.compile(
    r"torch.*|mind.*|transformers|deepspeed|megatron.*|transformer-engine.*|flash-attn|apex|triton.*|accelerate"
)
_NVIDIA = re.compile(r"nvidia-(?:cudnn|cublas|nccl|cuda-runtime).*")
_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")


def canonical(name: str) -> str:
    """A name as all tools spell it (PEP 503).

    >>> canonical("Flash_Attn"), canonical("megatron.core")
    ('flash-attn', 'megatron-core')
    """
    if name.startswith(SYSTEM):
        return name
    name, at, rest = name.partition("@")
    return re.sub(r"[-_.]+", "-", name).lower() + at + rest


# --- collecting -------------------------------------------------------------------------------------------------------


def collected(environ: Mapping[str, str], root: str = "/") -> dict[str, str]:
    """Versions of all installed packages, Python and the device's software; commits of what runs from a checkout.

    ``root`` is where the files of the system begin.
    """
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(Exception):  # a broken package is none
            name, version = distribution.metadata["Name"], distribution.version
            if name and version and name not in versions:
                versions[name] = version
                commit = _commit_of(distribution)
                if commit:
                    versions[f"{name}{COMMIT}"] = commit
    for folder in environ.get("PYTHONPATH", "").split(os.pathsep):
        commit = git_commit(folder) if folder else ""
        if commit:
            versions[f"{os.path.basename(os.path.abspath(folder))}{COMMIT}"] = commit
    versions.update({f"{SYSTEM}{name}": version for name, version in _system(environ, root) if version})
    return versions


def as_text(packages: Mapping[str, str]) -> bytes:
    """The entry of a pack: ``name=version`` a line."""
    lines = (f"{name}={version}" for name, version in packages.items())
    return "".join(f"{' '.join(line.split())}\n" for line in lines).encode("utf-8", "replace")


def _commit_of(distribution: importlib.metadata.Distribution) -> str:
    text = distribution.read_text("direct_url.json")
    content = json.loads(text) if text else {}
    commit = content.get("vcs_info", {}).get("commit_id")
    if commit:
        return str(commit)[:40]
    address = urlparse(str(content.get("url", "")))
    return git_commit(unquote(address.path)) if address.scheme == "file" else ""


def git_commit(folder: str) -> str:
    """The commit that a folder, or one above it, has checked out; empty if that is not known. Runs nothing."""
    folder = os.path.abspath(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
    place = os.path.join(folder, ".git")
    if os.path.isfile(place):  # a worktree or a submodule
        place = os.path.join(folder, _text(place).partition("gitdir:")[2].strip())
    head = _text(os.path.join(place, "HEAD")).strip()
    if not head.startswith("ref:"):
        return head[:40]
    branch = head.partition(":")[2].strip()
    common = os.path.join(place, _text(os.path.join(place, "commondir")).strip())
    for base in (place, common):
        commit = _text(os.path.join(base, *branch.split("/"))).strip()
        if commit:
            return commit[:40]
    packed = (line.partition(" ") for line in _text(os.path.join(common, "packed-refs"), 1 << 24).splitlines())
    return next((commit[:40] for commit, _, name in packed if name.strip() == branch), "")


def _system(environ: Mapping[str, str], root: str) -> Iterator[tuple[str, str]]:
    """Name and version of what is no package. Only files are read; no tool is run."""
    yield "python", platform.python_version()
    yield "glibc", platform.libc_ver()[1]
    yield "machine", platform.machine()
    yield "cpu", _field(_text(os.path.join(root, "proc/cpuinfo")), "model name")
    cuda = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or os.path.join(root, "usr/local/cuda")
    with contextlib.suppress(ValueError, AttributeError):
        content = json.loads(_text(os.path.join(cuda, "version.json")) or "{}")
        yield "cuda", str(content.get("cuda", {}).get("version", ""))
    yield "nvidia-driver", _version(_text(os.path.join(root, "proc/driver/nvidia/version")))
    models = sorted(
        _field(_text(path), "Model") for path in glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information"))
    )
    yield "gpu", ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models) if model)
    cann = environ.get("ASCEND_TOOLKIT_HOME") or environ.get("ASCEND_HOME_PATH")
    cann = cann or os.path.join(root, "usr/local/Ascend/ascend-toolkit/latest")
    for name in ("version.cfg", "compiler/version.info", "toolkit/version.info"):
        text = _text(os.path.join(cann, name))
        if text:
            yield "cann", _version(text)
            break
    yield "ascend-driver", _version(_text(os.path.join(root, "usr/local/Ascend/driver/version.info")))


def _text(path: str, most: int = _MOST_TEXT) -> str:
    try:
        with open_regular(path) as file:
            return file.read(most).decode("utf-8", "replace")
    except (OSError, ValueError, PathError):
        return ""


def _field(text: str, name: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _version(text: str) -> str:
    match = _VERSION.search(text)
    return match[0].rstrip("]") if match else ""


# --- comparing --------------------------------------------------------------------------------------------------------


def compare(
    bench: Mapping[str, str], cmp: Mapping[str, str], other_device: bool = False, also: Sequence[str] = ()
) -> DifferenceSheet:
    """The differences: errors for what runs the numbers, warnings for what lies below it, all others for information.

    ``other_device``: the two ran on different kinds of devices, whose own packages cannot agree. ``also``:
    further names that count.
    """
    part = DifferenceSheet("pip", HEADER)
    sides = [{canonical(name): version for name, version in side.items()} for side in (bench, cmp)]
    extra = {canonical(name) for name in also}
    different = []
    for name in {*sides[0], *sides[1]}:
        first, two = (side.get(name) for side in sides)
        if first != two:
            level = "error" if name in extra else _level(name, first, two, other_device)
            different.append((name, first, two, level))
    order = {"error": 0, "warning": 1, "info": 2}
    for name, first, two, level in sorted(different, key=lambda row: (order[row[3]], row[0])):
        part.rows.append((name, str(first), str(two), level))
        if level != "info":
            part.add(ConfigurationFinding("pip", level, name, str(first), str(two), _why(name), _weight(name, level)))
    part.differing = len(part.rows)
    return part


def _level(name: str, first: str | None, two: str | None, other_device: bool) -> Level:
    if name == f"{SYSTEM}python":
        return "warning" if _minor(first) == _minor(two) else "error"
    base = name.partition("@")[0]
    if name in (f"{SYSTEM}glibc",):
        return "info"
    if name.startswith(SYSTEM):
        is_software = name.endswith((":cuda", ":cudnn", ":cann"))
        return "error" if is_software and first and two and not other_device else "warning"
    if name.endswith(COMMIT):
        # The other side may have it from a package.
        return "error" if first and two else "info"
    if base not in _COMPARED and not _NVIDIA.fullmatch(base):
        return "info"
    if other_device and _OF_A_DEVICE.fullmatch(base):
        return "warning"
    if other_device and first and two and first.partition("+")[0] == two.partition("+")[0]:
        return "warning"
    return "error"


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]


def _why(name: str) -> str:
    if name.endswith(COMMIT):
        return both("different source code", "源代码不同")
    if name.startswith(SYSTEM):
        return both("what everything runs on: kernels and rounding may differ", "一切运行的基础：kernel 与舍入可能不同")
    if _NVIDIA.fullmatch(name):
        return both("which kernels are used: rounding may differ", "使用哪些 kernel：舍入可能不同")
    return both("different code: defaults, kernels and rounding may differ", "代码不同：默认值、kernel 与舍入可能不同")


def _weight(name: str, level: Level) -> int:
    if name.startswith(SYSTEM) or _NVIDIA.fullmatch(name):
        return 40 if level == "error" else 20
    if level != "error":
        return 30
    return 65 if _MATHS.fullmatch(name.partition("@")[0]) else 57
