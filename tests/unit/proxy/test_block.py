"""The counters that workers share, under random work, crashes and changes of membership."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.balancing.node import Kind
from controller.model.endpoints import Endpoint
from controller.proxy.block import Block, Slots
from controller.proxy.sharing import Carrying, Deciding, SharedNode

WORKERS, SLOTS = 3, 4
workers = st.integers(0, WORKERS - 1)
identities = st.sampled_from("abcdef")


def block(count: int = WORKERS, slots: int = SLOTS) -> Block:
    return Block(memoryview(bytearray(Block.size(count, slots))), count, slots)


class Pod(RuleBasedStateMachine):
    """Three workers and their parent, with a naive model beside them: a list of open attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.block = block()
        self.slots = Slots(self.block)
        self.change = 0
        self.listed: dict[str, int] = {}
        self.open: list[tuple[int, int]] = []  # worker, slot
        self.seen = [(0, 0)] * SLOTS
        self.counted: Counter[int] = Counter()  # answers per slot

    @rule(wanted=st.sets(identities, max_size=SLOTS))
    def change_members(self, wanted: set[str]) -> None:
        self.change += 1
        before = self.listed
        self.listed = {}
        self.slots.retire("u", wanted, self.change)
        for identity in sorted(wanted):
            slot = self.slots.take("u", identity)
            if slot is not None:
                assert before.get(identity, slot) == slot
                self.listed[identity] = slot
        assert len(set(self.listed.values())) == len(self.listed)
        assert self.slots.of("u") == self.listed

    @rule()
    def settle(self) -> None:
        self.slots.settle(self.change)

    @precondition(lambda self: self.listed)
    @rule(data=st.data(), worker=workers)
    def start(self, data: st.DataObject, worker: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.listed.values())))
        self.open.append((worker, slot))
        self.block.inflight[worker][slot] += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data(), ok=st.booleans())
    def finish(self, data: st.DataObject, ok: bool) -> None:
        worker, slot = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.block.inflight[worker][slot] -= 1
        self.block.ok[worker][slot] += ok
        self.block.total[worker][slot] += 1
        self.counted[slot] += 1

    @rule(worker=workers)
    def crash(self, worker: int) -> None:
        self.block.bury(worker)
        self.open = [(each, slot) for each, slot in self.open if each != worker]

    @invariant()
    def sums_are_the_open_attempts(self) -> None:
        want = Counter(slot for _, slot in self.open)
        assert [self.block.in_flight(slot) for slot in range(SLOTS)] == [want[slot] for slot in range(SLOTS)]

    @invariant()
    def answers_never_fall_and_none_is_lost(self) -> None:
        now = [self.block.answers(slot) for slot in range(SLOTS)]
        assert all(new[0] >= old[0] and new[1] >= old[1] for new, old in zip(now, self.seen, strict=True))
        assert [total for _, total in now] == [self.counted[slot] for slot in range(SLOTS)]
        self.seen = now

    def teardown(self) -> None:
        for worker in range(WORKERS):
            self.block.bury(worker)
        assert [self.block.in_flight(slot) for slot in range(SLOTS)] == [0] * SLOTS


Pod.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPod = Pod.TestCase


def test_a_slot_goes_to_another_only_when_nothing_is_in_flight_and_all_have_heard() -> None:
    shared = block(2, 1)
    slots = Slots(shared)
    assert slots.take("u", "a") == 0
    shared.inflight[1][0] = 1

    slots.retire("u", (), change=7)
    slots.settle(heard=7)
    assert slots.take("u", "b") is None  # in flight

    shared.inflight[1][0] = 0
    slots.settle(heard=6)
    assert slots.take("u", "b") is None  # a worker may still start there

    slots.settle(heard=7)
    assert slots.take("u", "b") == 0


def test_an_endpoint_that_returns_in_time_finds_its_slot() -> None:
    slots = Slots(block(2, 2))
    slots.take("u", "a")
    slots.take("u", "b")

    slots.retire("u", ("b",), change=1)

    assert slots.take("u", "a") == 0


class Watched:
    """A row that looks at the column's sum behind each store."""

    def __init__(self, shared: Block, cells: memoryview, sums: list[int]) -> None:
        self.shared, self.cells, self.sums = shared, cells, sums

    def tolist(self) -> list[int]:
        return self.cells.tolist()

    def __getitem__(self, slot: int) -> int:
        return int(self.cells[slot])

    def __setitem__(self, slot: int, count: int) -> None:
        self.cells[slot] = count
        self.sums.append(self.shared.answers(0)[0])


def test_no_reader_sees_a_counter_fall_while_a_worker_is_buried() -> None:
    shared, sums = block(2, 1), [5]
    shared.ok[0][0] = 5
    shared.ok = [Watched(shared, cells, sums) for cells in shared.ok]  # type: ignore[misc]  # as much as is read

    shared.bury(0)

    assert min(sums) >= 5
    assert sums[-1] == 5


def nodes(shared: Block) -> list[SharedNode]:
    endpoint = Endpoint(id="a", address="10.0.0.1", port=80)
    return [SharedNode(endpoint, 0.0, shared, worker, 0) for worker in range(shared.workers)]


def test_a_load_is_the_pods_and_others_is_what_the_rest_carries() -> None:
    one, two, _ = nodes(block())
    one.start(0.0)
    two.start(0.0)
    two.start(0.0)

    assert (one.load(), two.load(), one.others) == (3, 3, 0)
    one.refresh()
    assert (one.inflight, one.others) == (1, 2)
    for node in (one, two, two):
        node.finish(1.0, Kind.OK)
    assert one.load() == 0


class Gate:
    def __init__(self) -> None:
        self.told: list[str] = []

    def filled(self, node: object) -> None:
        self.told.append("filled")

    def freed(self, node: object) -> None:
        self.told.append("freed")


def test_a_limit_is_the_pods_and_each_change_is_told_once() -> None:
    one, two, _ = nodes(block())
    gate = Gate()
    one.gate = gate  # type: ignore[assignment]  # told of nodes, whichever
    one.limit = two.limit = 2

    two.start(0.0)
    one.start(0.0)
    assert (one.full, gate.told) == (True, ["filled"])
    assert one.crowded()
    two.finish(1.0, Kind.OK)
    assert (one.crowded(), one.full) == (False, False)

    assert gate.told == ["filled", "freed"]


def test_a_good_answer_of_any_worker_ends_a_row_of_failures() -> None:
    shared = block()
    slots = Slots(shared)
    deciding = Deciding(shared, slots)
    node = deciding.node("u", Endpoint(id="a", address="10.0.0.1", port=80), 0.0)
    told: list[tuple[str, int]] = []
    carrying = [
        Carrying(shared, worker, lambda upstream, identity, now, kind, seconds, good: told.append((kind.value, good)))
        for worker in range(2)
    ]
    here, there = [], []
    for each, kept in zip(carrying, (here, there), strict=True):
        each.assign("u", slots.of("u"))
        kept.append(each.node("u", node.endpoint, 0.0))
        kept[0].observers = (each.observer("u"),)

    here[0].answered(0.0, Kind.RESET, 0.1)
    deciding.hear(node, 0, told[-1][1])
    node.consecutive = 4
    there[0].answered(0.0, Kind.OK, 0.1)
    here[0].answered(0.0, Kind.RESET, 0.1)
    deciding.hear(node, 0, told[-1][1])

    assert node.consecutive == 0
    assert [kind for kind, _ in told] == ["reset", "reset"]
    assert deciding.answers(node) == (1, 3)
    assert deciding.answers(node) == (0, 0)


def test_an_endpoint_without_a_slot_is_counted_by_each_worker_alone() -> None:
    shared = block(2, 1)
    slots = Slots(shared)
    deciding = Deciding(shared, slots)
    first, second = (
        deciding.node("u", Endpoint(id=name, address="10.0.0.1", port=80), 0.0) for name in ("first", "second")
    )

    assert isinstance(first, SharedNode)
    assert not isinstance(second, SharedNode)
    assert deciding.answers(second) is None
