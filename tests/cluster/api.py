"""A Kubernetes cluster as tests see it, be it this run's own or another one."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config
from urllib3 import BaseHTTPResponse, Timeout

from tests.cluster.local.cluster import LocalCluster

Object = dict[str, Any]
CONNECT = 10.0  # seconds


class ApiError(Exception):
    """The API server's refusal, with its `Status` object's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class CommandError(Exception):
    """A program that ended with an error: the message is its output."""


@dataclass(frozen=True)
class Images:
    """The project's, as a pod's `image` names them: registry/name:tag."""

    controller: str
    proxy: str


def condition(of: Object, kind: str) -> str:
    """The status of one of an object's conditions: True, False, Unknown, or "" while it is not there."""
    found = of.get("status", {}).get("conditions") or []
    return next((c["status"] for c in found if c["type"] == kind), "")


class Cluster:
    """Commands, the API, watches. `local` is the harness's own cluster, None for another one."""

    def __init__(self, kubeconfig: Path, local: LocalCluster | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.local = local
        configuration = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]  # no annotations there
        self._client = ApiClient(configuration)
        self._host = configuration.host
        environment = local.environment if local else dict(os.environ)
        # kubectl would keep for hours what it has once seen of the API, so that a new CRD were unknown to it.
        self._environment = environment | {"KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": "/dev/null"}

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    # -- programs ------------------------------------------------------------------------------------------------------

    def command(self, program: str, *argv: str) -> tuple[list[str], dict[str, str]]:
        """Command line and environment, for a test that starts it by itself."""
        return [self.local.program(program) if self.local else program, *argv], self._environment

    def run(self, program: str, *argv: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl or helm; returns its output. Raises CommandError with all it said."""
        command, environment = self.command(program, *argv)
        done = subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise CommandError(f"{program} {' '.join(argv)}\n{done.stdout}{done.stderr}".rstrip())
        return done.stdout

    def kubectl(self, *argv: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        return self.run("kubectl", *argv, stdin=stdin, timeout=timeout)

    def helm(self, *argv: str, timeout: float = 120.0) -> str:
        return self.run("helm", *argv, timeout=timeout)

    def apply(self, *objects: Object, options: tuple[str, ...] = ()) -> str:
        """`kubectl apply` with strict validation."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.kubectl("apply", "--validate=strict", *options, "-f", "-", stdin=content)

    def inside(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a command in the hub of the harness's own network: `ip link set hub-n2 down` cuts node 2 off."""
        if self.local is None:
            raise CommandError("only in the harness's own cluster")
        command = self.local.enter(*argv)
        done = subprocess.run(
            command, env=self.local.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise CommandError(f"{' '.join(argv)}\n{done.stdout}{done.stderr}".rstrip())
        return done.stdout

    # -- the API -------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Any:
        """One request; returns the decoded answer. Raises ApiError. `kind` is the body's content type."""
        response = self._open(method, path, body, kind, read=30.0)
        data = json.loads(response.read())
        if response.status >= 400:
            raise ApiError(response.status, data.get("message", ""))
        return data

    def get(self, path: str) -> Object | None:
        """The object at this path; None if there is none."""
        try:
            found: Object = self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def watch(self, path: str, seconds: float, **query: str) -> Generator[Object, None, None]:
        """Watch events ({type, object}) of a collection, as they come, for at most this long.

        Without `resourceVersion` the objects that exist come first, as ADDED.
        """
        words = urlencode({"watch": "true", "timeoutSeconds": str(max(1, int(seconds))), **query})
        response = self._open("GET", f"{path}?{words}", None, "application/json", read=seconds + CONNECT)
        try:
            if response.status >= 400:
                raise ApiError(response.status, json.loads(response.read()).get("message", ""))
            rest = b""
            for data in response.stream(65536):
                *lines, rest = (rest + data).split(b"\n")
                yield from map(json.loads, lines)
        finally:
            response.close()

    def wait(self, path: str, until: Callable[[Object], Any], seconds: float = 60.0) -> Object:
        """The object at this path as soon as `until` holds of it; without an object, `until({})` is asked.

        Watches, so nothing is missed or polled. Raises TimeoutError with the object's last state.
        """
        collection, _, name = path.rpartition("/")
        end = time.monotonic() + seconds
        last: Object = {}
        while (left := end - time.monotonic()) > 0:
            field = f"metadata.name={name}"
            listed = self.call("GET", f"{collection}?{urlencode({'fieldSelector': field})}")
            last = next(iter(listed["items"]), {})
            if until(last):
                return last
            version = listed["metadata"]["resourceVersion"]
            for event in self.watch(collection, left, fieldSelector=field, resourceVersion=version):
                if event["type"] == "ERROR":
                    break
                last = {} if event["type"] == "DELETED" else event["object"]
                if until(last):
                    return last
                if time.monotonic() > end:
                    break
        shown = json.dumps(last.get("status", last), indent=1)
        raise TimeoutError(f"{path}: not so after {seconds:.0f} s; last seen: {shown}")

    def _open(self, method: str, path: str, body: Object | None, kind: str, read: float) -> BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": kind}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        response: BaseHTTPResponse = self._client.rest_client.pool_manager.request(
            method,
            self._host + path,
            headers=headers,
            body=None if body is None else json.dumps(body),
            timeout=Timeout(connect=CONNECT, read=read),
            preload_content=False,
        )
        return response
