"""A nightly report of the weather: a parallel job with a finalizer, and one with options."""

import datetime
from typing import Literal

import kilnwork as kiln

STATIONS = ["bern", "geneva", "zurich"]


def summary(results: list[dict[str, float]]) -> dict[str, float]:
    """Return the warmest and the coldest of all stations."""
    degrees = [one["degrees"] for one in results]
    return {"warmest": max(degrees), "coldest": min(degrees)}


@kiln.job(
    schedule="H 2 * * *",
    timezone="Europe/Zurich",
    concurrency="Forbid",
    parallel=STATIONS,
    finalizer=summary,
    retries=2,
)
def measure(key: str, offset: float = 0.0) -> dict[str, float]:
    """Read the thermometer of each station."""
    return {"degrees": len(key) + offset}


def wake_up(job: str, phase: str) -> None:
    """Notify the team."""
    print(f"{job} is {phase}")


@kiln.job(timeout=60, hooks={("Failed", "Killed"): wake_up})
def report(
    day: datetime.date,
    unit: Literal["C", "F"] = "C",
    stations: list[Literal["bern", "geneva", "zurich"]] = ["bern", "zurich"],  # noqa: B006
) -> str:
    """Write the report of one day."""
    return f"{day:%A}: {', '.join(stations)} in {unit}"
