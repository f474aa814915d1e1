"""The lease of a TaskClaim's holder, with a manual clock."""

import msgspec

from kilnwork.api import meta, task_claim
from kilnwork.controllers.task_claim import claim_object
from kilnwork.kit import clock
from kilnwork.kube import client, config


def test_only_a_change_of_renew_time_renews_the_lease() -> None:
    time = clock.ManualClock()
    kube = client.Client(config.Config(server="https://127.0.0.1:1"))
    seen = task_claim.TaskClaim(
        metadata=meta.ObjectMeta(name="c", namespace="default", uid="u"),
        spec=task_claim.TaskClaimSpec(executor="mine", lease_seconds=10),
    )
    held = claim_object.Claim(seen, kube, time=time)
    time.advance(9)
    renewed = task_claim.TaskClaimStatus(renew_time="2026-01-01T00:00:00Z")
    held.update(msgspec.structs.replace(seen, status=renewed))
    time.advance(9)
    assert held.loss_reason == ""
    held.update(msgspec.structs.replace(seen, status=renewed))  # by another change
    time.advance(1)
    assert held.loss_reason == "its TaskClaim was not renewed for 10 s"
    held.update(None)
    assert held.loss_reason == "its TaskClaim was deleted"
