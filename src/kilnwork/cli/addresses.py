"""Addresses in options: HOST:PORT. Used by `kiln install` and `kiln manager`."""

import click

_EVERYWHERE = ("0.0.0.0", "[::]")  # noqa: S104 - refused, not listened on


class Address(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """HOST:PORT, with brackets around an IPv6 address. Gives the host and the port."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The two parts."""
        host, colon, port = str(value).rpartition(":")
        if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            self.fail(f"{value!r}: write HOST:PORT, such as 0.0.0.0:7443", param, ctx)
        return host.strip("[]"), int(port)


class Advertised(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Where others connect: HOST:PORT, both of them said, or a word of `also`. Gives the text."""

    name = "HOST:PORT"

    def __init__(self, *also: str) -> None:
        self._also = also

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The text as it is."""
        text = str(value)
        if text not in self._also:
            host, _, port = text.rpartition(":")
            known = port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
            if not known or not host.strip("[]") or set(host) & set("/ ") or host in _EVERYWHERE:
                wanted = "write HOST:PORT that others reach, such as 10.0.0.5:7443"
                self.fail(f"{text!r}: {wanted}", param, ctx)
        return text
