"""The operator's certificate, over real TLS: its own, and one from a Secret that someone else keeps."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from controller.certified import Certified, Told
from controller.discovery.given import ANNOUNCED
from controller.kube.api import Api
from controller.settings import OperatorSettings
from tests.authority import HOST, Authority
from tests.component.fake_api import FakeApi, refusal, reply, serving

SECRETS = "/api/v1/namespaces/steelyard-system/secrets"
OWN, GIVEN = f"{SECRETS}/steelyard-controller", f"{SECRETS}/given"
NAMES = [HOST, f"{HOST}.cluster.local"]
MISSING = refusal(404, "NotFound")


def secret(data: dict[str, bytes]) -> dict[str, Any]:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {"metadata": {"resourceVersion": "1"}, "data": encoded}


class Cluster:
    """A fake API server that keeps our own Secret, and the operator's certificate before it."""

    def __init__(self, *, leading: bool = True, **settings: Any) -> None:
        self.fake = FakeApi()
        self.now = datetime.now(UTC)
        self.leading = leading
        self.changes = 0
        self.warnings: list[tuple[str, str]] = []
        self.settings = OperatorSettings(proxy_image="proxy:1", **settings)
        self.own: dict[str, bytes] = {}
        self.fake.on("LIST", OWN, MISSING)
        for verb, path in (("POST", SECRETS), ("PUT", OWN)):
            self.fake.on(verb, path, self._keep)

    async def _keep(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.own = {name: base64.b64decode(value) for name, value in body["data"].items()}
        self.fake.again("LIST", OWN, reply(secret(self.own)))
        return web.json_response(secret(self.own))

    def give(self, data: dict[str, bytes] | None) -> None:
        self.fake.again("LIST", GIVEN, MISSING if data is None else reply(secret(data)))

    def certified(self, api: Api) -> Certified:
        def changed() -> None:
            self.changes += 1

        told = Told(
            now=lambda: self.now,
            leading=lambda: self.leading,
            changed=changed,
            warn=lambda reason, note: self.warnings.append((reason, note)),
        )
        return Certified(self.settings, api, None, NAMES, told)


@contextlib.asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A server that echoes lines; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def connect(port: int, bundle: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As a proxy does: who trusts `bundle` alone connects to HOST."""
    context = ssl.create_default_context(cadata=bundle.decode())
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)


async def seen(port: int, bundle: bytes) -> str:
    """The certificate of a new connection, PEM."""
    _, writer = await connect(port, bundle)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found)


def certificate(data: dict[str, bytes]) -> str:
    return data["tls.crt"].decode()


async def test_by_default_it_makes_an_authority_and_shows_its_certificate() -> None:
    cluster = Cluster()
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)

        assert await own.look()

        async with listening(own.discovery) as port:
            assert await seen(port, own.trusted) == certificate(cluster.own)
    assert cluster.changes == 1
    assert own.retold.is_set()
    assert own.ends == pytest.approx((cluster.now + timedelta(days=90)).timestamp(), abs=1)
    assert len(own.keys("uid")) == 1


async def test_a_renewed_secret_is_shown_to_new_connections_without_a_restart() -> None:
    cluster, authority = Cluster(tls_secret="given"), Authority()
    first, second = authority.secret(), authority.secret()
    cluster.give(first)
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        await own.first()
        async with listening(own.discovery) as port:
            assert await seen(port, authority.bundle) == certificate(first)
            reader, writer = await connect(port, authority.bundle)

            cluster.give(second)
            assert await own.look()

            assert await seen(port, authority.bundle) == certificate(second)
            writer.write(b"still here\n")
            assert await reader.readline() == b"still here\n"
            writer.close()
    assert own.trusted == authority.bundle
    assert cluster.own.keys() == {"session-key"}, "no authority of our own is made"
    assert cluster.changes == 1, "the bundle is the same"


@pytest.mark.parametrize("bad", [None, {"tls.crt": b"x"}, Authority().secret("shop.store.svc")])
async def test_a_bad_or_missing_one_is_told_once_and_the_last_good_one_serves_on(
    bad: dict[str, bytes] | None, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, authority = Cluster(tls_secret="given"), Authority()
    good, better = authority.secret(), authority.secret()
    cluster.give(good)
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        await own.first()
        cluster.give(bad)
        for _ in range(3):
            assert await own.look()

        async with listening(own.discovery) as port:
            assert await seen(port, authority.bundle) == certificate(good)
            ((reason, note),) = cluster.warnings
            assert reason == "CertificateRefused"
            assert note.startswith("Secret given: ")
            assert note.endswith("; the last good certificate serves on")
            assert [each.msg for each in caplog.records if each.levelno == logging.ERROR] == [
                "the given certificate is refused"
            ]

            cluster.give(better)
            await own.look()
            assert await seen(port, authority.bundle) == certificate(better)


async def test_until_there_is_a_first_one_nothing_is_served_and_the_reason_is_told() -> None:
    cluster, authority = Cluster(tls_secret="given"), Authority()
    cluster.give(None)
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        assert not await own.look()
        assert own.trusted == b""
        assert own.ends == 0.0
        assert cluster.warnings == [
            ("CertificateRefused", "Secret given: there is no such Secret; nothing can be served")
        ]

        cluster.give(authority.secret())

        assert await own.look()
        assert own.trusted == authority.bundle


async def test_a_follower_tells_nobody_before_it_leads() -> None:
    cluster = Cluster(tls_secret="given", leading=False)
    cluster.give(None)
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        await own.look()
        assert cluster.warnings == []

        cluster.leading = True
        await own.look()
        await own.look()

    assert len(cluster.warnings) == 1


async def test_an_api_server_that_is_away_changes_nothing() -> None:
    cluster, authority = Cluster(tls_secret="given"), Authority()
    cluster.give(authority.secret())
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        await own.first()
        cluster.fake.again("LIST", GIVEN, refusal(500))

        assert await own.look()

    assert own.trusted == authority.bundle
    assert cluster.warnings == []


@pytest.mark.parametrize("ours", [True, False])
async def test_another_authority_is_told_before_its_certificate_is_shown(ours: bool) -> None:
    """To the API server at once where others tell it whom to trust: cert-manager, or the chart's own value."""
    cluster = Cluster(tls_secret="given", webhook_configuration="steelyard" if ours else "")
    old, new = Authority("old"), Authority("new")
    first, second = old.secret(), new.secret()
    cluster.give(first)
    async with serving(cluster.fake) as api:
        own = cluster.certified(api)
        await own.first()
        own.retold.clear()
        cluster.give(second)

        await own.look()

        assert own.retold.is_set()
        assert own.trusted == new.bundle + old.bundle
        assert cluster.changes == 2
        async with listening(own.discovery) as proxies, listening(own.webhook) as webhook:
            assert await seen(proxies, old.bundle) == certificate(first)
            assert await seen(webhook, own.trusted) == certificate(first if ours else second)
            cluster.now += ANNOUNCED
            await own.look()
            assert await seen(proxies, new.bundle) == certificate(second)
            assert await seen(webhook, new.bundle) == certificate(second)
            assert own.trusted == new.bundle + old.bundle
            cluster.now += ANNOUNCED
            await own.look()
            assert own.trusted == new.bundle


async def test_an_authority_of_its_own_is_trusted_until_a_given_one_has_taken_its_place() -> None:
    cluster = Cluster()
    authority = Authority()
    async with serving(cluster.fake) as api:
        before = cluster.certified(api)
        await before.first()
        cluster.settings = OperatorSettings(proxy_image="proxy:1", tls_secret="given")
        cluster.give(None)
        own = cluster.certified(api)

        assert await own.look(), "what it had serves on"
        assert cluster.warnings[0][1].endswith("; the last good certificate serves on")
        cluster.give(authority.secret())
        await own.look()
        async with listening(own.discovery) as port:
            assert await seen(port, before.trusted) == certificate(cluster.own)
        assert own.trusted == authority.bundle + before.trusted

        cluster.now += 2 * ANNOUNCED
        await own.look()
        await own.look()

    assert own.trusted == authority.bundle
    assert cluster.own.keys() == {"session-key"}
    assert own.keys("uid") == before.keys("uid"), "cookies stay good"
