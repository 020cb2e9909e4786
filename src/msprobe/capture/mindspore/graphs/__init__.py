"""Static graphs, and cells that are compiled inside a dynamic-graph program."""
