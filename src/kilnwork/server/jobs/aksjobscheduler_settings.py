"""Environment variables and sizing of fbeltrao/aksjobscheduler, for users who migrate from it.

The variables are read under `kiln up --source-compat` only. Names and defaults are those of the
code of aksjobscheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kilnwork.kit import errors

PARAMETERS = ("aci", "gpu", "gpuQuantity", "batch")
"""Parameters of POST /jobs in aksjobscheduler that do not change how a job runs here; `batch=1` is
refused.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Values of the environment variables of aksjobscheduler, without those for images, cloud
    accounts and watchers.

    `container`: only shown. `aci_trigger`: number of parts from which aksjobscheduler runs a job on
    Azure Container Instances (ACI), 0: never; kept for placement, as no job leaves the cluster yet.
    """

    container: str = "jobs"
    items_per_part: int = 100_000
    parallelism: int = 2
    aci_parallelism: int = 50
    aci_trigger: int = 6


def read(environ: Mapping[str, str]) -> Source:
    """Read the environment variables ITEMSPERJOB, MAXPARALLELISM, ACIMAXPARALLELISM,
    ACICOMPLETIONSTRIGGER and CONTAINERNAME.

    CONTAINER, the name in the README of aksjobscheduler, is read in the place of CONTAINERNAME.
    Raises ConfigurationError.
    """
    known = Source()
    container = environ.get("CONTAINERNAME") or environ.get("CONTAINER") or known.container
    return Source(
        container=container,
        items_per_part=_number(environ, "ITEMSPERJOB", known.items_per_part, least=1),
        parallelism=_number(environ, "MAXPARALLELISM", known.parallelism, least=1),
        aci_parallelism=_number(environ, "ACIMAXPARALLELISM", known.aci_parallelism, least=1),
        aci_trigger=_number(environ, "ACICOMPLETIONSTRIGGER", known.aci_trigger, least=0),
    )


def _number(environ: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or not text.isascii() or not least <= int(text) < 1 << 31:
        raise errors.ConfigurationError(
            f"the environment variable {name} is {text[:50]!r}: give a number from {least} up, or "
            f"unset it for {default}"
        )
    return int(text)
