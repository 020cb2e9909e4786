"""The optional C extension; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import glob
import os
import sys

from setuptools import Extension, setup

FOLDER = "src/msprobe/capture"
SOURCE = f"{FOLDER}/_native.c"
ROOT = os.path.dirname(os.path.abspath(__file__))

# Optional: without a compiler the install succeeds and the recorder uses its Python path.
# No -march: a wheel built here must run on every machine of the same architecture. No fused multiply-add, so
# that statistics are the same to the last bit on all of them.
NATIVE = Extension(
    "msprobe.capture._native",
    sources=[SOURCE],
    depends=sorted(glob.glob(f"{FOLDER}/*.h", root_dir=ROOT)),
    extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off"],
    optional=True,
)

setup(ext_modules=[NATIVE] if os.path.exists(os.path.join(ROOT, SOURCE)) else [])
