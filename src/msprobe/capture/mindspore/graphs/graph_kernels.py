"""Level L2 of a static graph: MindSpore itself dumps the kernels, known by a file that ``MINDSPORE_DUMP_CONFIG`` names.

What it writes: ``rank_{id}/Net/{graph}/{iteration}/{op type}.{op name}.{task}.{stream}.{time}.{input|output}.{slot}.
{format}.{dtype}.npy`` in ``dump_path``. Statistics are refused by MindSpore on the CPU: there tensors are dumped, and
``statistic.csv`` is made of them here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mindspore

from msprobe import log
from msprobe.capture.mindspore.graphs.execution import backend
from msprobe.capture.mindspore.graphs.executor import wait_for_all
from msprobe.capture.mindspore.graphs.kernel_config import by_graph, by_kernel, kinds_of
from msprobe.capture.mindspore.graphs.kernel_statistics import summarise
from msprobe.config.settings import Settings
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically

VARIABLE = "MINDSPORE_DUMP_CONFIG"
# The same file for the layer below GE, where the whole network is dumped.
ACL_VARIABLE = "MS_ACL_DUMP_CFG_PATH"


class GraphKernels:
    """The kernel dump of this process: one configuration, made before the graph is compiled."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = Path(os.path.abspath(settings.dump_path))
        # Statistics of our own making.
        self.makes_statistics = settings.task == "statistics" and mindspore.get_context("device_target") == "CPU"
        as_whole = backend() == "ge"
        dump = by_graph(settings) if as_whole else by_kernel(settings, self.makes_statistics)
        make_folder(self.folder)
        file = self.folder / dump.name
        write_atomically(file, json.dumps(dump.content, indent=4).encode(), fsync=False)
        # What they were before.
        self._before = {name: os.environ.get(name) for name in (VARIABLE, ACL_VARIABLE)}
        self._set(VARIABLE, str(file))
        is_whole = dump.content["common_dump_settings"]["dump_mode"] == 0
        self._set(ACL_VARIABLE, str(file) if as_whole and is_whole else None)
        _call_dump("_dump_set_dynamic")

    def _set(self, name: str, value: str | None) -> None:
        before = self._before[name]
        if before is not None and before != value:
            log.warning(said("variable-set-already", name))
        _put(name, value)

    def start(self) -> None:
        """Dump from here on."""
        _call_dump("_dump_start")

    def stop(self) -> None:
        """Dump no more. The CPU does not listen to this: there the steps of the configuration decide alone."""
        wait_for_all()
        _call_dump("_dump_stop")
        self._summarise()

    def step(self) -> None:
        """The next iteration begins."""
        wait_for_all()
        _call_dump("_dump_step", 1)

    def close(self) -> None:
        """The program, or the recording, ends."""
        wait_for_all()
        self._summarise()
        for name, value in self._before.items():
            _put(name, value)
        if any(self.folder.glob("rank_*")):
            log.info(said("graph-kernels-dumped", self.folder))
        else:
            log.warning(said("graph-kernels-missing", self.folder))

    def _summarise(self) -> None:
        if self.makes_statistics:
            summarise(self.folder, kinds_of(self.settings))


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _call_dump(name: str, *args: Any) -> None:
    """Call one of the switches of MindSpore's dump, where it has them."""
    try:
        switch = getattr(__import__("mindspore._c_expression", fromlist=[name]), name)
    except (ImportError, AttributeError):
        return
    switch(*args)
