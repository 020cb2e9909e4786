"""What comes back in a backward pass: of calls, of cells, of parameters."""
