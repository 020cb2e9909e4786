"""Pairs of programs that compute the same and are written otherwise, with bugs that may stand beside the rewriting.

``modules`` and ``recurrent`` write parts of a model in two ways, ``losses`` and ``loops`` what is done around one;
``table`` names all of them.
"""
