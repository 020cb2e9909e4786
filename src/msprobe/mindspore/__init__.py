"""The names that scripts for MindSpore import; nothing but re-exports."""
