"""Random stories of requests, to be played on several API servers and compared.

A story is data and depends only on its seed. Values that a server generates are referenced by the
step that returned them: `{"of": 3, "at": ["metadata", "uid"]}` is that field of the response to
step 3.
"""

import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any

from support.kube_servers import APPLY, JSON_PATCH, MERGE, STRATEGIC

NAMES = ("a", "b")
_ODD: tuple[Any, ...] = (
    *(None, 5, -1, 0, 1.5, 2**40, True, "", "x", "y-1", "UPPER_case", "ü", "a/b", "10"),
    *([], {}, [None], ["x", "x"], [{}], {"x": 1}, {"x": "y"}, {"x": None}, "2020-01-01T00:00:00Z"),
)
_POD_SPEC = {
    "schedulerName": "missing",
    "automountServiceAccountToken": False,
    "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "1"}]}],
}
_ROLE = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind whose objects a story may use. `bodies`: valid content beside metadata."""

    path: str
    kind: str
    api_version: str
    bodies: tuple[dict[str, Any], ...]
    subresources: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """Return whether it is a Task, TaskObject or TaskCluster."""
        return self.api_version.startswith("kilnwork.dev/")


def kinds(group: str) -> list[Kind]:
    """Return the kinds of stories; Widgets are in this group. `*` stands for the namespace."""
    return [*_built_in(), *_custom(group)]


def _built_in() -> list[Kind]:
    return [
        Kind(
            "/api/v1/namespaces/*/configmaps",
            "ConfigMap",
            "v1",
            ({"data": {"k": "1", "l": "2"}}, {"binaryData": {"b": "AAE="}}, {"immutable": True}),
        ),
        Kind(
            "/api/v1/namespaces/*/secrets",
            "Secret",
            "v1",
            (
                {"data": {"k": "AAE="}},
                {"stringData": {"k": "1"}, "type": "x/y"},
                {"type": "kubernetes.io/basic-auth", "data": {"username": "AAE="}},
            ),
        ),
        Kind(
            "/api/v1/namespaces/*/pods",
            "Pod",
            "v1",
            ({"spec": _POD_SPEC},),
            subresources=("status",),
        ),
        Kind(
            "/apis/coordination.k8s.io/v1/namespaces/*/leases",
            "Lease",
            "coordination.k8s.io/v1",
            (
                {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 5, "leaseTransitions": 1}},
                {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}},
                {},
            ),
        ),
        Kind(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/*/roles",
            "Role",
            "rbac.authorization.k8s.io/v1",
            (_ROLE,),
        ),
    ]


def _custom(group: str) -> list[Kind]:
    ours = "kilnwork.dev/v1alpha1"
    return [
        Kind(
            f"/apis/{ours}/namespaces/*/tasks",
            "Task",
            ours,
            (
                {"spec": {"command": ["a", "b"], "env": [{"name": "E", "value": "1"}]}},
                {"spec": {"call": {"function": "a:b", "args": [1]}, "retry": {"maxAttempts": 2}}},
            ),
            subresources=("status",),
        ),
        Kind(f"/apis/{ours}/namespaces/*/taskobjects", "TaskObject", ours, ({"data": [1]},)),
        Kind(
            f"/apis/{ours}/namespaces/*/taskclusters",
            "TaskCluster",
            ours,
            ({"spec": {"replicas": 2}}, {"spec": {"slotsPerWorker": 2, "template": {"spec": {}}}}),
            subresources=("status", "scale"),
        ),
        Kind(
            f"/apis/{group}/v1/namespaces/*/widgets",
            "Widget",
            f"{group}/v1",
            (
                {"spec": {"size": 1, "tags": ["x"], "either": "5"}},
                {"spec": {"size": 2, "ports": [{"name": "p", "port": 1}], "color": "blue"}},
            ),
            subresources=("status", "scale"),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `form`: the media type of its body."""

    method: str
    path: str
    body: Any = None
    form: str = "application/json"
    query: dict[str, Any] = field(default_factory=dict)


class Writer:
    """Writes the stories of one seed."""

    def __init__(self, seed: int | str, kind: Kind) -> None:
        self._dice = random.Random(f"{seed}")
        self.kind = kind
        self.steps: list[Step] = []
        self._whole: list[int] = []
        self._lists: list[int] = []
        self._drawn = False

    def story(self, length: int) -> list[Step]:
        """Return a story of so many steps, with a look at everything at the end."""
        acts = (
            *((self._create, 6), (self._update, 5), (self._patch, 8), (self._apply, 5)),
            *((self._delete, 3), (self._list, 4), (self._read, 2), (self._delete_all, 1)),
        )
        self._lists.append(self._add("GET", self.kind.path))
        self._whole.append(self._add("POST", self.kind.path, self._plain("a")))
        while len(self.steps) < length:
            self._dice.choices([act for act, _ in acts], [often for _, often in acts])[0]()
        self._add("GET", self.kind.path)
        watched = {"of": 0, "at": ["metadata", "resourceVersion"]}
        query = {"watch": "1", "resourceVersion": watched, "timeoutSeconds": "1"}
        self._add("GET", self.kind.path, query=query)
        return self.steps

    def _add(self, method: str, path: str, body: Any = None, **more: Any) -> int:
        self.steps.append(Step(method, path, body, **more))
        return len(self.steps) - 1

    def _one(self) -> str:
        return f"{self.kind.path}/{self._name()}"

    def _name(self) -> str:
        return self._dice.choice(NAMES)

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share

    def _plain(self, name: str | None) -> dict[str, Any]:
        body = copy.deepcopy(self._dice.choice(self.kind.bodies))
        metadata: dict[str, Any] = {"name": name} if name else {"generateName": "made-"}
        if self._chance(0.4):
            metadata["labels"] = {"x": self._dice.choice("yz")}
        if self._chance(0.2):
            metadata["annotations"] = {"n": "1"}
        if self._chance(0.15):
            metadata["finalizers"] = ["test.dev/f"]
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": metadata,
            **body,
        }

    def _spoil(self, body: Any, often: float = 0.5) -> Any:
        """Return the body, sometimes with something invalid in it."""
        while self._chance(often):
            holders = list(_holders(body))
            if not holders:
                return body
            holder = self._dice.choice(holders)
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            match self._dice.randrange(4):
                case 0 if isinstance(holder, dict):
                    holder[self._dice.choice(["odd", "Name", "k", "x", "BAD key"])] = self._odd()
                case 1 if keys:
                    del holder[self._dice.choice(keys)]
                case 2 if isinstance(holder, list) and holder:
                    holder.append(copy.deepcopy(self._dice.choice(holder)))
                case _ if keys:
                    holder[self._dice.choice(keys)] = self._odd()
            often /= 2
        return body

    def _odd(self) -> Any:
        return copy.deepcopy(self._dice.choice(_ODD))

    def _query(self) -> dict[str, Any]:
        query: dict[str, Any] = {}
        if self._chance(0.15):
            query["dryRun"] = self._dice.choice(["All", "All", "All", "x"])
        if self._chance(0.4):
            query["fieldValidation"] = self._dice.choice(
                ["Strict", "Strict", "Warn", "Ignore", "x"]
            )
        if self._chance(0.3):
            query["fieldManager"] = self._dice.choice(["one", "two", "x" * 129])
        return query

    def _create(self) -> None:
        name = None if self._chance(0.1) and not self._drawn else self._name()
        self._drawn = self._drawn or name is None
        if self._chance(0.1):
            name = self._dice.choice(["UP", "a.b", "a_b", "x" * 254, "-a", "a/b", "..", "ü"])
        body = self._spoil(self._plain(name))
        self._whole.append(self._add("POST", self.kind.path, body, query=self._query()))

    def _update(self) -> None:
        path = self._one()
        if self._chance(0.5):  # a modified copy of what was read
            self._whole.append(self._add("GET", path))
            body: Any = {"of": len(self.steps) - 1, "at": [], "with": self._spoil(self._changes())}
        else:
            body = self._plain(path.removeprefix(self.kind.path + "/").partition("/")[0])
            if self._chance(0.5):
                body["metadata"]["resourceVersion"] = self._seen("resourceVersion")
            body = self._spoil(body)
        self._whole.append(self._add("PUT", path, body, query=self._query()))

    def _changes(self) -> dict[str, Any]:
        body = self._plain("a")
        body["metadata"].pop("name")
        return {key: body[key] for key in body if key not in ("kind", "apiVersion")}

    def _seen(self, what: str) -> Any:
        return {"of": self._dice.choice(self._whole), "at": ["metadata", what]}

    def _patch(self) -> None:
        path, query = self._one(), self._query()
        if self.kind.subresources and self._chance(0.2):
            self._patch_below(path, query)
            return
        form = self._dice.choice((MERGE, MERGE, JSON_PATCH, STRATEGIC))
        if form == JSON_PATCH:
            body: Any = [self._operation() for _ in range(self._dice.randint(1, 3))]
        else:
            body = self._spoil(self._changes(), 0.7)
            if self._chance(0.2):
                what = self._dice.choice(["resourceVersion", "uid"])
                body = {"metadata": {what: self._seen(what), "labels": {"x": "y"}}}
            if self._chance(0.3):
                body = {"metadata": {"finalizers": None, "labels": {"x": None}}}
        self._whole.append(self._add("PATCH", path, body, form=form, query=query))

    def _patch_below(self, path: str, query: dict[str, Any]) -> None:
        """Patch only the status, or only the number of replicas."""
        below = self._dice.choice(self.kind.subresources)
        field = "replicas" if self.kind.kind != "Task" else "attempts"
        part = "status" if below == "status" else "spec"
        value = self._dice.choice([1, 2, 3, -1, "x", None])
        body = {part: {"phase" if self.kind.kind == "Pod" else field: value}}
        self._whole.append(self._add("PATCH", f"{path}/{below}", body, form=MERGE, query=query))

    def _operation(self) -> dict[str, Any]:
        paths = list(_pointers(self._plain("a")))
        operation = self._dice.choice(["add", "add", "replace", "remove", "test", "move", "copy"])
        found = {"op": operation, "path": self._dice.choice([*paths, "/metadata/labels/q", "/odd"])}
        if operation in ("add", "replace", "test"):
            found["value"] = self._dice.choice(["1", "y", self._odd()])
        if operation in ("move", "copy"):
            found["from"] = self._dice.choice(paths)
        return found if self._chance(0.95) else self._spoil(found, 1)

    def _apply(self) -> None:
        path = self._one()
        body = self._plain(path.removeprefix(self.kind.path + "/").partition("/")[0])
        query = {"fieldManager": "one", **self._query()}
        if self._chance(0.5):
            query["force"] = "true"
        named = body.pop("metadata")
        body = {**self._spoil(body, 0.3), "metadata": named}
        self._whole.append(self._add("PATCH", path, body, form=APPLY, query=query))

    def _delete(self) -> None:
        body: Any = None
        if self._chance(0.5):
            body = {"propagationPolicy": self._dice.choice(["Background", "Background", "x"])}
            if self._chance(0.4):
                what = self._dice.choice(["resourceVersion", "uid"])
                body["preconditions"] = {what: self._seen(what)}
            if self._chance(0.3):
                body["gracePeriodSeconds"] = self._dice.choice([0, 5, -1])
            body = self._spoil(body, 0.3)
        query = {"dryRun": "All"} if body is None and self._chance(0.2) else {}
        self._add("DELETE", f"{self.kind.path}/{self._name()}", body, query=query)

    def _delete_all(self) -> None:
        query = {"labelSelector": "x"} | self._selection()
        self._add("DELETE", self.kind.path, query=query)

    def _read(self) -> None:
        query: dict[str, Any] = {}
        if self._chance(0.3):
            query["resourceVersion"] = self._dice.choice(
                ["0", "x", "-1", self._seen("resourceVersion")]
            )
        self._add("GET", self._one(), query=query)

    def _selection(self) -> dict[str, Any]:
        query: dict[str, Any] = {}
        labels = ("x=y", "x", "x,x!=y", "x in (y,z)", "x,x notin (y)", "x>1", "=", "x in y")
        fields = ("name=a", "name!=a", "namespace=*", "namespace")
        if self._chance(0.5):
            query["labelSelector"] = self._dice.choice(labels)
        if self._chance(0.3):
            query["fieldSelector"] = f"metadata.{self._dice.choice(fields)}"
        return query

    def _listed(self, what: str) -> Any:
        return {"of": self._dice.choice(self._lists), "at": ["metadata", what]}

    def _list(self) -> None:
        query = self._selection()
        if self._chance(0.4):
            query = {"limit": self._dice.choice(["1", "1", "2", "0", "-1", "x"])}
        if self._chance(0.2):
            query["continue"] = self._dice.choice(["x", self._listed("continue")])
        if self._chance(0.3):
            version = self._listed("resourceVersion")
            query["resourceVersion"] = self._dice.choice(["", "0", "x", version])
        if self._chance(0.15):
            query["resourceVersionMatch"] = self._dice.choice(["Exact", "NotOlderThan", "x"])
        self._lists.append(self._add("GET", self.kind.path, query=query))


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list) and not (isinstance(value, dict) and "of" in value):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _pointers(value: Any, at: str = "") -> Any:
    if at:
        yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _pointers(item, f"{at}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        yield f"{at}/-"
        for place, item in enumerate(value):
            yield from _pointers(item, f"{at}/{place}")


def shown(step: Step) -> str:
    body = "" if step.body is None else f" {step.form.partition('/')[2]} {json.dumps(step.body)}"
    return f"{step.method} {step.path} {step.query or ''}{body}"
