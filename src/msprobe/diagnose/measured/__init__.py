"""How much further apart a call's results are than its arguments, in numbers of full precision, judged by what healthy
devices do: the first call that is beyond it.

``deviation`` says how far two rows are apart and what that is worth, ``scales`` what that is measured against,
``nodes`` lists the calls of a pair of steps, ``classes`` is the measured table of what is usual, ``judge`` names the
first call beyond it.
"""
