"""A monitored run, or two of them, as one page that can be opened anywhere: no network, nothing beside it."""
