"""The gradient probe: a few numbers and the direction of every parameter's gradient at each optimizer step, cheap
enough to stay on, and :class:`~msprobe.grad_probe.comparator.GradComparator`, which says where two such runs part.

Recording: ``torch`` and ``mindspore`` ask their framework and hand what they find to ``probe`` (which steps are
wanted), ``measure`` (numbers and direction of one gradient), ``rows`` (a line of the csv) and ``writer`` (files, in
the background). Comparing needs files only: ``reading`` -> ``similarity`` -> ``verdict`` -> ``comparator``;
``plots`` and ``page`` are to look at.
"""
