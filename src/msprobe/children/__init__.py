"""Processes that msprobe starts: all of them, in one way, so that none imports from a folder that a stranger filled.

Python puts the working directory, or the folder of a script, first among the places of modules. ``starting`` starts a
process with a file of this room (``first``), which takes that entry away before it imports anything. ``jobs`` hands
jobs to such processes (``job_process``).
"""

from __future__ import annotations
