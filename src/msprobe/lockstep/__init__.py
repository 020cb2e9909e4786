"""Lockstep: a training runs against a recorded one, each call of it with the reference's inputs, and is judged alone.

``recording`` and ``reference`` read the recorded training, ``pairing`` finds the recorded call that a call of the
candidate answers to, ``listener`` puts the recorded values in the place of the candidate's own, behind its dump;
``verdict`` judges that dump against the reference. ``torch/``: tensors, and what the debugger begins and ends.
"""
