"""The embedded API server alone, on a free port over plain http: no node, no garbage collector.

For tests that need a real API server under the client but nothing that acts by itself.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from kilnwork.api import meta, resource
from kilnwork.controlplane import store
from kilnwork.controlplane.apiserver import (
    app,
    authn,
    authz,
    crud,
    deletion,
    pki,
    podlogs,
    tokens,
    watching,
)
from kilnwork.kit import clock, ids
from kilnwork.kube import client, config

TOKEN = "sesame"


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[client.Client]:
    """A client of a new API server with its data in `folder`; namespace `default` is there."""
    held = store.Store(folder / "control.db")
    await held.start()
    time = clock.SystemClock()
    writer = crud.Writer(held, clock=time, new_uid=ids.new_uid, entropy=ids.system_entropy())
    hub = watching.Hub(held, clock=time)
    hub.start()
    parts = _parts(folder, writer, hub=hub)
    server = uvicorn.Server(
        uvicorn.Config(app.build(parts), log_level="error", lifespan="off", ws="none")
    )
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with client.Client(config.Config(server=address, token=TOKEN)) as kube:
            await _furnish(kube)
            yield kube
    finally:
        server.should_exit = True
        await hub.stop()
        await serving
        await held.stop()


def _parts(folder: Path, writer: crud.Writer, *, hub: watching.Hub) -> app.Parts:
    certificates = pki.Pki(folder / "pki", clock=writer.clock)
    certificates.prepare()
    minter = tokens.Tokens(certificates.signing_key(), clock=writer.clock, new_uid=ids.new_uid)
    return app.Parts(
        writer=writer,
        deleter=deletion.Deleter(writer),
        hub=hub,
        authenticator=authn.Authenticator(minter, admin_token=TOKEN, lookup=writer.lookup),
        authorizer=authz.Authorizer(writer.lookup),
        minter=minter,
        logs=podlogs.PodLogs(certificates),
        entropy=ids.system_entropy(),
    )


async def _furnish(kube: client.Client) -> None:
    await kube.create(resource.NAMESPACES, _named("v1", "Namespace", "default"))
    account = _named("v1", "ServiceAccount", "default")
    await kube.create(resource.SERVICE_ACCOUNTS, account, "default")


def _named(version: str, kind: str, name: str) -> meta.JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
