"""What file systems promise: where a mapped file can be written safely, and which disks one machine has alone."""

from __future__ import annotations

import contextlib
import os

# A block that was written once can be written again, whatever else fills the disk: a write into mapped memory cannot
# end the process. Not so where blocks are copied when they are written (btrfs, zfs, overlay on one of them), or may
# have been shared by a copy meanwhile (xfs).
_REWRITABLE = frozenset({"ext2", "ext3", "ext4", "tmpfs"})
# On a disk or in the memory of this machine: all who write there are processes of one system.
_LOCAL = _REWRITABLE | {"xfs", "btrfs", "zfs", "bcachefs", "f2fs", "overlay", "ramfs"}

# By device number; a process writes on few.
_known: dict[int, str] = {}


def can_be_mapped(descriptor: int) -> bool:
    """True if the open file can be written through a mapping, which a full disk makes no signal of."""
    return kind_of(descriptor) in _REWRITABLE


def is_local(descriptor: int) -> bool:
    """True if no other machine can write where the open file is; False also where that is not known."""
    return kind_of(descriptor) in _LOCAL


def is_local_folder(folder: str | os.PathLike[str]) -> bool:
    """The same of a folder; False if it cannot be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        return is_local(descriptor)
    finally:
        os.close(descriptor)


def kind_of(descriptor: int) -> str:
    """The kind of the file system of an open file, as ``ext4``; empty where the system does not say."""
    device = os.fstat(descriptor).st_dev
    known = _known.get(device)
    if known is None:
        known = _known[device] = _kind_of_mount(descriptor)
    return known


def _kind_of_mount(descriptor: int) -> str:
    with contextlib.suppress(OSError, ValueError):
        mount = _mount_of(descriptor)
        device = os.fstat(descriptor).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                fields = left.split()
                if len(fields) > 2 and right and (fields[0] == mount if mount else fields[2] == number):
                    return right.split(maxsplit=1)[0]
    return ""


def _mount_of(descriptor: int) -> str:
    """The number of the mount; files of btrfs and overlay have device numbers that no mount has. Empty if not
    reported.
    """
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", encoding="utf-8") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return line.split()[1]
    return ""
