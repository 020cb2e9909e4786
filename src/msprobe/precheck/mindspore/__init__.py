"""The half of the pre-check that needs MindSpore. It runs in worker processes (:mod:`msprobe.precheck.worker`)."""
