"""Gives the tests of this directory an API server."""

pytest_plugins = ["kilnwork.testing.kubernetes"]
