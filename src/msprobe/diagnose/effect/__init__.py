"""How far a difference reaches: loss, gradients, weights, and the states that modules keep."""
