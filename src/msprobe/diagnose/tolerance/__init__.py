"""What rounding may do: every limit of the diagnosis stands here, and is asked for by a question.

=====================  ===============================================================================================
``units``              What is one unit of rounding, of a type, of a pair, of a run; how many may a call, a step make?
``effective``          To how few bits do kernels round what they multiply (TF32, HF32), by headers or by all results?
``noise``              What may this call add itself, how many times larger does it make the inputs, and how far may
                       its results be apart by both?
``explained``          Do the inputs, or what calls of one side alone were given, explain what is seen later?
``tensor``             Is this tensor another one, by where it comes from: stored, from outside, calculated unseen?
``effect``             Does it reach loss, gradients, weights, states? Is that more than rounding does in a step?
``roundings``          Can so many roundings have made this, where nothing differed before?
``frameworks``         The same between MindSpore and PyTorch, where everything is apart by rounding.
``layouts``            The same between parallel layouts, whose sums run in another order.
``means``              How far do roundings move the mean of a gradient?
``check_limits``           The same where there is no second run: ranks, passes and steps of one (``msprobe check``).
``calibration``        How far are two healthy runs apart, measured call by call (``--noise``)?
``judge``              Each pair of calls on its own: the same, rounding, explained by its inputs, unexplained.
=====================  ===============================================================================================

No other room multiplies a unit of rounding or keeps a limit of its own (``tests/unit/diagnose/tolerance`` looks).
"""
