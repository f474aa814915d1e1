"""Validation of the names in a flow: earlier steps, snapshots, parameters, groups. No I/O.

Used by the validation of SyncSets, by the plan of flows and by `kilnwork.testing`. A step may refer
to earlier steps of its own list and of the enclosing lists. Therefore a flow has no cycles except
for `until`; a reference to the step itself or to a later step is a problem.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kilnwork.api import flow, flow_expressions, flow_program

Problem = flow_program.Problem
_Kind = flow_program.NodeKind

STEP_MEMBERS = ("value", "results", "state", "counts")
SET_MEMBERS = ("name", "generation")
CONTROLLER = "controller"
"""Name of the group that is used only by steps that refer to it explicitly."""

ERROR_MEMBERS = ("step", "reason", "message")


def problems(
    declared: flow.Flow,
    *,
    snapshots: Mapping[str, bool] | Collection[str] = (),
    groups: Collection[str] | None = None,
) -> list[Problem]:
    """Return the problems of a flow.

    `snapshots`: names of the SyncSet's snapshots; a mapping also says whether each one has shards.
    `groups`: names of its groups of workers; None: groups are not checked.
    """
    program, found = flow_program.build(declared)
    if found:
        return found
    return list(_Checker(program, declared, snapshots, groups).problems())


def mark_kept_steps(program: flow_program.Program) -> None:
    """Mark the steps whose values and results are read by expressions or by the result of the flow.

    Values and results of other steps are not kept.
    """
    read = {
        name.root
        for names in _all_names(program)
        for name in names
        if name.member in ("value", "results", None)
    }
    last = None if program.result is not None else program.nodes[-1]
    for node in program.all_nodes():
        if node.name in read or (last is not None and node.name == last.name):
            _mark(node, named=node.name in read)


def _mark(node: flow_program.FlowNode, *, named: bool) -> None:
    node.is_kept = True
    node.is_referenced = node.is_referenced or named
    inside = node.children if node.kind is _Kind.FORK else node.children[-1:]
    for child in inside:
        for one in child.with_alternative:
            _mark(one, named=named)


def _all_names(program: flow_program.Program) -> Iterator[tuple[flow_expressions.Name, ...]]:
    for node in program.all_nodes():
        yield from (names for _, names in node.expressions)
        if node.condition_of_loop is not None:
            yield node.condition_of_loop.names
    if program.result is not None:
        yield program.result.names


class _Checker:
    def __init__(
        self,
        program: flow_program.Program,
        declared: flow.Flow,
        snapshots: Mapping[str, bool] | Collection[str],
        groups: Collection[str] | None,
    ) -> None:
        self._program, self._params, self._groups = program, declared.params, groups
        self._snapshots = (
            snapshots if isinstance(snapshots, Mapping) else dict.fromkeys(snapshots, True)
        )
        self._every = {node.name: node for node in program.all_nodes()}

    def problems(self) -> Iterator[Problem]:
        yield from self._twice()
        for prefix, nodes in self._program.sections:
            known = {} if not prefix else {node.name: node for node in self._program.nodes}
            yield from self._list(nodes, known, failed=bool(prefix))
        result = self._program.result
        if result is not None:
            known = {node.name: node for node in self._program.nodes}
            yield from self._names("result", result.names, known)

    def _twice(self) -> Iterator[Problem]:
        """Yield names that occur more than once in the flow, ignoring case: they are parts of
        task names."""
        seen: dict[str, str] = {}
        for node in self._program.all_nodes():
            if node.path.endswith(".else"):
                continue
            first = seen.setdefault(node.name.lower(), node.path)
            if first != node.path:
                yield Problem(node.path, f"has the name of another step, {first}")

    def _list(
        self,
        nodes: Iterable[flow_program.FlowNode],
        known: Mapping[str, flow_program.FlowNode],
        *,
        failed: bool,
    ) -> Iterator[Problem]:
        known = dict(known)
        for node in nodes:
            for one in node.with_alternative:
                yield from self._node(one, known, failed=failed)
            known[node.name] = node

    def _node(
        self,
        node: flow_program.FlowNode,
        known: Mapping[str, flow_program.FlowNode],
        *,
        failed: bool,
    ) -> Iterator[Problem]:
        item = node.step.each if node.kind is _Kind.EACH else ""
        if item and item in self._every:
            yield Problem(f"{node.path}.each", f"has the name of a step, {item}")
        joined = list(self._join(node, known))
        yield from joined
        for path, names in node.expressions if not joined else ():
            yield from self._names(path, names, known, failed=failed)
        yield from self._group(node)
        yield from self._of(node)
        if node.kind is _Kind.FORK:
            for child in node.children:
                yield from self._list([child], known, failed=failed)
            return
        inside = {**known, node.name: node} if node.kind is _Kind.UNTIL else known
        yield from self._list(node.children, inside, failed=failed)
        if node.condition_of_loop is not None:
            inside = {**inside, **{child.name: child for child in node.children}}
            path, names = f"{node.path}.until", node.condition_of_loop.names
            yield from self._names(path, names, inside, failed=failed)

    def _names(
        self,
        path: str,
        names: Iterable[flow_expressions.Name],
        known: Mapping[str, flow_program.FlowNode],
        *,
        failed: bool = False,
    ) -> Iterator[Problem]:
        for name in names:
            text = self._problem(name, known, failed=failed)
            if text:
                yield Problem(path, text)

    def _problem(
        self,
        name: flow_expressions.Name,
        known: Mapping[str, flow_program.FlowNode],
        *,
        failed: bool,
    ) -> str:
        root, member = name
        if root == "data":
            return _member("data", member, self._snapshots, "snapshot")
        if root == "params":
            return _member("params", member, self._params, "parameter")
        if root == "set":
            return _member("set", member, SET_MEMBERS, "member")
        if root == "error":
            if not failed:
                return "names error, which only catch and finally have"
            return "" if member is None else _member("error", member, ERROR_MEMBERS, "member")
        if root in known:
            return _step_member(known[root], member)
        if root in self._every:
            return f"names {root}, a step that is not over by then; name only steps before it"
        steps = ", ".join(known) or "none yet"
        return f"names {root}, which is unknown here; steps so far: {steps}"

    def _group(self, node: flow_program.FlowNode) -> Iterator[Problem]:
        if self._groups is None or not node.kind.leaf:
            return
        path, group, groups = f"{node.path}.group", node.step.group, sorted(self._groups)
        others = [name for name in groups if name != CONTROLLER] or groups
        if group and group not in groups:
            yield Problem(
                path, f"names {group}, no group; there are: {', '.join(groups) or 'none'}"
            )
        elif not group and len(others) != 1 and not node.needs_no_group:
            yield Problem(path, f"is needed: one of {', '.join(groups) or 'no groups'}")

    def _join(
        self, node: flow_program.FlowNode, known: Mapping[str, flow_program.FlowNode]
    ) -> Iterator[Problem]:
        join = node.step.join
        if join and (join not in known or known[join].kind is not _Kind.EACH):
            each = [name for name, one in known.items() if one.kind is _Kind.EACH]
            listed = ", ".join(each) or "none"
            text = f"names {join}, no step with `each` before it; there are: {listed}"
            yield Problem(f"{node.path}.join", text)

    def _of(self, node: flow_program.FlowNode) -> Iterator[Problem]:
        of = node.items
        if of is None or of.path[:1] != ("data",) or len(of.path) != 2:
            return
        if not self._snapshots.get(of.path[1], True):
            text = f"names data.{of.path[1]}, which has no shards: give the snapshot a `shard`"
            yield Problem(f"{node.path}.of", text)


def _member(root: str, member: str | None, known: Iterable[str], noun: str) -> str:
    if member is not None and member in known:
        return ""
    listed = ", ".join(f"{root}.{one}" for one in known) or "none"
    shown = root if member is None else f"{root}.{member}"
    return f"names {shown}, no {noun}; there are: {listed}"


def _step_member(node: flow_program.FlowNode, member: str | None) -> str:
    members = [one for one in STEP_MEMBERS if node.kind is _Kind.EACH or one != "results"]
    members = [one for one in members if node.kind is not _Kind.EACH or one != "value"]
    if node.kind is _Kind.UNTIL:
        members.append("iteration")
    if member in members:
        return ""
    shown = node.name if member is None else f"{node.name}.{member}"
    return f"names {shown}; of this step there are: {', '.join(members)}"
