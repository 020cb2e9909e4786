"""Watches a training over thousands of steps: statistics of activations, gradients, weights and moments, step by step.

What measures (``torch/``, ``mindspore/``) and what becomes of it (``sinks/``, ``alerts/``, reports) meet in
:mod:`msprobe.monitor.measurements`. Nothing but the adapters imports a framework.
"""
