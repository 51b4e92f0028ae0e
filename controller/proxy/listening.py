"""The listening sockets of several workers: the parent makes and keeps them, one per worker and address."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Iterator, Sequence

from controller.proxy.hosting import Address, PortInUse, bind, explain


class Listeners:
    """They share an address by SO_REUSEPORT, so the kernel spreads connections over the workers.

    A worker gets a copy. While the parent keeps its own, what waits in an accept queue outlives the worker. Where no
    worker comes for a while, `rest` leaves the connections to the others.
    """

    def __init__(self, workers: int, backlog: int) -> None:
        self._workers = workers
        self._backlog = backlog
        self._made: dict[Address, list[socket.socket]] = {}
        self._resting: set[int] = set()  # workers
        self.stopped = False

    def __contains__(self, address: object) -> bool:
        return address in self._made

    def __bool__(self) -> bool:
        return bool(self._made)

    def __iter__(self) -> Iterator[Address]:
        return iter(self._made)

    def listen(self, addresses: Iterable[Address]) -> Collection[Address]:
        """Take those that are new, and return them. Raises PortInUse, and then takes none of them."""
        made: dict[Address, list[socket.socket]] = {}
        for address in addresses:
            if self.stopped or address in self._made or address in made:
                continue
            sockets = made[address] = []
            try:
                # SO_REUSEPORT would let a second instance in unseen: so the address is taken alone before.
                with bind(address) as alone:
                    port = alone.getsockname()[1]
                for worker in range(self._workers):
                    sockets.append(bind((address[0], port), shared=True))
                    if worker not in self._resting:
                        sockets[-1].listen(self._backlog)
            except OSError as error:
                for sock in (sock for each in made.values() for sock in each):
                    sock.close()
                raise PortInUse(explain(address, error)) from error
        self._made |= made
        return made.keys()

    def of(self, worker: int, addresses: Iterable[Address]) -> Sequence[socket.socket]:
        return [self._made[address][worker] for address in addresses]

    def rest(self, worker: int) -> None:
        """No connection comes here until `resume`; what waits is reset. The addresses stay taken."""
        if worker not in self._resting:
            self._resting.add(worker)
            for sockets in self._made.values():
                sockets[worker].shutdown(socket.SHUT_RD)  # on Linux a listener stops, and may listen again

    def resume(self, worker: int) -> None:
        """Raises OSError."""
        if worker in self._resting:
            for sockets in self._made.values():
                sockets[worker].listen(self._backlog)
            self._resting.discard(worker)

    def close(self, addresses: Iterable[Address]) -> None:
        for address in tuple(addresses):
            for sock in self._made.pop(address, ()):
                sock.close()

    def stop(self) -> None:
        """For good: none is taken any more."""
        self.stopped = True
        self.close(self._made)
