"""Names in the certificates of a pond's agents, and keys of their Secret.

Used by the agents and by the controller that makes the Secret.
"""

SERVER_NAME = "agent.pond.kilnwork.dev"
"""The server name in a pond's certificate, whatever addresses its agents have."""

TOKEN_KEY = "token"  # noqa: S105 - a key
CERTIFICATE_KEY = "tls.crt"
PRIVATE_KEY_KEY = "tls.key"
CA_KEY = "ca.crt"
"""Keys of the Secret: the token that agents send to the manager; the agents' certificate and its
key; the CA certificate of the manager."""
