"""What the embedded API server of `kiln up` serves: Kubernetes' kinds and ours."""

from kilnwork.cli import embedded_kinds
from kilnwork.controlplane.apiserver import catalog

CATALOG = catalog.Catalog(embedded_kinds.EXTENSIONS.kinds)
SERVED = CATALOG.served
of = CATALOG.of
find = CATALOG.find
