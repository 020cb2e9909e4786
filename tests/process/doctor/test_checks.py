"""What ``msprobe doctor`` says of installations that are whole, damaged or shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.command_line import call

from msprobe import distribution
from msprobe.children import starting
from msprobe.doctor import checks, devices
from msprobe.doctor.findings import DoctorFinding


@pytest.fixture(autouse=True)
def _no_devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch in a process of its own takes seconds."""
    if "real_devices" not in request.fixturenames:
        monkeypatch.setattr(devices, "check_devices", lambda: None)


@pytest.fixture
def real_devices() -> None:
    """For tests that ask for devices."""


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The installed distributions, as a test wants them."""
    found: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(metadata, "version", version)
    return found


def only(found: list[DoctorFinding]) -> DoctorFinding:
    assert len(found) == 1, found
    return found[0]


def test_this_installation_is_sound_and_json_says_the_same(tmp_path: Path) -> None:
    shown, printed = call("doctor", cwd=tmp_path), call("doctor", "--json", "-", cwd=tmp_path)
    assert shown.returncode == printed.returncode == 0, shown.stdout
    answer = json.loads(printed.stdout)
    assert answer["is_sound"]
    assert {check["code"] for check in answer["checks"]} >= {"python", "files", "extension", "torch", "write-access"}
    assert all(check["code"] in shown.stdout for check in answer["checks"])


@pytest.mark.parametrize(
    ("installed", "code", "status"),
    [
        ({"torch": "2.13.0+cpu", "numpy": "2.4.6"}, "torch", "ok"),
        ({"torch": "2.1.2", "numpy": "1.26.4"}, "torch", "ok"),
        ({"torch": "2.1.2", "numpy": "2.0.0"}, "torch", "error"),
        ({"torch": "2.0.1", "numpy": "1.26.4"}, "torch", "error"),
        ({"torch": "2.7.1", "torch_npu": "2.7.1.post2", "numpy": "2.0.0"}, "torch", "ok"),
        ({"torch": "2.8.0", "torch_npu": "2.7.1", "numpy": "2.0.0"}, "torch", "error"),
        ({"mindspore": "2.10.0", "numpy": "1.26.4"}, "mindspore", "ok"),
        ({"mindspore": "2.10.0", "numpy": "2.4.6"}, "mindspore", "error"),
        ({"mindspore": "2.6.0", "numpy": "1.26.4"}, "mindspore", "warning"),
        ({"numpy": "2.4.6"}, "frameworks", "note"),
    ],
)
def test_pairs_of_versions(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], code: str, status: str
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    versions.update(installed)
    found = only(list(checks.check_frameworks()))
    assert (found.code, found.status) == (code, status)
    assert status == "ok" or code == "mindspore" or found.remedy


def test_mindspore_on_a_python_that_it_is_not_made_for(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions.update({"mindspore": "2.10.0", "numpy": "1.26.4"})
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert only(list(checks.check_frameworks())).status == "warning"


def test_a_folder_that_cannot_be_written_is_an_error_and_one_that_can_be_made_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = list(checks.check_folders([tmp_path / "file" / "dump", tmp_path / "new" / "dump", tmp_path]))
    assert [finding.status != "error" for finding in found] == [False, True, True]
    assert not (tmp_path / "new").exists()
    assert call("doctor", "-o", tmp_path / "file" / "dump").returncode == 1


def script(folder: Path, module: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "msprobe"
    path.write_text(f"#!/usr/bin/python3\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("module", "status"), [("msprobe.cli", "warning"), ("msprobe.msprobe", "error")])
def test_the_command_of_a_different_package_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, status: str
) -> None:
    """Ours in a different environment works, and is not the one that is asked."""
    script(tmp_path / "bin", module)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin")
    assert checks.check_command().status == status


def test_a_command_that_is_not_on_the_path_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.check_command().status == "warning"


def test_an_extension_that_is_switched_off_is_a_warning_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.capture import native

    monkeypatch.setattr(native, "unused_because", "switched off by MSPROBE_NATIVE=0")
    found = checks.check_extension()
    assert (found.status, found.data["in_use"]) == ("warning", False)
    assert found.remedy == ("unset MSPROBE_NATIVE",)


# ---------------------------------------------------------------- files, and who owns them


def installed(folder: Path, name: str, **files: str) -> None:
    """A distribution with these files, whose record has their sizes."""
    place = folder / f"{name}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Name: {name}\n")
    (place / "top_level.txt").write_text("msprobe\n")
    lines = []
    for file, text in files.items():
        path = folder / "msprobe" / f"{file}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        lines.append(f"msprobe/{file}.py,sha256=x,{len(text)}")
    (place / "RECORD").write_text("\n".join([*lines, f"{name}.dist-info/RECORD,,"]) + "\n")


def test_shared_and_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "msprobe_debugger-0.1.0", first="ours", second="ours", third="ours")
    assert distribution.damaged_files([str(tmp_path)]) == []
    installed(tmp_path, "mindstudio_probe-26.2.0", first="that of the neighbour", fourth="theirs")
    (tmp_path / "msprobe" / "second.py").unlink()
    assert distribution.shared_files("mindstudio-probe", [str(tmp_path)]) == ["msprobe/first.py"]
    assert distribution.damaged_files([str(tmp_path)]) == ["msprobe/first.py", "msprobe/second.py"]
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    neighbour, files = only(list(checks.check_neighbours())), only(list(checks.check_files()))
    assert neighbour.status == files.status == "error"
    assert neighbour.data["shared"] == ["msprobe/first.py"]
    assert len(neighbour.remedy) == 2
    assert "uninstall mindstudio-probe" in neighbour.remedy[0]
    assert "--force-reinstall" in neighbour.remedy[1]


# ---------------------------------------------------------------- processes: what an import and a broken package say


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with links to our files, a copy of the first one, and the neighbour's metadata."""
    folder = tmp_path_factory.mktemp("packages")
    source = Path(distribution.__file__).parent
    (folder / "msprobe").mkdir()
    for entry in source.iterdir():
        if entry.name not in ("__init__.py", "__pycache__"):
            (folder / "msprobe" / entry.name).symlink_to(entry)
    (folder / "msprobe" / "__init__.py").write_bytes((source / "__init__.py").read_bytes())
    installed(folder, "mindstudio_probe-26.2.0", msprobe="def main(): ...\n")
    return folder


def run(package: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(package), **variables}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=package.parent, timeout=60
    )


@pytest.mark.parametrize(("variables", "count"), [({}, 1), ({"RANK": "1"}, 0)])
def test_an_import_beside_the_neighbour_says_one_sentence_once(
    package: Path, variables: dict[str, str], count: int
) -> None:
    done = run(package, "-c", "import msprobe; from msprobe.cli import main; main(['summary', 'x'])", **variables)
    lines = [line for line in done.stderr.splitlines() if "mindstudio-probe" in line]
    assert len(lines) == count, done.stderr
    assert all("--force-reinstall" in line for line in lines)


def test_a_package_whose_first_file_is_not_ours_says_how_to_repair_it(package: Path) -> None:
    first = package / "msprobe" / "__init__.py"
    ours = first.read_bytes()
    try:
        first.write_text("# of a different package\n")
        done = run(package, "-m", "msprobe", "summary", "x")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        assert "pip uninstall mindstudio-probe && pip install --force-reinstall" in done.stderr
    finally:
        first.write_bytes(ours)


# ---------------------------------------------------------------- devices


@pytest.mark.usefixtures("real_devices")
@pytest.mark.parametrize(
    ("torch", "status"),
    [
        ("class cuda:\n    device_count = staticmethod(lambda: 2)\n", "ok"),
        ("raise OSError('libtorch.so: cannot open shared object file')\n", "error"),
        ("import os\nos._exit(139)\n", "error"),
    ],
)
def test_a_framework_that_breaks_when_it_is_imported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, status: str
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    real = starting.child_environment

    def environment(has_own_modules: bool = True) -> dict[str, str]:
        found = real(has_own_modules)
        return {**found, "PYTHONPATH": os.pathsep.join([str(tmp_path), found.get("PYTHONPATH", "")]).rstrip(os.pathsep)}

    monkeypatch.setattr(starting, "child_environment", environment)
    found = devices.check_devices()
    assert found is not None
    assert found.status == status
    if status == "ok":
        assert found.data["devices"] == {"cuda": 2}
