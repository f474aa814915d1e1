"""The Kubernetes version that the API server and the nodes follow, and say that they are."""

from kilnwork import version

MAJOR = "1"
MINOR = "32"
"""Clients decide by it what they may ask for."""

GIT_VERSION = f"v{MAJOR}.{MINOR}.0+kilnwork-{version.__version__}"
"""In full, with whose server or node it is."""
