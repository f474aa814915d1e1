"""The version of kilnwork, read by the build, the command line and the handshakes."""

__version__ = "0.1.0"
