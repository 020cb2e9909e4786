"""Files, texts and names that a stranger may have made: each is read as data, within one budget.

Every reader of such input opens its file with :mod:`msprobe.foreign.opening` and counts what it makes of it with a
:class:`msprobe.foreign.budget.Budget`. Nothing in this room imports, calls or follows what the input names.
"""
