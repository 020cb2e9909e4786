"""Which event of the candidate answers to which of the reference."""
