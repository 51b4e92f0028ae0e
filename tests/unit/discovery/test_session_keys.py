from controller.discovery.session_keys import CURRENT, PREVIOUS, derived, masters


def zeros(size: int) -> bytes:
    return bytes(size)


def test_a_missing_master_is_made_and_a_present_one_is_kept():
    made = masters(None, zeros)

    assert made == {CURRENT: bytes(32)}
    assert masters({CURRENT: b"k" * 32, PREVIOUS: b"p" * 32, "tls.key": b"x"}, zeros) == {
        CURRENT: b"k" * 32,
        PREVIOUS: b"p" * 32,
    }
    assert masters({CURRENT: b"short"}, zeros) == {CURRENT: bytes(32)}


def test_keys_differ_by_object_and_the_current_one_comes_first():
    data = {CURRENT: b"a" * 32, PREVIOUS: b"b" * 32}

    assert derived(data, "uid-1") != derived(data, "uid-2")
    assert derived(data, "uid-1")[0] == derived({CURRENT: b"a" * 32}, "uid-1")[0]
    assert derived(data, "uid-1")[1] == derived({CURRENT: b"b" * 32}, "uid-1")[0]
