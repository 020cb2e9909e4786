"""Renderers: findings in, files and text out."""

from __future__ import annotations
