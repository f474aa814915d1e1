"""Finalizers that others may write beside."""

import json
from typing import Any

import aiohttp.web
import pytest

from kilnwork.api import api_resources
from kilnwork.kube import client, errors, finalizers
from support import scripted_apiserver

OURS = "kilnwork.dev/outside"


class Stored:
    """One object whose writers race: each read gives the newest, stale patches conflict."""

    def __init__(self, stand: scripted_apiserver.ScriptedApiServer, *present: str) -> None:
        self.version = 1
        self.uid = "u"
        self.finalizers = list(present)
        self.conflicts = 0
        self.patches = 0
        stand.handler = self._serve

    def read(self) -> dict[str, Any]:
        metadata = {"name": "a", "namespace": "x", "uid": self.uid}
        return {
            "metadata": {
                **metadata,
                "resourceVersion": str(self.version),
                "finalizers": list(self.finalizers),
            }
        }

    async def _serve(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        if request.method == "PATCH":
            self.patches += 1
            if self.conflicts:
                self.conflicts -= 1
                self.version += 1
            sent = json.loads(await request.read())["metadata"]
            if sent["resourceVersion"] != str(self.version):
                return aiohttp.web.json_response({"reason": "Conflict"}, status=409)
            self.finalizers = sent["finalizers"]
            self.version += 1
        return aiohttp.web.json_response(self.read())


async def test_other_finalizers_are_kept(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stored = Stored(stand, "other")
    await finalizers.add(kube, api_resources.PODS, stored.read(), finalizer=OURS)
    assert stored.finalizers == ["other", OURS]
    await finalizers.add(kube, api_resources.PODS, stored.read(), finalizer=OURS)
    assert stored.patches == 1
    await finalizers.remove(kube, api_resources.PODS, stored.read(), finalizer=OURS)
    assert stored.finalizers == ["other"]


async def test_conflicting_write_is_repeated_on_the_newest_object(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stored = Stored(stand)
    stored.conflicts = 3
    await finalizers.add(kube, api_resources.PODS, stored.read(), finalizer=OURS)
    assert stored.finalizers == [OURS]
    stored.conflicts = finalizers.TRIES
    with pytest.raises(errors.Conflict):
        await finalizers.remove(kube, api_resources.PODS, stored.read(), finalizer=OURS)


async def test_re_created_object_is_not_changed(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stored = Stored(stand)
    known = stored.read()
    stored.uid, stored.version = "v", 7
    with pytest.raises(errors.NotFound, match="created again"):
        await finalizers.add(kube, api_resources.PODS, known, finalizer=OURS)
    assert stored.finalizers == []
    stand.respond({}, status=404)
    known["metadata"]["finalizers"] = [OURS]
    await finalizers.remove(kube, api_resources.PODS, known, finalizer=OURS)
