"""Functions of the user's own that a file lists, in the form of ``custom_wrap_ops.yaml`` of mindstudio-probe 26.2::

    my_package.kernels: [scaled_add, fused_norm]
    torch.ops.my_library: [rotate]

Each is recorded as ``register`` records it, once the program has imported its module:
nothing is imported on behalf of a file.
"""

from __future__ import annotations

import sys
from typing import Any

from msprobe import log
from msprobe.capture.torch.calls.custom import register
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.config.mistakes import Mistake, raise_mistakes, shown
from msprobe.config.yaml_source import read_yaml
from msprobe.messages import said


class ListedApis:
    """The functions of ``file`` (None: none) that are not registered yet. Raises PathError or InvalidInputError."""

    def __init__(self, file: str | None) -> None:
        self._pending = {} if file is None else _read(file)

    def register(self, recorder: TorchRecorder) -> None:
        """Register the functions of all modules that the program has imported by now."""
        for name in list(self._pending):
            module = sys.modules.get(name) or _operators(name)
            if module is None:
                continue
            for api in self._pending.pop(name):
                if callable(getattr(module, api, None)):
                    register(recorder, module, api, name)
                else:
                    log.warning(said("custom-file-function-missing", name, api))


def _operators(name: str) -> Any:
    """A namespace of ``torch.ops``, which is no module that is imported."""
    start, _, space = name.rpartition(".")
    return getattr(sys.modules["torch"].ops, space) if start == "torch.ops" else None


def _read(file: str) -> dict[str, list[str]]:
    source = read_yaml(file, "custom_api_file")
    value = source.document.value
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise_mistakes([source.mistake((), said("custom-file-modules", shown(value)))], file)
    mistakes: list[Mistake] = []
    for module, names in value.items():
        if not (isinstance(names, list) and names and all(isinstance(name, str) and name for name in names)):
            text = said("custom-file-names", shown(names))
            mistakes.append(source.mistake((module,), text))
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return {module: list(dict.fromkeys(names)) for module, names in value.items()}
