"""``msprobe doctor``: is this installation whole?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe import __version__
from msprobe.cli import answers
from msprobe.cli.common import add_output
from msprobe.foreign.console import say
from msprobe.messages import both, said, translated

if TYPE_CHECKING:
    from msprobe.doctor.findings import DoctorFinding


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = both(
        "Checks for other packages of the name msprobe, and checks the installed files and the command, "
        "the C extension, the versions of PyTorch, MindSpore and numpy, device plug-ins and write access.",
        "检查是否有同名的其他软件包，以及已安装的文件与命令、C 扩展、PyTorch、MindSpore 与 numpy 的版本、"
        "设备插件和写权限。",
    )
    add_output(
        parser,
        both("the folder to which dumps will be written", "将要写入 dump 的文件夹"),
        default=".",
    )


def execute(args: argparse.Namespace) -> int:
    """Check, and say what was found; the exit status."""
    from msprobe.doctor.checks import all_checks
    from msprobe.doctor.devices import check_devices
    from msprobe.doctor.findings import is_sound

    findings = list(all_checks([Path(args.output)]))
    devices = check_devices()
    findings += [devices] if devices is not None else []
    sound = is_sound(findings)
    checks = [finding.as_json() for finding in findings]
    answers.whole(json.dumps({"version": __version__, "is_sound": sound, "checks": checks}, indent=2))
    say("\n".join(line for finding in findings for line in _lines(finding)))
    errors = sum(finding.status == "error" for finding in findings)
    say(translated(said("doctor-sound") if sound else said("doctor-errors", errors)))
    return 0 if sound else 1


def _lines(finding: DoctorFinding) -> list[str]:
    first = f"{finding.status:<9}{finding.code:<14}{translated(finding.text)}"
    return [first, *(f"{'':23}{translated(remedy)}" for remedy in finding.remedy)]
