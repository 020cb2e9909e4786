"""Operators of a training on its device beside the same operators on the CPU, while it runs (``PtdbgDispatch``).

``judging`` says of two arrays whether they agree, ``files`` writes what was found; both know no framework.
"""
