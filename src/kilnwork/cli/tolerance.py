"""How many bad records are one too many: `--max-failed`. Used by `upload` and `adjust`."""

from kilnwork.cli import errors


def parse(text: str | None) -> tuple[int | None, float | None]:
    """A count, or a percentage; both None for any number. Raises `errors.Unusable`."""
    if text is None:
        return None, None
    try:
        if text.endswith("%"):
            share = float(text[:-1])
            if 0 <= share <= 100:
                return None, share
        elif int(text) >= 0:
            return int(text), None
    except ValueError:
        pass
    raise errors.Unusable(f"--max-failed {text}: write a number such as 100, or 0.5%")
