"""``msprobe monitor ...``: what to do with the files of a monitored training."""
