"""Two runs in different parallel layouts: tensors are put together from what the ranks hold, then compared.

``blocks``: a tensor, or a part of one, and what parts become together. ``placements``: how a tensor lies on ranks, as
DTensor and annotation files say it. ``annotation``: the file. ``guess``: how it may lie, by shapes, where nobody says.
``sides``: the records of all ranks of one run by module and parameter. ``pairs``: records of both runs, measured.
``detect``: whether two runs have different layouts at all. ``search``: what is at fault.
"""

from __future__ import annotations
