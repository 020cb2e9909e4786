"""What comes back in a backward pass: of calls, of modules, of parameters."""
