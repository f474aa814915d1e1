"""Expected outcomes of a random program, found by evaluating it in plain Python.

Used by `run`. Knows what the documentation promises, not how it is implemented.
"""

from typing import Any

from support.programs import nodes, values

Outcome = Any
"""The plain form (`values.plain`) of a value or an error; of a pair, of its two futures."""

CANCELLED = ["error", "Cancelled", ""]
TIMED_OUT = ["error", "TaskTimedOut", ""]
INPUT_FAILED = ["error", "InputFailed", ""]
TASK_FAILED = ["error", "TaskFailed", ""]
NOT_PICKLABLE = ["error", "NotPicklable", ""]
LOST = ["error", "TaskLost", ""]


def outcomes(program: nodes.Program) -> dict[str, list[Outcome]]:
    """Return the outcomes that each call of the driver may have: one, or two if a cancel races."""
    known: dict[str, Outcome] = {}
    found = {}
    for node in program.calls:
        known[node.id] = evaluate(node, known)
        found[node.id] = [known[node.id]]
        if node.cancel == "racing":
            found[node.id].append(CANCELLED)
    for node in program.calls:
        if node.cancel == "alone":
            found |= {child.id: [evaluate(child, {})] for child in node.children}
    return found


def roots(program: nodes.Program, allowed: dict[str, list[Outcome]]) -> dict[str, set[str]]:
    """Return, for calls that never ran because of an input, the classes of the errors that may be
    the cause.

    Only where that error is one of a call of the driver itself.
    """
    known = {node.id: node for node in program.calls}
    found: dict[str, set[str]] = {}
    for node in program.calls:
        if allowed[node.id] != [INPUT_FAILED] or node.accept_failures:
            continue  # one that accepts failures has it from the task that it delegated to
        causes: set[str] = set()
        for each in node.inputs:
            if not each.ref:
                continue
            outcome = allowed[each.ref][0]
            if each.item >= 0:
                outcome = outcome[each.item]
            if is_error(outcome) and known[each.ref].op != "spawn":
                causes |= found.get(each.ref, set()) or {outcome[1]}
            elif is_error(outcome):
                causes.add("?")
        if causes and "?" not in causes and "InputFailed" not in causes:
            found[node.id] = causes
    return found


def evaluate(node: nodes.Node, known: dict[str, Outcome]) -> Outcome:
    """Return the outcome of one call; `known`: outcomes of its possible inputs."""
    inputs = [_input(each, known) for each in node.inputs]
    if not node.accept_failures and any(_failed(each) for each in inputs):
        return [INPUT_FAILED, INPUT_FAILED] if node.op == "pair" else INPUT_FAILED
    plain = [each for _, each in inputs]
    number = values.combine(node.id, plain)
    match node.op:
        case "raise":
            return values.plain_error(values.raised(node.how, node.id))
        case "lock":
            return NOT_PICKLABLE
        case "hang":
            return CANCELLED if node.cancel else TIMED_OUT
        case "crash" if node.times > 1:
            return LOST if node.how == "kill" else TASK_FAILED
        case "stream":
            return values.plain([number + at for at in range(node.times)])
        case "pair":
            return [
                values.plain(values.shaped(node.shape, number, node.size)),
                values.plain(number),
            ]
        case "ref":
            return values.plain(values.content(node.id, node.size))
        case "flaky" if node.options.get("retry_on", node.how) != node.how:
            return values.plain_error(values.raised(node.how, node.id))
        case "spawn" | "boxed":
            return _spawned(node, plain)
    return values.plain(values.shaped(node.shape, number, node.size))


def _input(given: nodes.Input, known: dict[str, Outcome]) -> tuple[bool, Any]:
    """Return whether the input failed, and what the function gets."""
    if given.ref:
        found = known[given.ref]
        if given.item >= 0:
            found = found[given.item]
        failed = is_error(found)
        if given.nested:
            found = ["dict", [["deep", ["list", [found]]]]]
        return failed, found
    if given.put_bytes:
        return False, values.plain(values.content("put", given.put_bytes))
    if given.bytes:
        return False, values.plain(values.content("plain", given.bytes))
    return False, values.plain(given.literal)


def _failed(given: tuple[bool, Any]) -> bool:
    return given[0]


def is_error(outcome: Outcome) -> bool:
    """Return whether a plain form is that of an error."""
    return isinstance(outcome, list) and outcome[:1] == ["error"]


def _spawned(node: nodes.Node, plain: list[Any]) -> Outcome:
    known: dict[str, Outcome] = {}
    for child in node.children:
        known[child.id] = evaluate(child, known)
    gathered = list(known.values())
    if node.op == "boxed":
        return ["boxed", gathered]
    if node.how == "delegate":
        return gathered[-1]
    if node.how == "raise":
        for each in gathered:
            if is_error(each):
                return each
    return values.plain(values.shaped(node.shape, values.combine(node.id, [plain, gathered]), 0))
