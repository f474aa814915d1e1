"""Base of the structs that users write, in any part of a spec."""

import msgspec


class Wire(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Base of all structs that users write: camelCase, unknown fields refused.

    `gc=False`, here and in all structs of objects: frozen structs of plain data cannot be part of
    a cycle, so the garbage collector need not track them.
    """
