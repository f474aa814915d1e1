"""`kiln token`: print the token of the kubeconfig, or a short-lived one of a ServiceAccount."""

import click

from kilnwork.api import api_resources
from kilnwork.cli import errors, options, session, shell_completion
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import credentials


@click.command()
@click.argument(
    "account",
    required=False,
    metavar="[SERVICEACCOUNT]",
    shell_complete=shell_completion.of_kind(api_resources.SERVICE_ACCOUNTS),
)
@options.target
@click.option(
    "--duration",
    type=options.DURATION,
    default=None,
    help="Lifetime of a ServiceAccount token, at least 10 minutes; default: the server's, an"
    " hour for `kiln up`.",
)
@click.option(
    "--audience",
    "audiences",
    multiple=True,
    metavar="AUDIENCE",
    help="Audience of a ServiceAccount token; repeatable.",
)
def command(account: str | None, duration: float | None, audiences: tuple[str, ...]) -> None:
    """Print the bearer token of the kubeconfig, or create a token for a ServiceAccount.

    \b
    kiln token
    kiln token builder --duration 2h
    curl -H "Authorization: Bearer $(kiln token)" http://127.0.0.1:7444/v1/namespaces/default/tasks
    curl -H "Authorization: Bearer $(kiln token)" -F file=@work.jsonl http://127.0.0.1:7444/jobs
    """
    if account is None:
        if duration is not None or audiences:
            raise errors.InvalidInput(
                "--duration and --audience are for a ServiceAccount's token: name the account"
            )
        click.echo(_own())
        return
    spec: dict[str, object] = {"audiences": list(audiences)}
    if duration is not None:
        spec["expirationSeconds"] = int(duration)
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": spec,
    }

    async def mint(s: session.Session) -> str:
        path = s.path(api_resources.SERVICE_ACCOUNTS, account, namespace=s.one_namespace())
        response = await s.ask("POST", f"{path}/token", body=body)
        return str(response["status"]["token"])

    click.echo(session.run(mint))


def _own() -> str:
    held = credentials.Credentials(session.load_settings(options.current()))
    try:
        token = held.get().token
    except kit_errors.ConfigurationError as error:
        raise errors.CommandError(str(error)) from error
    if token is None:
        raise errors.CommandError(
            "the kubeconfig holds no token; it may identify you by certificate"
        )
    return token
