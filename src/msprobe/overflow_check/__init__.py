"""The import name of the search for the first bad value in mindstudio-probe 26.2."""
