"""Laws of translation, over states with all that the API server lets through, in any order."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.balancing.priority import loads
from controller.children import ChildSettings, children
from controller.model.names import headless_name
from controller.model.service import BalancedService
from controller.model.snapshot import decode
from controller.translate import BackendHealth, Inputs, ProxyReport, Translated, gather, translate, translate_all
from controller.translate.shares import level_loads
from tests.strategies import api_objects, mutated_objects

NAMESPACES = ["store", "other"]
NAMES = ["shop", "mail", "api"]
BACKENDS = ["stable", "canary"]
PODS = [f"pod-{index}" for index in range(6)]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
ADDRESSES_6 = ["fd00::1", "fd00::2"]
# No deadline: other work on the machine is no fault of the code.
LIMITS = settings(max_examples=40, deadline=None)
SETTINGS = ChildSettings(image="proxy:1", control="https://operator")


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


port_numbers = st.sampled_from([80, 81, 8080])
port_names = st.sampled_from(["http", "web", "admin"])
flags = maybe(st.booleans())

sources = st.one_of(
    st.builds(
        lambda name, namespace: {"service": {"name": name} | ({"namespace": namespace} if namespace else {})},
        st.sampled_from(NAMES),
        maybe(st.sampled_from(NAMESPACES)),
    ),
    st.just({"selector": {"matchLabels": {"app": "shop"}}}),
    st.lists(st.sampled_from([*ADDRESSES, *ADDRESSES_6, "127.0.0.1"]), min_size=1, unique=True).map(
        lambda each: {"addresses": each}
    ),
    st.sampled_from(["far.example.com", "shop.store.svc", "mail"]).map(lambda each: {"hostname": each}),
)


@st.composite
def balanced_services(draw: st.DrawFn) -> dict[str, Any]:
    ports = [
        {"name": name, "port": number} | ({"targetPort": target} if target else {})
        for name, number, target in zip(
            draw(st.lists(port_names, min_size=1, max_size=2, unique=True)),
            draw(st.permutations([80, 81])),
            draw(st.tuples(maybe(port_numbers | port_names), maybe(port_numbers | port_names))),
            strict=False,
        )
    ]
    backends = [
        {"name": name, "weight": draw(st.integers(0, 3)), "priority": draw(st.integers(0, 2))} | draw(sources)
        for name in draw(st.lists(st.sampled_from(BACKENDS), min_size=1, unique=True))
    ]
    mode = draw(st.sampled_from(["Gateway", "Sidecar", "External"]))
    prefer = draw(st.sampled_from(["Service", "None", "Zone"]))
    return {
        "kind": "BalancedService",
        "metadata": {
            "name": draw(st.sampled_from(NAMES)),
            "namespace": draw(st.sampled_from(NAMESPACES)),
            "uid": "u",
            "generation": draw(st.integers(0, 2)),
        },
        "spec": {"ports": ports, "backends": backends, "proxy": {"mode": mode}, "locality": {"prefer": prefer}},
        "status": {
            "proxy": {
                "ports": draw(
                    st.lists(
                        st.fixed_dictionaries({"name": port_names, "listen": st.integers(19_999, 20_003)}), max_size=3
                    )
                )
            },
            "sidecar": {"address": draw(st.sampled_from(["", "127.64.0.1", "127.64.0.2"]))},
        },
    }


service_names = st.sampled_from([*NAMES, *(headless_name("shop", backend) for backend in BACKENDS)])


@st.composite
def services(draw: st.DrawFn) -> dict[str, Any]:
    ports = draw(
        maybe(
            st.lists(
                st.fixed_dictionaries(
                    {"port": port_numbers},
                    optional={
                        "name": maybe(port_names),
                        "targetPort": port_numbers | port_names,
                        "protocol": st.sampled_from(["TCP", "UDP"]),
                    },
                ),
                max_size=3,
            )
        )
    )
    external = draw(st.booleans())
    return {
        "kind": "Service",
        "metadata": {"name": draw(service_names), "namespace": draw(st.sampled_from(NAMESPACES))},
        "spec": {
            "type": "ExternalName" if external else "ClusterIP",
            "externalName": draw(st.sampled_from(["far.example.com", "shop.store.svc.cluster.local"])),
            "clusterIP": draw(st.sampled_from(["", "None", "10.0.0.1"])),
            "ipFamilies": draw(maybe(st.permutations(["IPv4", "IPv6"]))),
            "ports": ports,
        },
    }


@st.composite
def slices(draw: st.DrawFn) -> dict[str, Any]:
    family = draw(st.sampled_from(["IPv4", "IPv6", "FQDN"]))
    addresses = {"IPv4": ADDRESSES, "IPv6": ADDRESSES_6, "FQDN": ["far.example.com"]}[family]
    entries = st.fixed_dictionaries(
        {"addresses": st.lists(st.sampled_from(addresses), max_size=2)},
        optional={
            "conditions": maybe(
                st.fixed_dictionaries({}, optional={"ready": flags, "serving": flags, "terminating": flags})
            ),
            "targetRef": maybe(
                st.builds(
                    lambda kind, uid: {"kind": kind, "namespace": "store", "name": uid, "uid": uid},
                    st.sampled_from(["Pod", "Pod", "Node"]),
                    st.sampled_from(PODS),
                )
            ),
            "zone": maybe(st.sampled_from(["a", "b"])),
            "nodeName": maybe(st.sampled_from(["n", "m"])),
            "hints": maybe(st.just({"forZones": [{"name": "b"}, {"name": "a"}]})),
        },
    )
    return {
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"slice-{draw(st.integers(0, 9))}",
            "namespace": draw(st.sampled_from(NAMESPACES)),
            "labels": {"kubernetes.io/service-name": draw(service_names)},
        },
        "addressType": family,
        "ports": draw(
            maybe(
                st.lists(
                    st.fixed_dictionaries({"name": maybe(port_names), "port": maybe(port_numbers)}),
                    max_size=2,
                    unique_by=lambda port: port["name"],
                )
            )
        ),
        "endpoints": draw(maybe(st.lists(entries, max_size=4))),
    }


grants = st.builds(
    lambda namespace, names: {
        "kind": "ReferenceGrant",
        "metadata": {"name": "grant", "namespace": namespace},
        "spec": {
            "from": [{"group": "steelyard.dev", "kind": "BalancedService", "namespace": each} for each in NAMESPACES],
            "to": [{"group": "", "kind": "Service"} | ({"name": name} if name else {}) for name in names],
        },
    },
    st.sampled_from(NAMESPACES),
    st.lists(maybe(st.sampled_from(NAMES)), max_size=2),
)

reports = st.builds(
    ProxyReport,
    proxy=st.sampled_from(PODS),
    generation=st.integers(0, 2),
    error=st.sampled_from(["", "refused"]),
    age=st.sampled_from([0.0, 30.0, 31.0]),
    health=st.dictionaries(
        st.sampled_from([*BACKENDS, "removed"]),
        st.builds(BackendHealth, known=st.integers(0, 3), usable=st.integers(0, 3)),
    ),
)


def unlike(item: dict[str, Any]) -> tuple[str, str, str]:
    return item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]


items = st.tuples(
    st.lists(balanced_services(), min_size=1, max_size=3, unique_by=unlike),
    st.lists(services(), max_size=5, unique_by=unlike),
    st.lists(slices(), max_size=6, unique_by=unlike),
    st.lists(grants, max_size=2, unique_by=unlike),
).map(lambda parts: [item for part in parts for item in part])


@st.composite
def rest(draw: st.DrawFn) -> dict[str, Any]:
    keys = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
    return {
        "reports": draw(
            st.dictionaries(keys, st.lists(reports, max_size=3, unique_by=lambda each: each.proxy), max_size=2)
        ),
        "conflicts": draw(st.dictionaries(keys, st.just(["Service shop", "Deployment shop-lb"]), max_size=1)),
        "replicas": draw(st.dictionaries(keys, st.integers(0, 3), max_size=2)),
        "watched": draw(maybe(st.just(frozenset({"store"})))),
        "standalone": draw(st.sampled_from([False, False, True])),
    }


def state(found: list[dict[str, Any]], others: dict[str, Any]) -> Inputs:
    return msgspec.structs.replace(gather(found), **others)


def results(inputs: Inputs) -> list[tuple[tuple[str, str], Translated, bytes]]:
    return [
        (key, result, result.snapshot.encode() if result.snapshot else b"")
        for key, result in translate_all(inputs).items()
    ]


@LIMITS
@given(items, rest(), st.randoms(use_true_random=False))
def test_the_order_of_inputs_is_ignored(
    found: list[dict[str, Any]], others: dict[str, Any], order: random.Random
) -> None:
    shuffled = [dict(item) for item in found]
    order.shuffle(shuffled)
    for item in shuffled:
        for field in ("ports", "endpoints"):
            if item.get(field):
                item[field] = order.sample(item[field], len(item[field]))
    turned = dict(others, reports={key: list(reversed(each)) for key, each in others["reports"].items()})

    assert results(state(found, others)) == results(state(shuffled, turned))


@LIMITS
@given(items, rest())
def test_a_snapshot_survives_the_wire_and_equal_inputs_give_equal_bytes(
    found: list[dict[str, Any]], others: dict[str, Any]
) -> None:
    once, again = results(state(found, others)), results(state(found, others))

    assert once == again
    for _, result, encoded in once:
        if result.snapshot is not None:
            assert decode(encoded) == result.snapshot
            assert decode(encoded).encode() == encoded
            assert decode(encoded).version == result.status.proxy.version  # type: ignore[union-attr] # set with a snapshot


@LIMITS
@given(items, rest())
def test_what_is_served_and_told_keeps_its_promises(found: list[dict[str, Any]], others: dict[str, Any]) -> None:
    inputs = state(found, others)
    for key, result in translate_all(inputs).items():
        status = result.status
        assert [fact.type for fact in status.facts] == ["Accepted", "ResolvedRefs", "Programmed", "Ready"]
        assert (status.facts[0].reason in ("Invalid", "Unsupported")) == (result.snapshot is None)
        msgspec.json.encode(status.as_dict())
        if result.snapshot is None:
            continue
        service = inputs.objects[key]
        assert isinstance(service, BalancedService)
        whole = sum(float(row.share.rstrip("%")) for row in status.backends)
        assert whole == 0 or abs(whole - 100) <= 0.1 * len(status.backends)
        listens = [port.listen for port in result.snapshot.ports]
        assert len(set(listens)) == len(listens)
        assert set(result.admitted) <= {port.name for port in service.ports}
        assert result.admitted
        for port in result.snapshot.ports:
            for backend in port.backends:
                ids = [endpoint.id for endpoint in backend.endpoints]
                assert ids == sorted(set(ids))


@LIMITS
@given(items, rest())
def test_an_object_is_translated_the_same_without_the_others(
    found: list[dict[str, Any]], others: dict[str, Any]
) -> None:
    inputs = state(found, others)
    for key, result in translate_all(inputs).items():
        alone = msgspec.structs.replace(inputs, objects={key: inputs.objects[key]}, given={key: inputs.given[key]})
        assert translate(alone, key) == result


@LIMITS
@given(items, rest())
def test_children_are_made_of_whatever_is_accepted(found: list[dict[str, Any]], others: dict[str, Any]) -> None:
    inputs = state(found, others)
    for key, result in translate_all(inputs).items():
        service = inputs.objects[key]
        if result.snapshot is None or not isinstance(service, BalancedService):
            continue
        made = children(service, result.snapshot, result.admitted, SETTINGS)
        names = [(child["kind"], child["metadata"]["name"]) for child in made]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 63 for _, name in names)


@LIMITS
@given(st.lists(api_objects() | mutated_objects(), max_size=3), services() | st.just({}), st.booleans())
def test_nothing_that_an_author_may_write_raises(
    found: list[dict[str, Any]], service: dict[str, Any], standalone: bool
) -> None:
    inputs = gather([*found, service], standalone=standalone)
    for key, result in translate_all(inputs).items():
        one = inputs.objects[key]
        assert result.snapshot is None or decode(result.snapshot.encode()) == result.snapshot
        if result.snapshot is not None and isinstance(one, BalancedService):
            children(one, result.snapshot, result.admitted, SETTINGS)


@LIMITS
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))),
    st.integers(0, 100),
)
def test_the_status_shares_levels_as_the_proxies_do(levels: list[tuple[int, int]], panic_percent: int) -> None:
    """The rule stands twice, since status and choices know nothing of each other: here they are held together."""
    percents, panics = level_loads(levels, panic_percent)

    assert [(load.percent, load.panic) for load in loads(levels, panic_percent)] == list(
        zip(percents, panics, strict=True)
    )


@LIMITS
@given(items)
def test_listen_numbers_and_addresses_stay_once_given(found: list[dict[str, Any]]) -> None:
    """What the status says, written back, gives the same again: no number moves by itself."""
    inputs = state(found, {})
    first = translate_all(inputs)
    written = []
    for item in found:
        if item["kind"] == "BalancedService":
            status = first[item["metadata"]["namespace"], item["metadata"]["name"]].status
            item = dict(item, status=status.as_dict())
        written.append(item)

    second = translate_all(state(written, {}))

    for key, result in first.items():
        again = second[key].status
        assert again.proxy is not None
        assert result.status.proxy is not None
        assert again.proxy.ports == result.status.proxy.ports
        if result.snapshot is not None:
            assert again.sidecar == result.status.sidecar
            assert second[key].snapshot == result.snapshot
