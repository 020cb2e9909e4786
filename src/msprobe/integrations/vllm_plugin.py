"""vLLM's plug-in of msprobe: with ``MSPROBE_ROLLOUT=FOLDER`` in the environment, any vLLM records what it generates.

::

    MSPROBE_ROLLOUT=./rollout vllm serve ./checkpoint
    MSPROBE_ROLLOUT=./rollout python train.py          # verl, TRL, a script

vLLM loads it in each of its processes (entry points of the group ``vllm.general_plugins``). Without the variable it
does nothing and imports nothing.
"""

from __future__ import annotations

import os

VARIABLE = "MSPROBE_ROLLOUT"


def register() -> None:
    """Called by vLLM. ``MSPROBE_ROLLOUT``: a folder, or a configuration file (.json) of the recorder."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        from msprobe.integrations.vllm_worker import record_all_engines

        record_all_engines(given)
