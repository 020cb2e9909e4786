"""A call on one side, and what is said of its results: workers of the check import it, scripts that reproduce a call
have its text. So nothing here imports anything but torch, the standard library, files beside it, and ``said``, for
which a script has a function of its own.
"""
