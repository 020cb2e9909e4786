"""``msprobe demo``: a training and a copy with one wrong line, recorded, compared and shown, by the commands of users.

``train`` is the training, which is copied into the demo's folder and does not know msprobe; ``showing`` does the rest.
"""

from __future__ import annotations
