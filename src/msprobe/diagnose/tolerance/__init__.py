"""What rounding may do, modelled or measured, and whether it explains a pair by itself."""
