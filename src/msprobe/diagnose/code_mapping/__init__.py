"""Which lines of the program a kernel comes from: kernel dumps of MindSpore graphs, and the texts of the graphs.

``ir_text`` reads the text of a graph, ``code_stacks`` holds the lines it names, ``kernel_lookup`` finds the node of a
kernel by its name, ``dumped_kernels`` finds the kernels in a dump, ``joining`` puts the two side by side.
"""

from __future__ import annotations
