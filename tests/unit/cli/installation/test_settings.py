"""Defaults of an installation."""

from kilnwork import version
from kilnwork.api import manager_access
from kilnwork.cli.installation import settings

CHOSEN = settings.InstallSettings()


def test_everything_is_installed_in_the_namespace_of_the_manager() -> None:
    assert CHOSEN.namespace == manager_access.NAMESPACE
    assert CHOSEN.parts == ("namespace", "crds", "rights", "drivers", "manager")


def test_image_is_that_of_this_version() -> None:
    assert CHOSEN.image == f"localhost/kilnwork:{version.__version__}"
    assert (CHOSEN.worker_image, CHOSEN.worker_python) == (None, "python3")


def test_journal_is_on_a_claim_of_ten_gibibytes() -> None:
    volume = settings.Volume()
    assert (volume.storage, volume.size, volume.class_name) == ("pvc", "10Gi", None)


def test_process_is_not_run_as_root() -> None:
    assert settings.Placement().user == 65532


def test_default_allows_no_objects_and_serves_all_namespaces() -> None:
    assert CHOSEN.objects == settings.AllowedObjects(kinds=(), impersonate=False)
    assert (CHOSEN.only_in, CHOSEN.drivers_in) == ((), ())
    assert (CHOSEN.http_executors, CHOSEN.ponds) == (0, False)


def test_log_levels_are_ordered_by_detail() -> None:
    assert settings.LOG_LEVELS == ("warning", "info", "debug")
    assert (CHOSEN.log_level, CHOSEN.log_json) == ("info", True)
