"""Two runs in different parallel layouts: tensors are put together from what the ranks hold, then compared.

``blocks``: a tensor, or a part of one, and what parts become together. ``placements``: how a tensor lies on ranks, as
DTensor and annotation files say it. ``annotation``: the file. ``guess``: how it may lie, by shapes, where nobody says.
``sides``: the records of all ranks of one run by module and parameter. ``pairs``: those of both runs beside each other
(``measured``), and how they were compared. ``detect``: whether two runs have different layouts at all.
``search``, ``steps``: what is at fault in modules and in the optimizer, said by ``findings_so_far`` and ``statements``.
"""

from __future__ import annotations
