"""Where the difference of a step begins, and whose fault it is."""
