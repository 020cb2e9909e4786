"""A second look at doubtful calls: recorded once more with whole tensors, each is computed again from its own inputs.

Where two devices differ in every call, statistics say that a call is near to what rounding may do, and no more. With
the call's own arguments its result can be computed in double precision on each side: a kernel that is wrong on one side
alone is proven then.
"""
