"""What of the comparison with a trainer needs PyTorch: digests of weights, and the trainer's own operators."""
