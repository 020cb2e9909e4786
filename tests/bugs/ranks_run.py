"""Placeholder until the beds of several ranks are there."""

from __future__ import annotations
