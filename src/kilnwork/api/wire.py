"""Base of the structs that users write, wherever in a spec they stand."""

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
    """Base of everything a user writes: camelCase, unknown fields refused.

    `gc=False`, here and in all structs of objects: frozen structs of plain data are in no cycle, so
    the garbage collector need not look at them.
    """
