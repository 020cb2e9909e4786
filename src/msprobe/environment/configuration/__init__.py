"""The configuration check: what a training is started with, packed on each machine, and two packs compared."""
