"""`steelyard demo`: see it work."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from controller.commands import BAD_INPUT, NOT_HAD

EXAMPLE = Path(__file__).parents[1] / "demo" / "example.yaml"


@click.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=EXAMPLE,
    help="What to balance; four backends with one loopback address each.  [default: one that is installed with it]",
)
@click.option("--once", is_flag=True, help="End after the last act instead of at Ctrl-C.")
def demo(path: Path, once: bool) -> None:
    """See it work: four backends, a proxy and live traffic, all on loopback.

    The algorithm changes while requests run, one backend is slowed, one is killed and comes back. Ctrl-C ends it.

    Exit status: 0; 1 if a process could not be started, 2 if the file is wrong.
    """
    from controller.demo.processes import NotStarted
    from controller.demo.show import play
    from controller.demo.stage import Unsuited

    try:
        asyncio.run(play(path, once=once))
    except Unsuited as error:
        click.echo(str(error), err=True)
        sys.exit(BAD_INPUT)
    except NotStarted as error:
        click.echo(f"steelyard demo: not started: {error}", err=True)
        sys.exit(NOT_HAD)
    except KeyboardInterrupt:
        pass
