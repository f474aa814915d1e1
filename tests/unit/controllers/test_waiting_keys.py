"""Who waits for what."""

from kilnwork.controllers import waiting_keys

OBJECT = ("TaskObject", "default", "start")
CLUSTER = ("TaskCluster", "default", "c")
A, B = ("default", "a"), ("default", "b")


def test_all_keys_that_wait_for_an_object_are_found() -> None:
    index = waiting_keys.WaitingKeys()
    index.set(A, [OBJECT, CLUSTER])
    index.set(B, [OBJECT])
    assert set(index.waiting(*OBJECT)) == {A, B}
    assert set(index.waiting(*CLUSTER)) == {A}


def test_each_pass_replaces_the_awaited_objects() -> None:
    index = waiting_keys.WaitingKeys()
    index.set(A, [OBJECT])
    index.set(A, [CLUSTER])
    assert index.waiting(*OBJECT) == ()
    assert index.waiting(*CLUSTER) == (A,)


def test_key_that_stopped_waiting_is_forgotten() -> None:
    index = waiting_keys.WaitingKeys()
    index.set(A, [OBJECT])
    index.set(A, [])
    assert index.waiting(*OBJECT) == ()
    assert len(index) == 0


def test_waiting_keys_are_returned_in_order_of_arrival() -> None:
    index = waiting_keys.WaitingKeys()
    keys = [("default", f"job-{number:02}") for number in range(30)]
    for key in keys:
        index.set(key, [OBJECT])
    index.set(keys[3], [OBJECT, CLUSTER])
    assert list(index.waiting(*OBJECT)) == keys
