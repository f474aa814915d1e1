"""Kilnwork: dynamic batch work on Kubernetes, in Python.

The public door. It stays free of imports so that `import kilnwork` and the command line start in
milliseconds; what users reach for is loaded on first use (PEP 562).
"""

from kilnwork.version import __version__

__all__ = ["__version__"]
