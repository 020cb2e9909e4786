"""Which devices PyTorch sees. ``main`` is a process of its own: a broken installation may end it, or never end."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import Any

from msprobe.children import starting
from msprobe.doctor.findings import DoctorFinding
from msprobe.errors import MsprobeError, in_one_line
from msprobe.foreign.json_text import parse_json
from msprobe.messages import joined, said

_MOST_SECONDS = 120.0


def check_devices() -> DoctorFinding | None:
    """What PyTorch can compute on; None where it is not installed."""
    if find_spec("torch") is None:
        return None
    process = starting.start_module("msprobe.doctor.devices")
    try:
        printed, _ = process.communicate(timeout=_MOST_SECONDS)
    except starting.TimeoutExpired:
        process.kill()
        process.communicate()
        return DoctorFinding("devices", "error", said("doctor-torch-never-ends", _MOST_SECONDS))
    try:
        answer: dict[str, Any] = parse_json(printed.splitlines()[-1], "the answer of a process")
    except (IndexError, MsprobeError):
        return DoctorFinding("devices", "error", said("doctor-torch-ended", process.returncode))
    if answer["problems"]:
        return DoctorFinding("devices", "error", "; ".join(answer["problems"]), (said("doctor-reinstall"),), answer)
    kinds = [f"{count} {kind}" for kind, count in answer["devices"].items() if count]
    text = said("doctor-devices", joined(" and ", ["CPU", *kinds]))
    return DoctorFinding("devices", "ok", text, (), answer)


def main() -> int:
    """Print what PyTorch says of its devices as one line of JSON; the exit status."""
    problems: list[str] = []
    devices: dict[str, int] = {}
    try:
        import torch
    except BaseException as problem:
        problems.append(f"`import torch` fails: {in_one_line(problem)}")
    else:
        if find_spec("torch_npu") is not None:
            try:
                __import__("torch_npu")
            except BaseException as problem:
                problems.append(f"`import torch_npu` fails: {in_one_line(problem)}")
        for kind in ("cuda", "npu", "xpu", "mps"):
            room = getattr(torch, kind, None)
            try:
                count = int(room.device_count()) if room is not None else 0
            except Exception:
                count = 0
            if count:
                devices[kind] = count
    sys.stdout.write(f"\n{json.dumps({'problems': problems, 'devices': devices})}\n")
    return 0
