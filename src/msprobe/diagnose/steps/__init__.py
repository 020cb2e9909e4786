"""One recorded step: its events in order, who made each tensor, and what its optimizer did."""
