"""What the frames of a journal hold, for writer and reader alike."""

from __future__ import annotations

import struct

KEY = struct.Struct("<BI")
KEY_BYTES = KEY.size

# Kind, then what the key and the content are. Names and contents are JSON text as it will stand in the file.
HEADER = 0  # nothing; the header of the file, one JSON object
RECORD = 1  # name; b": " and the record at depth 2 of dump.json
FRAMES = 2  # number of the stack; its frames at depth 2 of stack.json
STACK = 3  # name; number of the stack
PARENT = 4  # name; b": " and the parent at depth 1 of construct.json
# A record with where it came from, in one frame: name; b": " and the record, the JSON text of the parent, and
# CALL_TAIL: number of the stack (-1: none) and length of the parent's text (NO_PARENT: it has no place).
CALL = 5
CALL_TAIL = struct.Struct("<qI")
NO_PARENT = 0xFFFFFFFF
# Rows of tensors: nothing; the number of the first (ROW_NUMBER), and the rows as msprobe.store.row_format has them.
ROWS = 6
ROW_NUMBER = struct.Struct("<Q")

FORMAT = 1
# The end of a file that may still grow and that of a finished one: of the same length, so that finishing is
# one write.
OPEN_END = b'"complete": false\n }\n}'
FINISHED_END = b'"complete": true\n }\n}\n'


def body(kind: int, key: bytes, content: bytes) -> bytes:
    return KEY.pack(kind, len(key)) + key + content
