"""The half of the pre-check that needs PyTorch. It runs in worker processes (:mod:`msprobe.precheck.worker`)."""
