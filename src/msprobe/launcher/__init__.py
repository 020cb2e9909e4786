"""``msprobe run``: a script is recorded as it stands. Where its steps end, what its models and optimizers are."""
