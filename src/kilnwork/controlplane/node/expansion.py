"""`$(NAME)` in commands, arguments and environment values, as Kubernetes expands it.

`$$` is a literal `$`; a reference to an unknown name stays as it is; nothing is expanded twice.
Source of the rules: k8s.io/kubernetes third_party/forked/golang/expansion.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """`text` with every reference to a name of `values` replaced."""

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return values.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)
