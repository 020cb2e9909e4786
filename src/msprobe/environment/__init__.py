"""What differs before training starts."""
