"""Where an inference engine and the trainer that learns from it first disagree about the same tokens.

``responses`` reads what both have written of their tokens and log-probs, ``contract`` says whether the two mean the
same by them. Files alone: neither engine nor framework is imported.
"""
