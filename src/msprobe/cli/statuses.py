"""What each exit status says, of every command: 0 clean, 1 it found something, 2 it could not.

Beyond these: the status of a script that a command runs for the user, 130 where the user ended it (Ctrl-C), and 1 with
``--debug`` where an error is shown as a traceback.
"""

from __future__ import annotations

CLEAN = 0
FOUND = 1
#: Wrong usage, bad input, or nothing found where not all of the input could be read.
COULD_NOT = 2
INTERRUPTED = 130
