"""What the real API server does and ours does not yet: case → reason.

Each case is written against the real server. On ours a case named here must fail (a strict xfail),
so an entry leaves with the commit that mends it. docs/reference/differences.md says the same to
users.
"""

DIFFERENCES: dict[str, str] = {
    "test_apply_removal.py::test_nothing_that_is_left_is_refused": (
        "an apply that removes the last item of a list or map which an update has partly changed "
        "is refused there, since null would remain; ours removes the list or map"
    ),
    "test_watch.py::test_a_version_of_the_future_is_waited_for": (
        "a watch from a resourceVersion that was never issued ends with 410: it comes from "
        "another data directory, or from before a crash of the machine"
    ),
}
"""`test_file.py::test_name`, with `[parameters]` for one case of several → why ours fails it."""


def find(case: str) -> str | None:
    """The reason for a case, or for the function that it is one case of."""
    return DIFFERENCES.get(case) or DIFFERENCES.get(case.partition("[")[0])
