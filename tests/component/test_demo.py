"""The demo as a newcomer runs it: a process of its own, without a terminal."""

from __future__ import annotations

import asyncio
import re
import signal
import sys

import pytest


async def demo(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller",
        "demo",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        # A shell starts its background jobs deaf to Ctrl-C, and children inherit that: here it must be heard.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.timeout(120)
async def test_it_plays_every_act_loses_no_request_and_ends_by_itself() -> None:
    process = await demo("--once")

    out, err = await process.communicate()
    text = out.decode()

    assert process.returncode == 0, err.decode()
    assert "curl http://127.0.0.1:" in text
    assert "\x1b" not in text, "no colours without a terminal"
    done = re.search(r"^(\d+) requests, (\d+) failed\n", text[text.rindex("It is back:") :], re.MULTILINE)
    assert done is not None, text
    assert int(done[1]) > 1000
    assert done[2] == "0", text
    assert re.search(r"^bravo .*ejected", text, re.MULTILINE), "the killed backend is seen to be ejected"


@pytest.mark.timeout(60)
async def test_ctrl_c_ends_it_with_a_summary() -> None:
    process = await demo()
    assert process.stdout is not None
    await process.stdout.readuntil(b"requests,")

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert process.returncode == 0, err.decode()
    assert b"Round robin: the weights decide" in out or b"failed" in out
    assert b"Traceback" not in err


@pytest.mark.timeout(60)
async def test_a_file_that_is_no_demo_is_explained(tmp_path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("kind: Pod\n")
    process = await demo("--file", str(path))

    _, err = await process.communicate()

    assert process.returncode == 2
    assert b"Traceback" not in err
    assert str(path).encode() in err
