"""How far two records are apart, and what that looks like in words."""
