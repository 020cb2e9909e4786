"""Import names of earlier tools."""
