"""Rules for the steps of a flow that write outputs of their SyncSet. No I/O.

Used by the validation of SyncSets.
"""

from collections.abc import Iterator, Sequence

from kilnwork.api import flow, flow_program, sync_set

Problem = flow_program.Problem
_Kind = flow_program.NodeKind


def problems(
    declared: flow.Flow, outputs: Sequence[sync_set.Output]
) -> Iterator[tuple[int, Problem]]:
    """Yield the position of each invalid output with its problem; nothing if the flow itself is
    invalid."""
    if not outputs:
        return
    program, found = flow_program.build(declared)
    if found:
        return
    steps = dict(_work_steps(program.nodes, ""))
    for position, output in enumerate(outputs):
        if text := _problem(output, steps):
            yield position, Problem("step", text)


def _problem(output: sync_set.Output, steps: dict[str, flow_program.FlowNode]) -> str:
    node = steps.get(output.step)
    if node is None:
        listed = ", ".join(path for path, one in steps.items() if one.kind.leaf)
        return f"names no step of flow.do: {output.step!r}; there are {listed}"
    for one in node.with_alternative:
        if not one.kind.leaf:
            inside = ", ".join(f"{output.step}.{child.name}" for child in one.children)
            return f"{output.step} holds other steps: name one of them, {inside}"
        if one.needs_no_group:
            return (
                f"{output.step} does not run on workers of the set: give it a call or a command "
                "instead of its taskTemplate"
            )
        if one.step.deterministic:
            return (
                f"{output.step} is deterministic: its results are used again without running it, "
                "and no file is written then; leave one of the two out"
            )
    return ""


def _work_steps(
    nodes: Sequence[flow_program.FlowNode], prefix: str
) -> Iterator[tuple[str, flow_program.FlowNode]]:
    for node in nodes:
        path = f"{prefix}{node.name}"
        yield path, node
        for one in node.with_alternative:
            yield from _work_steps(one.children, f"{path}.")
