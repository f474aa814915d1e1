"""Valid names: DNS names, label keys and values, with the error texts of Kubernetes.

Used by validation, by selectors and by code that derives names. Each `*_problem` function returns
the error text of Kubernetes (k8s.io/apimachinery/pkg/util/validation), or None for a valid name.
"""

import hashlib
import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

_IS_LABEL = re.compile(_LABEL)
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_IS_LABEL_1035 = re.compile(_LABEL_1035)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_IS_QUALIFIED = re.compile(_QUALIFIED)
_IS_VALUE = re.compile(_VALUE)
_IS_DATA_KEY = re.compile("[-._a-zA-Z0-9]+")
_IS_ENV_NAME = re.compile("[ -<>-~]+")
_IS_DIGEST = re.compile("sha256:[0-9a-f]{64}")

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_HASH_LENGTH = 8


def _expected(what: str, *examples: str, regex: str) -> str:
    listed = ",  or ".join(f"'{example}'" for example in examples)
    return f"{what} (e.g. {listed}, regex used for validation is '{regex}')"


_LABEL_1035_TEXT = _expected(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character",
    "my-name",
    "abc-123",
    regex=_LABEL_1035,
)
_LABEL_TEXT = _expected(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    "my-name",
    "123-abc",
    regex=_LABEL,
)
_SUBDOMAIN_TEXT = _expected(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character",
    "example.com",
    regex=_SUBDOMAIN,
)
_QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_QUALIFIED_EXAMPLES = ("MyName", "my.name", "123-abc")
_VALUE_TEXT = _expected(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    "MyValue",
    "my_value",
    "12345",
    regex=_VALUE,
)
_DATA_KEY_TEXT = _expected(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    "key.name",
    "KEY_NAME",
    "key-name",
    regex="[-._a-zA-Z0-9]+",
)
_ENV_NAME_TEXT = (
    "a valid environment variable name must consist only of printable ASCII characters "
    "other than '='"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def label_problem(text: str) -> str | None:
    """Return why `text` is not a DNS-1123 label (RFC 1123 §2.1), or None."""
    if len(text) > LABEL_LENGTH:
        return _too_long(LABEL_LENGTH)
    return None if _IS_LABEL.fullmatch(text) else _LABEL_TEXT


def subdomain_problem(text: str) -> str | None:
    """Return why `text` is not a DNS-1123 subdomain, the form of most object names, or None."""
    if len(text) > SUBDOMAIN_LENGTH:
        return _too_long(SUBDOMAIN_LENGTH)
    return None if _IS_SUBDOMAIN.fullmatch(text) else _SUBDOMAIN_TEXT


def label_1035_problem(text: str) -> str | None:
    """Return why `text` is not a DNS-1035 label, which begins with a letter, or None."""
    if len(text) > LABEL_LENGTH:
        return _too_long(LABEL_LENGTH)
    return None if _IS_LABEL_1035.fullmatch(text) else _LABEL_1035_TEXT


def path_segment_problem(text: str) -> str | None:
    """Return why `text` cannot be a segment of a URL path, as the names of rbac objects must be,
    or None."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{mark}'" for mark in ("/", "%") if mark in text), None)


def qualified_problem(text: str) -> str | None:
    """Return why `text` is not a label or annotation key (`[prefix/]name`), or None."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            "a qualified name "
            + _expected(_QUALIFIED_RULE, *_QUALIFIED_EXAMPLES, regex=_QUALIFIED)
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash:
        problem = "must be non-empty" if not prefix else subdomain_problem(prefix)
        if problem is not None:
            return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > LABEL_LENGTH:
        return f"name part {_too_long(LABEL_LENGTH)}"
    if not _IS_QUALIFIED.fullmatch(name):
        return "name part " + _expected(_QUALIFIED_RULE, *_QUALIFIED_EXAMPLES, regex=_QUALIFIED)
    return None


def label_value_problem(text: str) -> str | None:
    """Return why `text` is not a label value, or None."""
    if len(text) > LABEL_LENGTH:
        return _too_long(LABEL_LENGTH)
    return None if _IS_VALUE.fullmatch(text) else _VALUE_TEXT


def data_key_problem(text: str) -> str | None:
    """Return why `text` is not a key of a ConfigMap or Secret, or None."""
    if len(text) > SUBDOMAIN_LENGTH:
        return _too_long(SUBDOMAIN_LENGTH)
    if text in (".", ".."):
        return f"must not be '{text}'"
    if text.startswith(".."):
        return "must not start with '..'"
    return None if _IS_DATA_KEY.fullmatch(text) else _DATA_KEY_TEXT


def env_name_problem(text: str) -> str | None:
    """Return why `text` is not a name of an environment variable (relaxed form of Kubernetes
    1.32), or None."""
    return None if _IS_ENV_NAME.fullmatch(text) else _ENV_NAME_TEXT


def is_dns_label(text: str) -> bool:
    """Return whether `text` is a DNS-1123 label: at most 63 of a-z, 0-9 and inner dashes."""
    return label_problem(text) is None


def is_dns_subdomain(text: str) -> bool:
    """Return whether `text` is a DNS-1123 subdomain: labels joined by dots, at most 253
    characters."""
    return subdomain_problem(text) is None


def dns_label(text: str, max_length: int = LABEL_LENGTH) -> str:
    """Return `text` if it is a DNS label that fits, otherwise a readable short form with a hash.

    The same text always gives the same label, and different texts give different labels (32 bits
    of SHA-256): for Pod and host names derived from object names that are too long or contain
    dots.
    """
    if len(text) <= max_length and is_dns_label(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    readable = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    kept = readable[: max(0, max_length - _HASH_LENGTH - 1)].rstrip("-")
    return f"{kept}-{digest}" if kept else digest


def digest(name: str | None) -> bytes | None:
    """Return the 32 bytes of a digest written as `sha256:` and 64 hex digits, or None for
    anything else."""
    if name is None or not _IS_DIGEST.fullmatch(name):
        return None
    return bytes.fromhex(name.removeprefix("sha256:"))
