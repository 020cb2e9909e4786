"""The import name of the search for the first bad value in mindstudio-probe 8.1.1."""
