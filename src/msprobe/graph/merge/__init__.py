"""Ranks of one parallel training put together to one graph: tensor, pipeline and virtual pipeline parallel."""
