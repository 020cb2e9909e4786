"""The optional C extensions; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import glob
import os
import sys

from setuptools import Extension, setup

ROOT = os.path.dirname(os.path.abspath(__file__))
# Without a compiler the install succeeds: the recorder uses its Python path, the comparison of tensors numpy.
SOURCES = {
    "msprobe.capture._native": "src/msprobe/capture/c/native.c",
    "msprobe.diagnose.differences._elements": "src/msprobe/diagnose/differences/_elements.c",
}
# MSPROBE_PURE=1: a wheel py3-none-any, for platforms that no other wheel is for.
IS_PURE = os.environ.get("MSPROBE_PURE") == "1"


def extension(name: str, source: str) -> Extension:
    """No -march: a wheel built here must run on every machine of the same architecture. No fused multiply-add, so that
    sums are the same to the last bit on all of them.
    """
    return Extension(
        name,
        sources=[source],
        depends=sorted(glob.glob(f"{os.path.dirname(source)}/*.h", root_dir=ROOT)),
        extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off"],
        # MSPROBE_REQUIRE_NATIVE=1: a wheel for the index fails to build rather than come without it.
        optional=os.environ.get("MSPROBE_REQUIRE_NATIVE") != "1",
    )


# Not with the stable ABI (abi3): the recorder has static types, and its inner loops use vectorcall, buffers and
# fields of tuples and bytes that the limited API of Python 3.10 does not have. So there is a wheel for each Python.
setup(
    ext_modules=[
        extension(name, source)
        for name, source in SOURCES.items()
        if not IS_PURE and os.path.exists(os.path.join(ROOT, source))
    ]
)
