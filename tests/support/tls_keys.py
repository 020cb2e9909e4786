"""Keys and certificates for tests of TLS, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def openssl(folder: Path, *words: str) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def made_keys(folder: Path) -> Path:
    """A folder with keys and certificates of both sides, signed by an authority of its own."""
    folder.mkdir()
    try:
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
                "-subj", f"/CN={folder.name}", "-days", "2")  # fmt: skip
        for side in ("client", "server"):
            openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{side}.key", "-out", "request",
                    "-subj", f"/CN={side}")  # fmt: skip
            openssl(folder, "x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key",
                    "-CAcreateserial", "-out", f"{side}.crt", "-days", "2")  # fmt: skip
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return folder
