"""Planted mismatches between vLLM on the CPU and a trainer, and what msprobe rollout names."""
