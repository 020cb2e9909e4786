"""``msprobe doctor``: is this installation whole, and does it fit what is installed beside it?

``checks`` has one function for each subject, in the order in which they are shown; ``devices`` is run in a process of
its own, as it imports the framework, which may be broken.
"""

from __future__ import annotations
