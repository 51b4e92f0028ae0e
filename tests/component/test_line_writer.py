"""Lines to a pipe that is read late, slowly, never, or by nobody any more; and a proxy whose stdout is one."""

from __future__ import annotations

import fcntl
import http.client
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from controller.line_writer import PIECE, LineWriter
from controller.log_format import JsonFormatter, LineHandler
from tests.component.test_proxy_command import FILE, LIMIT, Proxy, Server, backends, free_port, start, until

__all__ = ["backends", "start"]  # fixtures

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIECE)
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:  # the test has
            continue


def line(number: int, size: int = 100) -> bytes:
    return (b"%d " % number).ljust(size - 1, b".") + b"\n"


def read(descriptor: int) -> list[bytes]:
    """All lines up to the end."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read().splitlines(keepends=True)


def test_a_pipe_that_nobody_reads_blocks_nobody_and_what_does_not_fit_is_counted(pipe: Pipe) -> None:
    reader, writer = pipe
    lines = LineWriter(writer, room=10_000)
    began = time.monotonic()

    for number in range(10):
        lines.write(b"".join(line(10 * number + each) for each in range(50)))
    lines.close(0.2)

    assert time.monotonic() - began < LIMIT / 2
    assert lines.lost >= 500 - (10_000 + PIECE) // 100
    os.set_blocking(reader, False)
    kept = os.read(reader, PIECE)
    assert kept == b"".join(line(number) for number in range(len(kept) // 100))


def test_lines_that_are_read_late_come_whole_and_in_order(pipe: Pipe) -> None:
    reader, writer = pipe
    lines = LineWriter(writer)
    for number in range(1000):
        lines.write(line(number, 50 + number % 200))

    found: list[bytes] = []
    thread = Thread(target=lambda: found.extend(read(reader)))
    thread.start()
    lines.close(LIMIT)
    assert os.get_blocking(writer)  # whoever shares it finds it as it was
    os.close(writer)
    thread.join()

    assert found == [line(number, 50 + number % 200) for number in range(1000)]
    assert lines.lost == 0


def test_a_batch_that_fits_in_part_is_cut_between_two_lines(pipe: Pipe) -> None:
    reader, writer = pipe
    lines = LineWriter(writer, room=250)

    lines.write(line(0) + line(1) + line(2))
    lines.close(LIMIT)
    os.close(writer)

    assert (read(reader), lines.lost) == ([line(0), line(1)], 1)


def test_lines_of_a_reader_that_has_left_are_counted_and_later_ones_too(pipe: Pipe) -> None:
    reader, writer = pipe
    lines = LineWriter(writer)
    os.close(reader)

    for number in range(3):
        lines.write(line(number))
    lines.close(LIMIT)
    lines.write(line(3))

    assert lines.lost == 4


def test_a_pipe_that_another_process_has_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    lines = LineWriter(writer)
    for number in range(500):
        lines.write(line(number))

    found: list[bytes] = []
    thread = Thread(target=lambda: found.extend(read(reader)))
    thread.start()
    lines.close(LIMIT)
    os.close(writer)
    thread.join()

    assert (len(found), lines.lost) == (500, 0)


def test_lines_of_two_writers_never_mix(pipe: Pipe) -> None:
    reader, writer = pipe
    both = [LineWriter(writer), LineWriter(writer)]
    found: list[bytes] = []
    thread = Thread(target=lambda: found.extend(read(reader)))
    thread.start()

    for batch in range(200):
        for name, lines in zip(b"ab", both, strict=True):
            lines.write(b"".join(bytes([name]) * (40 + batch + each) + b"\n" for each in range(20)))
    for lines in both:
        lines.close(LIMIT)
    os.close(writer)
    thread.join()

    assert len(found) == 8000
    assert all(len(set(each.rstrip())) == 1 for each in found)


def test_a_writer_that_never_wrote_has_no_thread(pipe: Pipe) -> None:
    lines = LineWriter(pipe[1])

    lines.close(LIMIT)

    assert lines._thread is None


LOGGED = FILE.replace("drain: 5s", "drain: 5s, accessLog: JSON")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_stdout_that_nobody_reads_stops_no_proxy(
    workers: str, backends: list[Server], start: Callable[..., Proxy], tmp_path: Path, pipe: Pipe
) -> None:
    port = free_port()
    (tmp_path / "shop.yaml").write_text(LOGGED.format(port=port, backend=backends[0].server_port))
    proxy = start(tmp_path / "shop.yaml", "--workers", workers, stdout=pipe[1])
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)

    for _ in range(300):  # 1.8 MB of lines
        client.request("GET", "/" + "x" * 6000)
        response = client.getresponse()
        response.read()
        assert response.status == 200
    client.close()

    assert proxy.get("/healthz")[0] == 200
    until(lambda: proxy.metric("steelyard_log_lines_lost_total") > 0)
    assert proxy.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_last_lines_are_written_before_the_proxy_ends(
    workers: str, backends: list[Server], start: Callable[..., Proxy], tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "shop.yaml").write_text(LOGGED.format(port=port, backend=backends[0].server_port))
    proxy = start(tmp_path / "shop.yaml", "--workers", workers, stdout=subprocess.PIPE)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)

    for number in range(20):
        client.request("GET", f"/{number}")
        client.getresponse().read()
    client.close()
    assert proxy.stop() == 0

    assert proxy.process.stdout is not None
    with proxy.process.stdout as stdout:
        assert len(stdout.read().splitlines()) == 20


LOGS = """
import logging
from controller.log_format import configure_logging
configure_logging()
for number in range(20_000):
    logging.info("x" * 100)
"""


def test_a_stderr_that_nobody_reads_stops_no_process(pipe: Pipe) -> None:
    done = subprocess.run((sys.executable, "-c", LOGS), stderr=pipe[1], timeout=LIMIT, check=False)

    assert done.returncode == 0
    assert os.read(pipe[0], PIECE).startswith(b'{"time": ')


def test_the_log_tells_of_lines_that_it_lost(pipe: Pipe) -> None:
    reader, writer = pipe
    handler = LineHandler(LineWriter(writer, room=1000))
    handler.setFormatter(JsonFormatter())

    for message in ("x" * 2000, "after", "later"):
        handler.handle(logging.LogRecord("test", logging.INFO, "", 1, message, None, None))
    handler.close()
    os.close(writer)

    found = [json.loads(each) for each in read(reader)]
    assert [(each["message"], each.get("lines_lost")) for each in found] == [("after", 1), ("later", None)]


def test_a_record_that_cannot_be_written_down_ends_nothing(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    handler = LineHandler(LineWriter(pipe[1]))

    handler.handle(logging.LogRecord("test", logging.INFO, "", 1, "%d", ("no number",), None))

    assert "Logging error" in capsys.readouterr().err
