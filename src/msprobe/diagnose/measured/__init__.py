"""How much further apart a call's results are than its inputs, in numbers of full precision, judged by what healthy
devices do: the first call that is beyond it.

``rows`` are the numbers of a tensor, ``deviation`` says how far two of them are apart and what that is worth.
"""
