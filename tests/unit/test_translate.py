"""What the golden pairs don't show: versions, odd statuses, bounds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.model.endpoints import ServiceRecord, Slice, SliceEndpoint, SlicePort
from controller.model.names import LONGEST, fitted, headless_name, proxy_name, short_hash
from controller.model.service import Backend, BalancedService, Fault, Invalid, Port, Proxy
from controller.translate import BackendHealth, Given, Inputs, ProxyReport, gather, given, translate, translate_all
from controller.translate.allotting import RETIRED_KEPT, listen_numbers, loopback_address
from controller.translate.inputs import LISTEN
from controller.translate.joining import join
from controller.translate.shares import Standing, level_loads, shares
from controller.translate.status import LONGEST as LONGEST_MESSAGE
from controller.translate.status import told

KEY = ("store", "shop")
SHOP = BalancedService(
    namespace="store",
    name="shop",
    generation=1,
    ports=(Port(port=80),),
    backends=(Backend(name="stable", addresses=("192.0.2.1",)),),
    proxy=Proxy(mode="External"),
)


def facts(inputs: Inputs) -> dict[str, tuple[str, str]]:
    return {fact.type: (fact.status, fact.reason) for fact in translate(inputs, KEY).status.facts}


def test_an_acknowledgement_by_version_alone_will_do() -> None:
    alone = Inputs(objects={KEY: SHOP})
    snapshot = translate(alone, KEY).snapshot
    assert snapshot is not None

    inputs = replace(alone, reports={KEY: [ProxyReport(proxy="p-1", version=snapshot.version)]})

    assert facts(inputs)["Programmed"] == ("True", "Programmed")


def test_an_acknowledgement_of_unknown_generation_and_other_version_does_not_count() -> None:
    shop = replace(SHOP, generation=0)

    inputs = Inputs(objects={KEY: shop}, reports={KEY: [ProxyReport(proxy="p-1", version="sha256:other")]})

    assert facts(inputs)["Programmed"] == ("False", "Pending")


def test_an_endpoint_that_comes_or_goes_makes_another_version_of_the_same_generation() -> None:
    more = replace(SHOP, backends=(Backend(name="stable", addresses=("192.0.2.1", "192.0.2.2")),))

    before = translate(Inputs(objects={KEY: SHOP}), KEY).snapshot
    after = translate(Inputs(objects={KEY: more}), KEY).snapshot

    assert before is not None
    assert after is not None
    assert before.version != after.version
    assert before.generation == after.generation


def test_proxies_that_know_no_endpoint_yet_make_the_object_not_ready() -> None:
    report = ProxyReport(proxy="p-1", health={"stable": BackendHealth(known=0, usable=0)})

    assert facts(Inputs(objects={KEY: SHOP}, reports={KEY: [report]}))["Ready"] == ("False", "NoEndpoints")


@pytest.mark.parametrize(("ingress", "expected"), [("", "10.96.0.9"), ("lb.example", "lb.example")])
def test_the_address_in_status_is_the_load_balancers_where_there_is_one(ingress: str, expected: str) -> None:
    front = ServiceRecord(namespace="store", name="shop", type="LoadBalancer", cluster_ip="10.96.0.9", ingress=ingress)
    shop = replace(SHOP, proxy=Proxy(mode="Gateway", service_type="LoadBalancer"))

    assert translate(Inputs(objects={KEY: shop}, services={KEY: front}), KEY).status.address == expected


def test_a_translation_needs_the_object() -> None:
    with pytest.raises(KeyError):
        translate(Inputs(), KEY)


def test_all_faults_of_an_object_are_told_within_bounds() -> None:
    faults = tuple(Fault(f"spec.backends[{index}].weight", "must be a number") for index in range(64))

    result = translate(Inputs(objects={KEY: Invalid("store", "shop", faults)}), KEY)

    message = result.status.facts[0].message
    assert result.snapshot is None
    assert message.startswith("spec.backends[0].weight: must be a number; ")
    assert message.endswith(" more")
    assert len(message) < LONGEST_MESSAGE + 20


def test_one_part_that_is_too_long_is_cut() -> None:
    assert told(["x" * 5000, "y"]) == "x" * (LONGEST_MESSAGE - 1) + "…"
    assert told([]) == ""


def test_all_objects_are_translated_in_the_order_of_their_names() -> None:
    other = replace(SHOP, name="a")

    assert list(translate_all(Inputs(objects={KEY: SHOP, ("store", "a"): other}))) == [("store", "a"), KEY]


# What a status gives back


def test_a_status_of_nonsense_counts_as_absent() -> None:
    item = {
        "metadata": {"uid": None, "generation": "x"},
        "status": {
            "proxy": {
                "ports": [
                    {"name": "http", "listen": 20000},
                    {"name": "twin", "listen": 20000},
                    {"name": "low", "listen": 80},
                    {"name": 7, "listen": 20001},
                    {"name": "text", "listen": "20002"},
                    "nonsense",
                ]
            },
            "sidecar": "nonsense",
        },
    }

    assert given(item) == Given(listen={"http": 20000})
    assert given({"metadata": "nonsense", "status": {"proxy": {"ports": None}}}) == Given()


def test_objects_of_no_interest_are_skipped() -> None:
    assert gather([{"kind": "ConfigMap", "metadata": {"name": "a"}}, {}]) == Inputs()


# Numbers that are kept


def test_a_number_is_not_used_again_after_its_port_is_gone() -> None:
    first = listen_numbers({}, ["http", "admin"])
    then = listen_numbers(first, ["http"])

    assert listen_numbers(then, ["http", "other"])["other"] == 20002
    assert listen_numbers(then, ["http", "admin"])["admin"] == 20001


def test_of_the_retired_numbers_the_newest_are_kept() -> None:
    numbers: dict[str, int] = {}
    for index in range(100):
        numbers = listen_numbers(numbers, ["http", f"port-{index}"])

    assert len(numbers) == 2 + RETIRED_KEPT
    assert numbers["http"] == 20000
    assert numbers["port-99"] == 20100
    assert min(number for name, number in numbers.items() if name != "http") == 20100 - RETIRED_KEPT


def test_after_the_last_number_the_lowest_free_one_is_taken() -> None:
    numbers = listen_numbers({"old": LISTEN.stop - 1, "http": LISTEN.start}, ["http", "new"])

    assert numbers["new"] == LISTEN.start + 1


def test_a_sidecar_address_goes_on_past_claimed_ones() -> None:
    wanted = loopback_address("store", "shop", "", {})

    claimed = {wanted: ["other"]}

    assert loopback_address("store", "shop", "", claimed) != wanted
    assert loopback_address("store", "shop", "", {wanted: ["shop"]}) == wanted


def test_a_given_sidecar_address_that_is_none_is_replaced() -> None:
    assert loopback_address("store", "shop", "nonsense", {}) == loopback_address("store", "shop", "", {})


# Names


def test_two_long_names_or_parted_names_never_meet() -> None:
    long = "a" * 62

    assert len(proxy_name(long + "b")) == LONGEST
    assert proxy_name(long + "b") != proxy_name(long + "c")
    assert headless_name("a", "b-c") != headless_name("a-b", "c")
    assert len(headless_name(long, "b" * 63)) <= LONGEST
    assert fitted("short") == "short"
    assert short_hash("a", "bc") != short_hash("ab", "c")


def test_a_cut_name_does_not_end_in_a_dash_before_its_hash() -> None:
    assert "--" not in fitted("a" * 51 + "-" * 20)
    assert "--" not in headless_name("a" * 51 + "-b", "c")


# Joining


def test_equal_entries_in_two_slices_are_one_whatever_the_order() -> None:
    entry = SliceEndpoint(address="10.0.0.1", uid="pod", zone="b")
    one = Slice(
        namespace="s", name="1", service="x", address_type="IPv4", ports=(SlicePort(number=80),), endpoints=(entry,)
    )
    two = replace(one, name="2", endpoints=(replace(entry, zone="a"),))

    assert join([one, two], "", (), hints=True) == join([two, one], "", (), hints=True)


# Shares


def test_levels_share_the_load_as_envoy_does() -> None:
    """The rows of Envoy's priority documentation, and panic where all levels together can't carry the load."""
    assert level_loads([(100, 100), (100, 100)], 50) == ([100, 0], [False, False])
    assert level_loads([(71, 100), (100, 100)], 50) == ([99, 1], [False, False])
    assert level_loads([(50, 100), (100, 100)], 50) == ([70, 30], [False, False])
    assert level_loads([(25, 100), (25, 100)], 50) == ([50, 50], [True, True])
    assert level_loads([(25, 100), (25, 100), (20, 100)], 50) == ([36, 36, 28], [True, True, True])
    assert level_loads([(5, 100), (65, 100)], 50) == ([7, 93], [True, False])
    assert level_loads([(0, 0), (0, 3)], 50) == ([0, 100], [False, True])
    assert level_loads([(0, 0)], 50) == ([0], [False])


def standing(weight: int = 1, active: int = 2, usable: int = 2, priority: int = 0) -> Standing:
    return Standing(weight=weight, weight_per="Endpoint", priority=priority, active=active, usable=usable)


def test_in_panic_all_active_endpoints_count() -> None:
    assert shares([standing(usable=0), standing(usable=1, active=4)], 50) == (2 / 6, 4 / 6)
    assert shares([standing(usable=0), standing(usable=1, active=4)], 0) == (0, 1)


def test_without_panic_and_usable_endpoints_nobody_has_a_share() -> None:
    assert shares([standing(usable=0), standing(weight=0)], 0) == (0, 0)
    assert shares([], 50) == ()


def test_endpoints_of_weight_zero_do_not_keep_a_level_alive() -> None:
    drained = standing(weight=0, active=4, usable=4)

    assert shares([drained, standing(usable=0), standing(priority=1)], 50) == (0, 0, 1)
