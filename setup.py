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
    # MSPROBE_REQUIRE_NATIVE=1: a wheel for the index fails to build rather than come without it.
    optional=os.environ.get("MSPROBE_REQUIRE_NATIVE") != "1",
)
# MSPROBE_PURE=1: a wheel py3-none-any, for platforms that no other wheel is for.
HAS_NATIVE = os.path.exists(os.path.join(ROOT, SOURCE)) and os.environ.get("MSPROBE_PURE") != "1"

# Not with the stable ABI (abi3): the types of the extension are static, and its inner loops use vectorcall, buffers and
# fields of tuples and bytes that the limited API of Python 3.10 does not have. So there is a wheel for each Python.
setup(ext_modules=[NATIVE] if HAS_NATIVE else [])
