"""What the findings of all steps and ranks amount to."""
