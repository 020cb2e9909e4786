"""Make the environments of the published mindstudio-probe that bench/ and tests/compat measure against.

    python bench/reference_env.py              # all, into .bench/ref-8.1.1, .bench/ref-26.2.0, .bench/ref-plugin-8.3.2
    python bench/reference_env.py 8.1.1        # one of them

An environment that already works is left alone, so this can stand in front of every run. The published
package is only installed and run, each version in its own environment; msprobe itself never imports it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = REPOSITORY / ".bench"
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Reference:
    """One published version and what it needs beside its own declared dependencies."""

    version: str
    #: Packages that it imports without declaring them.
    also: tuple[str, ...]
    #: Imports that must work before the environment counts as made.
    must_import: tuple[str, ...]
    package: str = "mindstudio-probe"
    with_torch: bool = True


REFERENCES = {
    # 8.1.1: every `msprobe -f pytorch` command imports twisted with TLS, which it does not declare.
    "8.1.1": Reference(
        "8.1.1",
        ("twisted", "service-identity", "idna", "setuptools"),
        ("msprobe.pytorch", "twisted.internet.ssl"),
    ),
    "26.2.0": Reference("26.2.0", (), ("msprobe.pytorch",)),
    # The viewer of graph files, which 26.2.0 bundles and which was published by itself before.
    "plugin-8.3.2": Reference("8.3.2", (), ("tensorboard", "server.plugin"), "tb-graph-ascend", with_torch=False),
}


def environment_folder(version: str) -> Path:
    """Where the environment of `version` lies (whether or not it has been made)."""
    return FOLDER / f"ref-{version}"


def python_of(version: str) -> Path:
    """The interpreter of the environment of `version`."""
    return environment_folder(version) / "bin" / "python"


def command_of(version: str) -> Path:
    """The `msprobe` command of the environment of `version`."""
    return environment_folder(version) / "bin" / "msprobe"


def clean_environment() -> dict[str, str]:
    """Environment variables for a reference process: without PYTHONPATH, so that its own msprobe is found."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def works(name: str) -> bool:
    """Whether the environment exists, holds exactly this version, and can import what is needed."""
    reference, python = REFERENCES[name], python_of(name)
    if not python.exists():
        return False
    check = (
        "import importlib, importlib.metadata\n"
        f"assert importlib.metadata.version({reference.package!r}) == {reference.version!r}\n"
        f"if {reference.with_torch}:\n"
        f"  assert importlib.metadata.version('torch').split('+')[0] == {TORCH.split('==')[1]!r}\n"
        f"for name in {reference.must_import!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([str(python), "-c", check], env=clean_environment(), capture_output=True)
    return done.returncode == 0


def make(version: str) -> Path:
    """Make the environment of `version` if it is not there yet; return its interpreter."""
    reference = REFERENCES[version]
    if works(version):
        return python_of(version)
    folder = environment_folder(version)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    print(f"making {folder} ({reference.package} {reference.version}; a few minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(python_of(version)), "-m", "pip", "install", "--quiet"]
    if reference.with_torch:
        subprocess.run([*install, TORCH], check=True, env=clean_environment())
    wanted = f"{reference.package}=={reference.version}"
    subprocess.run([*install, wanted, *reference.also], check=True, env=clean_environment())
    if not works(version):
        raise SystemExit(f"{folder}: {wanted} was installed but does not import; see the output above")
    return python_of(version)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"any of {', '.join(REFERENCES)}; default all")
    wanted = parser.parse_args().versions or list(REFERENCES)
    unknown = [version for version in wanted if version not in REFERENCES]
    if unknown:
        parser.error(f"unknown version {', '.join(unknown)}; known: {', '.join(REFERENCES)}")
    for version in wanted:
        print(f"{version}: {make(version)}")


if __name__ == "__main__":
    main()
