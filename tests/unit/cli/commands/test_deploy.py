"""`kiln deploy`: labels, modules, and what is printed without a server."""

from pathlib import Path

import pytest
import yaml

from kilnwork.cli import exits
from support import serverless_cli

ONE = "import kilnwork as kiln\n\n\n@kiln.job\ndef report():\n    return 1\n"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return a file that declares one job. Each test gets its own module name, since a process
    imports a module once.
    """
    file = tmp_path / f"{tmp_path.name.replace('-', '_')}.py"
    file.write_text(ONE)
    return file


@pytest.mark.parametrize("label", ["a", "a=b c", "-a=b", "=b"])
def test_label_must_be_valid_for_kubernetes(
    kiln: serverless_cli.ServerlessCli, module: Path, label: str
) -> None:
    ended = kiln.run("deploy", str(module), "--dry-run", "-o", "yaml", f"--label={label}")
    assert ended.code == exits.Exit.USAGE
    assert f"--label {label}: write KEY=VALUE" in ended.err


def test_dry_run_with_output_format_needs_no_server(
    kiln: serverless_cli.ServerlessCli, module: Path
) -> None:
    ended = kiln.run("deploy", str(module), "--dry-run", "-o", "yaml", "--label", "team=a")
    assert (ended.code, ended.err) == (exits.Exit.OK, "")
    found = yaml.safe_load(ended.out)
    assert (found["kind"], found["metadata"]["name"]) == ("JobConfig", "report")
    assert found["metadata"]["labels"]["team"] == "a"


def test_several_configs_are_printed_as_a_list(
    kiln: serverless_cli.ServerlessCli, module: Path
) -> None:
    module.write_text(f"{ONE}\n\n@kiln.job\ndef total():\n    return 2\n")
    found = yaml.safe_load(kiln.run("deploy", str(module), "--dry-run", "-o", "yaml").out)
    assert found["kind"] == "List"
    assert [item["metadata"]["name"] for item in found["items"]] == ["report", "total"]


@pytest.mark.parametrize("arguments", [(), ("--dry-run",), ("-o", "yaml")])
def test_other_options_need_a_server(
    kiln: serverless_cli.ServerlessCli, module: Path, arguments: tuple[str, ...]
) -> None:
    assert kiln.run("deploy", str(module), *arguments).code == exits.Exit.UNREACHABLE


@pytest.mark.parametrize("arguments", [(), ("no/such.py",)])
def test_missing_module_is_rejected(
    kiln: serverless_cli.ServerlessCli, arguments: tuple[str, ...]
) -> None:
    assert kiln.run("deploy", *arguments).code == exits.Exit.USAGE
