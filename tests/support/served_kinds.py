"""The kinds that the embedded API server of `kiln up` serves: Kubernetes' and ours."""

from kilnwork.cli import embedded_crds
from kilnwork.controlplane.apiserver import catalog, definitions

CATALOG = catalog.Catalog(embedded_crds.EXTENSIONS.kinds)
for _kind in embedded_crds.EXTENSIONS.kinds:
    CATALOG.define(_kind.name, definitions.served_by(_kind.definition))
SERVED = CATALOG.served
kind_of = CATALOG.of
find = CATALOG.find
