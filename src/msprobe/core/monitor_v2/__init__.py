"""Import names that users of earlier tools know; nothing but re-exports."""
