"""What a training is given: hyper-parameters read from launch scripts, settings files, logs and checkpoints, and
compared by meaning. ``reading`` is the way in; ``comparison`` holds two sides against each other.
"""
