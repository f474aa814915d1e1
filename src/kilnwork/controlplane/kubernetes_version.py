"""The Kubernetes version that the API server and the nodes implement and report."""

from kilnwork import version

MAJOR = "1"
MINOR = "32"
"""Minor version, from which clients decide which features they may use."""

GIT_VERSION = f"v{MAJOR}.{MINOR}.0+kilnwork-{version.__version__}"
"""Full version; the suffix names the implementation."""
