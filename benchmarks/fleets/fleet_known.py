"""Measure what a data set costs in which all traces are known already, before the first is scanned.

    python -m benchmarks fleet_known [--count 10000] [--delay-ms 5]

In a folder of this machine, and in an object store: moto in a process of its own, each request of which takes so much
longer. Printed in one run: seconds and requests of reading `runs` one file after another, which a call did once; of the
first call, which reads all rows at once and writes the index; and of each later call, which reads the index. All three
must say the same of each trace.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tracemine.columns import of_values
from tracemine.fleet.dataset import RUNS, Dataset, Generation
from tracemine.fleet.known import run_key
from tracemine.fleet.places import filesystem

COLUMNS = ["uri", "generation", "size_bytes", "modified_ns", "content_sha256", "status"]
COUNT_PATH = "/requests"


def fill(uri: str, count: int) -> None:
    """Write so many rows of `runs`."""
    dataset = Dataset(uri)
    generation = Generation(digest="0123456789abcdef", tracemine="0", options={})
    dataset.begin(generation)

    def write(number: int) -> None:
        day, place = f"2026-11-{1 + number % 30:02}", f"s3://traces/job{number % 40:02}/2026-11-22/rank{number}.json.gz"
        key = run_key(place, day, f"{number:064x}", generation.digest)
        row: dict[str, Any] = {
            "key": key, "generation": 1, "uri": place, "content_sha256": f"{number:064x}",
            "size_bytes": 10**6 + number, "modified_ns": 10**18 + number,
            "job": f"job{number % 40:02}", "status": "scanned", "tracemine": "0",
        }  # fmt: skip
        columns = [of_values([row.get(column.name)], column.type) for column in RUNS.columns]
        dataset.write(day, key, {"runs": pa.Table.from_arrays(columns, schema=RUNS.schema)})

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(write, range(count)))


def one_after_another(uri: str) -> pa.Table:
    """Read each file of `runs`, as every call did."""
    store, root = filesystem(uri)
    infos = store.get_file_info(fs.FileSelector(f"{root}/runs", recursive=True))
    paths = sorted(one.path for one in infos if one.is_file and one.path.endswith(".parquet"))
    return pa.concat_tables(pq.read_table(path, filesystem=store, columns=COLUMNS, partitioning=None) for path in paths)


def known(uri: str) -> pa.Table:
    """Read what is known, as a call does."""
    return Dataset(uri).known().select(COLUMNS)


def measured(name: str, uri: str, requests: Callable[[], int]) -> bool:
    """Print what each way takes; return whether all say the same."""
    ways = (("one file after another", one_after_another), ("first call", known), ("later call", known))
    times, said = list[float](), list[list[dict[str, Any]]]()
    for what, way in ways:
        before, began = requests(), time.monotonic()
        rows = way(uri)
        times.append(time.monotonic() - began)
        print(
            f"{name}, {what}: {rows.num_rows:,} rows in {times[-1]:.2f} s, {requests() - before:,} requests", flush=True
        )
        said.append(sorted(rows.to_pylist(), key=repr))
    print(f"{name}: a first call is {times[0] / times[1]:.1f} × as fast, a later one {times[0] / times[2]:.0f} ×")
    return said[0] == said[1] == said[2]


def serve(delay_s: float) -> None:
    """Answer as S3 does, after a while; print the port."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    moto, counted = DomainDispatcherApplication(create_backend_app), [0]
    lock, writes = Lock(), Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == COUNT_PATH:
            start("200 OK", [("Content-Type", "text/plain")])
            return [str(counted[0]).encode()]
        with lock:
            counted[0] += 1
        time.sleep(delay_s)
        with writes if environ["REQUEST_METHOD"] == "PUT" else nullcontext():  # moto takes no two at once
            found: Iterable[bytes] = moto(environ, start)
        return found

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def store(delay_ms: float) -> Iterator[tuple[str, Callable[[], int]]]:
    """Begin a server; give a data set's URI and what counts its requests."""
    command = [sys.executable, __file__, "--serve", str(delay_ms / 1000)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        port = int(running.stdout.readline())
        query = f"?endpoint_override=http%3A%2F%2F127.0.0.1%3A{port}&scheme=http&region=us-east-1"
        bucket, _ = filesystem(f"s3://perf{query}&allow_bucket_creation=true")
        bucket.create_dir("perf")

        def requests() -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{COUNT_PATH}") as answer:
                return int(answer.read())

        yield f"s3://perf/fleet{query}", requests
    finally:
        running.kill()
        running.wait()


def main() -> int:
    """Fill, read in each way, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--delay-ms", type=float, default=5.0)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
    os.environ |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with tempfile.TemporaryDirectory(prefix="tracemine-known-") as folder:
        fill(folder, given.count)
        same = measured("a folder", folder, lambda: 0)
    with store(given.delay_ms) as (uri, requests):
        fill(uri, given.count)
        same &= measured(f"moto, {given.delay_ms:g} ms a request", uri, requests)
    print("all say the same" if same else "rows differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
