"""``python -m msprobe`` is the same as the command ``msprobe``."""

# Without `from __future__ import annotations`: with -m, the working directory is the first place of modules until here.
import sys


def main() -> int:
    """Run the command line; also the entry of the command ``msprobe-debugger``, a name that no other package has."""
    import msprobe

    if not hasattr(msprobe, "__version__"):
        # Our first file is gone or that of mindstudio-probe, which installs (and uninstalls) files of the same names.
        from msprobe.distribution import repair, sharers
        from msprobe.foreign.console import say

        names = sharers()
        owner = (
            f"overwritten by {' and '.join(names)}" if names else "deleted by the uninstallation of a different package"
        )
        say(f"msprobe: files of this tool were {owner}: {' && '.join(repair(names))}", file=sys.stderr)
        return 1
    from msprobe.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", bool(sys.flags.isolated)):
        # By the next one, which keeps the order: `msprobe run` puts the folder of the user's script there.
        sys.path[0] = sys.path[1]
    sys.exit(main())
