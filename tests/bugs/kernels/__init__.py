"""Wrong kernels behind other kernels: every call of the candidate differs a little, and one kernel is wrong.

``networks`` are five small trainings, ``device`` computes aten's operators otherwise, below the recorder, ``operators``
say how, ``variants`` in which orders and with which functions, ``faults`` what is wrong in them; ``record`` keeps
recordings, ``truth`` finds the first wrong call by comparing bits, ``run`` prints the scores of a judge.
"""
