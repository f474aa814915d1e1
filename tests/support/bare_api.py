"""The embedded API server alone, on a free port over plain http: no node, no garbage collector.

For tests that need a real API server under the client but nothing that acts by itself.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from kilnwork.controlplane import store
from kilnwork.controlplane.apiserver import (
    app,
    authn,
    authz,
    crud,
    deletion,
    namespaces,
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
    """A client of a new API server with its data in `folder`; the basic namespaces are there."""
    held = store.Store(folder / "control.db")
    await held.start()
    time = clock.SystemClock()
    writer = crud.Writer(held, clock=time, new_uid=ids.new_uid, entropy=ids.system_entropy())
    hub = watching.Hub(held, clock=time)
    hub.start()
    parts = _parts(folder, writer, hub=hub)
    await parts.keeper.start()
    server = uvicorn.Server(
        uvicorn.Config(app.build(parts), log_level="error", lifespan="off", ws="none")
    )
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with client.Client(config.Config(server=address, token=TOKEN)) as kube:
            yield kube
    finally:
        server.should_exit = True
        await hub.stop()
        await serving
        await parts.keeper.stop()
        await held.stop()


def _parts(folder: Path, writer: crud.Writer, *, hub: watching.Hub) -> app.Parts:
    certificates = pki.Pki(folder / "pki", clock=writer.clock)
    certificates.prepare()
    minter = tokens.Tokens(certificates.signing_key(), clock=writer.clock, new_uid=ids.new_uid)
    deleter = deletion.Deleter(writer)
    return app.Parts(
        writer=writer,
        deleter=deleter,
        hub=hub,
        keeper=namespaces.Keeper(writer, deleter, ca=certificates.ca_data().decode()),
        authenticator=authn.Authenticator(minter, admin_token=TOKEN, lookup=writer.lookup),
        authorizer=authz.Authorizer(writer.lookup),
        minter=minter,
        logs=podlogs.PodLogs(certificates),
        entropy=ids.system_entropy(),
    )
