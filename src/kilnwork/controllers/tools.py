"""What every reconciler is given: the client, the caches, a voice and a clock.

Used by the reconcilers of all kinds; made by `assembly`.
"""

import msgspec

from kilnwork.controllers import caches, ports
from kilnwork.kit import clock
from kilnwork.kube import client


class Tools(msgspec.Struct, frozen=True):
    """`emit` tells kube events, in the background."""

    kube: client.Client
    caches: caches.Caches
    emit: ports.Emit
    time: clock.Clock
