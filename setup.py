"""The optional C extension; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import sys

from setuptools import Extension, setup

SOURCE = "src/msprobe/capture/_native.c"

# Optional: without a compiler the install succeeds and the recorder uses its Python path.
# No -march: a wheel built here must run on every machine of the same architecture.
setup(
    ext_modules=[
        Extension(
            "msprobe.capture._native",
            sources=[SOURCE],
            extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3"],
            optional=True,
        )
    ]
    if os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), SOURCE))
    else []
)
