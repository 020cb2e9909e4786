"""The monitor in the form of ``monitor_v2`` of mindstudio-probe 26.2.0: its configuration, its files, its calls."""
