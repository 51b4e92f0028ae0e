"""kopf, the operator's front for BalancedServices: login, life cycle, and the watch that triggers everything.

Only `on.event` and `on.login`: no annotation, no finalizer, no patch, so every replica may run it and an uninstall
leaves nothing behind that won't die. It has a thread and a loop of its own, since at its end it cancels every task of
the loop that is younger than itself; when it ends (any watch error but 410 ends it), the supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from controller.kube.api import Object
from controller.model.service import GROUP, PLURAL, VERSION

LOGIN = timedelta(minutes=10)  # a projected token is renewed at 80 % of its life, an hour at least
BEAT = 5.0  # seconds between two signs of life of kopf's loop
STOP = 8.0  # seconds; kopf itself waits 5 for its tasks
LONGEST = 60.0  # seconds between two starts at most
CALM = 300.0  # a run of this long resets the pause

log = logging.getLogger(__name__)

Event = Callable[[str | None, Object], None]


class Backoffs:
    """Endless and jittered: kopf iterates anew for each request, and gives up where an iterator ends."""

    def __iter__(self) -> Iterator[float]:
        pause = 0.5
        while True:
            yield random.uniform(pause / 2, pause)
            pause = min(30.0, pause * 2)


def settings() -> kopf.OperatorSettings:
    """Each value with its reason."""
    found = kopf.OperatorSettings()
    found.scanning.disabled = True  # no watch of CRDs and namespaces: ours is there before kopf starts
    found.watching.connect_timeout = 10
    found.watching.server_timeout = 300  # an int: it goes into timeoutSeconds as it stands
    found.watching.client_timeout = 330
    found.watching.chunk_size = 500  # a third of the memory of one large list
    found.networking.request_timeout = 30
    found.networking.connect_timeout = 5
    found.networking.error_backoffs = Backoffs()
    found.posting.enabled = False  # Events are our own: kopf's know no series
    found.peering.standalone = True  # peering is keep-alives without fencing, and a stranger's object pauses us
    found.process.ultimate_exiting_timeout = None  # it would kill the process, not the thread
    found.queueing.worker_limit = None  # a limit of n means n objects per 5 s at the start
    return found


def registry(configure: Callable[[], Awaitable[Configuration]], event: Event) -> kopf.OperatorRegistry:
    """The handlers. `event` is called in kopf's thread."""
    found = kopf.OperatorRegistry()  # the plain one has no logins of its own to fall back to
    known: list[Configuration] = []

    @kopf.on.login(registry=found)
    async def login(**kwargs: object) -> kopf.ConnectionInfo:
        configuration = known[0] if known else await configure()
        known[:] = [configuration]
        scheme, _, token = (await configuration.get_api_key_with_prefix("BearerToken") or "").partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl or None,
            scheme=scheme or None,
            token=token.strip() or None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            expiration=datetime.now(UTC) + LOGIN,  # the default reads the token once, and again only after a 401
        )

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=found)
    async def changed(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name for it
        event(type, dict(body))

    return found


class Front:
    """Runs kopf in a thread, over and over. `event` is called in the loop that runs `run`."""

    def __init__(
        self, configure: Callable[[], Awaitable[Configuration]], event: Event, namespaces: Collection[str] = ()
    ) -> None:
        self.restarts = 0
        self._configure = configure
        self._event = event
        self._namespaces = sorted(namespaces)
        self._beat = time.monotonic()

    def __repr__(self) -> str:
        return f"<Front restarts={self.restarts} age={self.age():.0f}>"

    def age(self) -> float:
        """Seconds since kopf's loop showed that it lives; grows while it is being started again."""
        return time.monotonic() - self._beat

    async def run(self, started: Callable[[], None] = lambda: None) -> None:
        """For ever. `started` is called before each start but the first: what was missed must be listed."""
        logging.getLogger("kopf").setLevel(logging.WARNING)  # else a line per event, with all settings beside it
        pause = 1.0
        while True:
            begun = time.monotonic()
            error = await self._once()
            if time.monotonic() - begun > CALM:
                pause = 1.0
            self.restarts += 1
            wait = random.uniform(pause / 2, pause)
            log.warning("kopf ended", extra={"error": repr(error), "pause": round(wait, 1)})
            await asyncio.sleep(wait)
            pause = min(LONGEST, pause * 2)
            started()

    async def _once(self) -> BaseException | None:
        """One life of kopf; what it ended with. Cancelled, it stops kopf and waits for the thread."""
        ours = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = ours.create_future()
        stops: list[Callable[[], object]] = []
        ready = threading.Event()

        def hand_over(kind: str | None, item: Object) -> None:
            ours.call_soon_threadsafe(self._event, kind, item)

        async def life() -> None:
            # Of this loop. A threading.Event would be awaited in the default executor, which the end of the loop
            # joins for ever.
            stop = asyncio.Event()
            theirs = asyncio.get_running_loop()
            stops.append(lambda: theirs.call_soon_threadsafe(stop.set))
            ready.set()
            beating = asyncio.ensure_future(self._beats())
            try:
                await kopf.operator(
                    registry=registry(self._configure, hand_over),
                    settings=settings(),
                    clusterwide=not self._namespaces,
                    namespaces=self._namespaces,
                    # By default it is made of the user's name, which a numeric user has not. Only peering reads it.
                    identity="steelyard",  # type: ignore[arg-type]  # a NewType of str that kopf does not export
                    stop_flag=stop,
                )
            finally:
                beating.cancel()

        def thread() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(life())
            except BaseException as caught:  # noqa: BLE001 - whatever ends the thread is handed to the supervisor
                error = caught
            ready.set()
            if not ours.is_closed():
                ours.call_soon_threadsafe(ended.set_result, error)

        runner = threading.Thread(target=thread, name="kopf", daemon=True)
        runner.start()
        try:
            return await asyncio.shield(ended)
        finally:
            if not ended.done():
                ready.wait(STOP)  # at most the few milliseconds until its loop exists
                for stop in stops:
                    stop()
                await asyncio.wait([ended], timeout=STOP)

    async def _beats(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(BEAT)
