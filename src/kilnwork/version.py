"""The version, read by the build, the CLI and the handshakes. Nothing else lives here."""

__version__ = "0.1.0"
