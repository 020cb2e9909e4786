"""A dump in object storage: what do copying it and comparing it cost? Against a server on this machine that speaks S3.

    python bench/scale/objects.py [--ranks 64] [--records 500] [--folder DIR]

It needs ``pip install 'moto[server]' s3fs``, which is not in the environment of the tests. The dump is written, put
into a bucket, copied back by ``msprobe collect s3://...`` and compared with the original, which must agree. Seconds
are of the wall; the server, in Python, takes most of them.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dumps import write

KEYS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}


def main() -> None:
    """Print what each part cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(KEYS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="objects-") as name:
            _measure(Path(name), options.ranks, options.records)
    finally:
        server.terminate()
        server.wait()


def _measure(folder: Path, ranks: int, records: int) -> None:
    import s3fs

    write(folder / "run", ranks, records)
    storage = s3fs.S3FileSystem()
    for _ in range(100):
        try:
            storage.mkdir("bucket")
            break
        except Exception:
            time.sleep(0.2)
    storage.put(f"{folder / 'run'}/", "bucket/run/", recursive=True)
    storage.pipe("bucket/run/step0/rank0/notes.txt", b"no file of a dump")
    megabytes = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file()) / 1e6
    for words in (
        ["collect", "s3://bucket/run", "-o", str(folder / "copy")],
        ["compare", str(folder / "copy"), str(folder / "run"), "-o", str(folder / "out")],
        ["compare", "s3://bucket/run", str(folder / "run"), "-o", str(folder / "out")],
    ):
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "msprobe", *words], capture_output=True, text=True)
        took = time.perf_counter() - begun
        said = (done.stdout + done.stderr).strip().splitlines()
        print(f"{' '.join(words[:2]):40} {took:6.1f} s  status {done.returncode}  {said[0] if said else ''}")
    print(f"{ranks} ranks x {records} records, {megabytes:.0f} MB in {sum(1 for _ in storage.find('bucket'))} objects")


if __name__ == "__main__":
    main()
