"""The API client: raw JSON over the transport, configuration and authentication of `kubernetes.aio`.

`Api` sends one request and gives back the answer's dictionary, or raises `ApiError` for any status from 400 on;
connection errors of aiohttp and `TimeoutError` pass as they are. Nothing here repeats a request.

A new client replaces the old one when a certificate is refused (a rotated CA: the SSL context is made once per
client), and daily; streams of the old one break off and are resumed by whoever reads them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException as ConfigException  # what `load` raises

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]

UNARY = aiohttp.ClientTimeout(total=30, sock_connect=5)
APPLY = "application/apply-patch+yaml"  # JSON is YAML
TOKEN_AGE = 60.0  # seconds after which a kubeconfig's token file or exec plug-in is asked again
CLIENT_AGE = 86_400.0  # seconds; certificates are read when a client is made
RENEWAL = 10.0  # seconds between clients at least, or an unreachable server would mean one per request

log = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer of the API server with a status from 400 on. `repr` and `str` hold no secrets."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason  # as in `metav1.Status.reason`: NotFound, Conflict, AlreadyExists, Expired, …
        self.message = message
        self.retry_after = retry_after  # seconds
        self.terminating = False  # the namespace is being deleted, or just was: nothing can be made in it

    @classmethod
    async def read(cls, answer: aiohttp.ClientResponse) -> ApiError:
        """From an answer whose body is a `Status`, or (a proxy in between) anything else."""
        try:
            status = msgspec.json.decode(await answer.read())
        except msgspec.DecodeError:
            status = None
        after = answer.headers.get("Retry-After", "")
        return cls.of(
            status if isinstance(status, dict) else {"reason": answer.reason},
            answer.status,
            float(after) if after.isdecimal() else None,
        )

    @classmethod
    def of(cls, status: Object, code: int | None = None, retry_after: float | None = None) -> ApiError:
        """From a `Status` object, such as a watch carries in an ERROR event."""
        details = status.get("details") or {}
        if retry_after is None and details.get("retryAfterSeconds"):
            retry_after = float(details["retryAfterSeconds"])
        error = cls(
            code or status.get("code") or 500,
            status.get("reason") or "",
            (status.get("message") or "")[:2000],
            retry_after,
        )
        causes = details.get("causes") or ()
        ending = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
        error.terminating = ending or (error.status == 404 and details.get("kind") == "namespaces")
        return error


async def load(kubeconfig: str | None = None) -> Configuration:
    """The configuration of the pod we run in, else of `kubeconfig` (default: $KUBECONFIG, ~/.kube/config).

    Raises ConfigException if there is none, or it can't be read.
    """
    found = Configuration()
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]  # generated code
    else:
        try:
            loader = await config.load_kube_config(  # type: ignore[no-untyped-call]  # generated code
                config_file=kubeconfig or os.environ.get("KUBECONFIG") or None,
                client_configuration=found,
                persist_config=False,
            )
        except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            # The library looks at no shape before it reads on.
            raise ConfigException(f"the kubeconfig can't be used: {error}") from error
        found.refresh_api_key_hook = _reloading(loader)  # type: ignore[assignment]  # inferred from its default, None
    found.retries = None  # the library's own skip PATCH and POST, and know no token bucket
    found.connection_pool_maxsize = 0  # each watch holds a connection, so a limit would be a deadlock
    return found


def _reloading(loader: Any) -> Callable[[Configuration], Awaitable[None]]:
    read = time.monotonic()

    async def reload(configuration: Configuration) -> None:
        nonlocal read
        if time.monotonic() - read >= TOKEN_AGE:
            read = time.monotonic()
            await loader.load_and_set(configuration)

    return reload


class Api:
    """One per process. `configure` makes the configuration anew for each client."""

    def __init__(self, configure: Callable[[], Awaitable[Configuration]], agent: str) -> None:
        self._configure = configure
        self._agent = agent
        self._client: ApiClient | None = None
        self._made = 0.0

    def __repr__(self) -> str:
        host = self._client.configuration.host if self._client else "not connected"
        return f"<Api {host}>"

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]  # generated code

    async def json(self, method: str, path: str, **request: Any) -> Object:
        """The decoded answer; for the arguments see `open`."""
        async with self.open(method, path, **request) as answer:
            decoded: Object = msgspec.json.decode(await answer.read())
            return decoded

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, object] | Sequence[object] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: aiohttp.ClientTimeout = UNARY,  # noqa: ASYNC109 - aiohttp's own, per connect, read and whole
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer, its body unread. Raises `ApiError`, `aiohttp.ClientError`, `TimeoutError`."""
        client = await self._current()
        headers = {"Accept": accept, "Content-Type": content_type}
        call = await client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        verb, url, sent, payload, form = call
        try:
            answer = (
                await client.call_api(verb, url, sent, payload, form, _request_timeout=timeout, _preload_content=False)
            ).response
        except aiohttp.ClientSSLError:
            await self._renew(client)
            raise
        try:
            if answer.status >= 400:  # nothing below checks it
                raise await ApiError.read(answer)
            yield answer
        finally:
            # A body left unread is no error of the connection, but it can't be used again.
            answer.release() if answer.content.at_eof() else answer.close()

    async def _current(self) -> ApiClient:
        if self._client is not None and time.monotonic() - self._made > CLIENT_AGE:
            await self._renew(self._client)
        if self._client is None:
            configuration = await self._configure()
            if self._client is None:  # another task may have been first while this one waited
                self._client = ApiClient(configuration)
                self._client.user_agent = self._agent
                self._made = time.monotonic()
        return self._client

    async def _renew(self, client: ApiClient) -> None:
        if self._client is client and time.monotonic() - self._made > RENEWAL:
            log.info("new API client, certificates are read again")
            await self.close()
