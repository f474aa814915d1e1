"""The names by which agents of a pond know each other, and the manager's Secret for them.

Used by the agents and by the controller that makes the Secret.
"""

SERVER_NAME = "agent.pond.kilnwork.dev"
"""What the certificate of a pond is for, wherever its agents are."""

TOKEN_KEY = "token"  # noqa: S105 - a key
CERTIFICATE_KEY = "tls.crt"
PRIVATE_KEY_KEY = "tls.key"
CA_KEY = "ca.crt"
"""Keys of the Secret: what agents show the manager; their certificate and its key; the authority
that has signed the manager's certificate."""
