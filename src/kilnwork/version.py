"""The version of kilnwork, read by the build, and by code that shows it to users and servers."""

__version__ = "0.1.0"
