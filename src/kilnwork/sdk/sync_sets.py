"""`kiln.SyncSet`: workers, data and flow of a SyncSet, declared in Python.

Used by programs. Declaring runs nothing: it builds the object that a YAML file would contain
(`manifest`), which `submit` sends to a server and `kiln.testing.run_set` runs in this process.
Steps are described in `set_steps`, submitting and following a set in `set_runs`. If plain Python
has to decide on results, use a step whose function spawns tasks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack

import msgspec

from kilnwork.api import flow_expressions, flow_program, kinds, sync_set, sync_set_validation
from kilnwork.sdk import (
    errors,
    job_parameters,
    serialization,
    set_blocks,
    set_expressions,
    set_options,
    set_runs,
    set_steps,
)
from kilnwork.sdk import task as sdk_task

Expression = set_expressions.Expression

S = TypeVar("S", bound=set_steps.Step)


class SyncSet(set_blocks.BlockOwner):
    """A SyncSet under construction; the end of its `with` block checks it as a whole.

    `name`: the name of the object. `pond`: the DataPond with its data. Other options: see
    `SetOptions`. Raises BadOption.
    """

    def __init__(
        self, name: str, *, pond: str = "default", **given: Unpack[set_options.SetOptions]
    ) -> None:
        self.name = name
        self.of = f"kiln.SyncSet({name!r})"
        unknown = given.keys() - {setting.name for setting in set_options.SETTINGS}
        if unknown:
            known = ", ".join(setting.name for setting in set_options.SETTINGS)
            raise errors.BadOption(f"{self.of}: no option is called {min(unknown)!r}: use {known}")
        self._pond, self._given = pond, dict(given)
        self._groups: list[dict[str, Any]] = []
        self._controller: dict[str, Any] | None = None
        self._snapshots: list[dict[str, Any]] = []
        self._objects: list[dict[str, Any]] = []
        self._outputs: list[tuple[str, set_steps.Step, str]] = []
        self._params: dict[str, Any] = {}
        self._names: dict[str, None] = {}
        self._result: Expression | None = None
        self._steps, self._finally = set_blocks.Steps(), set_blocks.Steps()
        self._catch: dict[tuple[str, ...], set_blocks.Steps] = {}
        self._open = [self._steps]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._check(self._body(_anywhere))

    # workers and data

    def group(self, name: str, **given: Unpack[set_options.GroupOptions]) -> str:
        """Declare a group of workers, and return its name; see `GroupOptions`.

        Raises BadOption.
        """
        unknown = given.keys() - set_options.GroupOptions.__annotations__.keys()
        if unknown:
            raise errors.BadOption(
                f"{self.of}: group {name}: no option is called {min(unknown)!r}: use "
                f"{', '.join(set_options.GroupOptions.__annotations__)}"
            )
        options: dict[str, Any] = dict(given)
        body = {
            field: options[option]
            for option, field in set_options.GROUP_FIELDS.items()
            if option in options
        }
        replicas = options.get("replicas", 1)
        if isinstance(replicas, set_options.SnapshotHandle):
            most = {"max": options["most"]} if "most" in options else {}
            body["replicasOf"] = {"snapshot": replicas.name, **most}
        else:
            body["replicas"] = replicas
            if "most" in options:
                body["elastic"] = {"max": options["most"]}
        if "near" in options:
            body["near"] = [one.name for one in options["near"]]
        self._groups.append({"name": name, **body})
        return name

    def controller(
        self,
        *,
        template: Mapping[str, Any] | None = None,
        service_account: str | None = None,
    ) -> str:
        """Declare a separate worker for functions that spawn tasks, and return its group's name.

        Pass the name to `.options(group=…)` of a step; the tasks that its function spawns run on
        the first group.
        """
        self._controller = _given({"template": template, "serviceAccountName": service_account})
        return sync_set.CONTROLLER

    def data(  # noqa: PLR0913 - where a snapshot comes from, by name
        self,
        name: str,
        *,
        source: str | None = None,
        uri: str | None = None,
        path: str = "",
        paths: Sequence[str] = (),
        glob: str = "",
        inline: Mapping[str, str] | None = None,
        output: tuple[str, str] | None = None,
        digest: str | None = None,
        shards: int | str | None = None,
        by: Literal["files", "range", "hash", "glob"] | None = None,
        key: str = "",
        patterns: Sequence[str] = (),
        unit: Literal["bytes", "rows"] = "bytes",
        copy: bool = False,
        deliver: Literal["all", "shard"] = "all",
    ) -> set_options.SnapshotHandle:
        """Declare data that all steps of a generation see unchanged, and return a handle.

        The data is taken from a `source` of the pond, from a `uri` below a source, from an `output`
        of another set (the names of the set and of the output), or from `inline`, a mapping of
        paths to texts. `path`, `paths` and `glob` select files. `digest`: the digest that the data
        must have.

        The data is divided into shards if any of `shards`, `by`, `key` and `patterns` is given.
        `shards`: their number, or the name of a group that has as many workers. `by`: how the data
        is divided: by `files`, whole files with about the same number of bytes in each shard; by
        `range`, whole lines with the same number of `unit` in each shard; by `hash` of the `key` of
        records, or of the paths of files without `key`; or by `glob`, one shard for each of
        `patterns`. The default is `hash` with `key`, `glob` with `patterns`, else `files`.

        `copy`: whether steps may write to a copy of the data. `deliver`: whether a node gets all of
        the data, or only the shards for its workers. Errors in the arguments are reported when the
        whole set is checked.
        """
        origin = {
            "source": source,
            "uri": uri,
            "inline": None if inline is None else dict(inline),
            "output": None if output is None else {"set": output[0], "name": output[1]},
            "path": path,
            "paths": list(paths),
            "glob": glob,
        }
        body: dict[str, Any] = {"name": name, "from": _given(origin)}
        if digest is not None:
            body["digest"] = digest
        if copy:
            body["access"] = "copy"
        if deliver != "all":
            body["deliver"] = deliver
        scheme: dict[str, Any] = _given({"key": key, "patterns": list(patterns)})
        if unit != "bytes":
            scheme["unit"] = unit
        if shards is not None:
            scheme["group" if isinstance(shards, str) else "count"] = shards
        if scheme or by is not None:
            default = "hash" if key else "glob" if patterns else "files"
            body["shard"] = {"by": by or default, **scheme}
        self._snapshots.append(body)
        return set_options.SnapshotHandle(name)

    def output(self, name: str, step: set_steps.Step, *, glob: str = "") -> None:
        """Keep the files that the tasks of a step write to `kiln.outputs()` as a snapshot of the
        pond.

        `glob`: a pattern of the files to keep; by default all are kept.
        """
        self._outputs.append((name, step, glob))

    def owns(self, manifest: Mapping[str, Any]) -> None:
        """Declare an object that belongs to the set, such as a ConfigMap.

        The object is created before the set's workers and deleted with the set.
        """
        self._objects.append(dict(manifest))

    def param(self, name: str, value: Any) -> Expression:
        """Declare a parameter of the flow and return the expression that stands for it.

        `value`: the JSON value of the parameter.
        """
        self._params[name] = job_parameters.plain(value)
        return Expression("params.", name)

    def expression(self, text: str) -> Expression:
        """Return an expression written in CEL, for operations that Python's operators cannot
        express. Raises BadOption.
        """
        try:
            flow_expressions.parse_field(text)
        except flow_expressions.ExpressionError as error:
            raise errors.BadOption(f"{self.of}: expression {text!r}: {error}") from error
        return Expression(text, atom=False)

    @property
    def error(self) -> Expression:
        """The failure of the flow, in steps of `on_failure` and `finally_`: `.step`, `.reason`,
        `.message`.
        """
        return Expression("error")

    # steps

    def call(self, runs: set_steps.Runs, /, **inputs: Any) -> set_steps.CallStep:
        """Add a step that calls a function with these inputs. Raises BadOption.

        A program may be given instead of a function; it gets the inputs in the file `$KILN_INPUT`.
        """
        name, of = self._named(runs)
        does = set_steps.work(runs, inputs, first={}, of=of)
        return self._add(set_steps.CallStep(name, self, does))

    def each(
        self,
        items: set_options.SnapshotHandle | set_steps.Step | Expression | Sequence[Any],
        runs: set_steps.Runs,
        /,
        **inputs: Any,
    ) -> set_steps.EachStep:
        """Add a step that calls a function for each shard of a snapshot, or for each item of a
        list.

        The function gets the shard or item as its first parameter that is not in `inputs`; a
        program gets it as the input `shard` or `item` (`shardOf` or `itemOf` if a step has that
        name). Raises BadOption.
        """
        name, of = self._named(runs)
        given = items if isinstance(items, Expression) else getattr(items, "as_expression", None)
        if given is None:
            given = self.param(f"{name}Items", items)
        item = "shard" if isinstance(items, set_options.SnapshotHandle) else "item"
        while item in self._names:
            item += "Of"
        does = set_steps.work(runs, inputs, first={item: Expression(item)}, of=of)
        return self._add(set_steps.EachStep(name, self, does, item=item, items=given))

    def join(
        self, step: set_steps.EachStep, runs: set_steps.Runs, /, **inputs: Any
    ) -> set_steps.JoinStep:
        """Add a step that calls a function with the list of the results of an `each` step.

        The list is its first parameter that is not in `inputs`. Raises BadOption.
        """
        name, of = self._named(runs)
        if not isinstance(step, set_steps.EachStep):
            raise errors.BadOption(
                f"{of}: joins {step!r}, which is no `each`: give its value to ss.call(…) instead"
            )
        does = set_steps.work(runs, inputs, first={"results": step.results}, of=of)
        return self._add(set_steps.JoinStep(name, self, does, joins=step))

    def when(
        self,
        condition: Expression,
        then: set_steps.Runs,
        /,
        *,
        otherwise: set_steps.Runs | None = None,
        **inputs: Any,
    ) -> set_steps.CallStep:
        """Add a step that calls `then` if a condition is true, and otherwise `otherwise`.

        Both get the same inputs. Without `otherwise` the step is skipped if the condition is false.
        Raises BadOption.
        """
        name, of = self._named(then)
        if not isinstance(condition, Expression):
            raise errors.BadOption(
                f"{of}: the condition is {condition!r}, known now: use a plain `if`"
            )
        does = set_steps.work(then, inputs, first={}, of=of)
        if otherwise is None:
            return self._add(set_steps.CallStep(name, self, does)).only_if(condition)
        other = set_steps.work(otherwise, inputs, first={}, of=f"{of}, otherwise")
        choice = set_steps.ChoiceStep(name, self, does, otherwise=other)
        return self._add(choice).only_if(condition)

    def fork(
        self, name: str = "fork", *, wait: Literal["all", "any"] | int = "all"
    ) -> set_blocks.ForkBlock:
        """Add a block of steps that run in parallel: the steps declared within its `with` block.

        `wait`: how many of the steps must succeed before the flow continues: "all", a number, or
        "any", which means one.
        """
        return self._add(set_blocks.ForkBlock(self.take_name(name), self, wait=wait))

    def repeat(self, name: str = "repeat", *, most: int) -> set_blocks.RepeatBlock:
        """Add a block of steps that is repeated until the condition of its `.until(…)` is true.

        Its steps are those declared within its `with` block. `most`: the number of rounds after
        which the block fails.
        """
        return self._add(set_blocks.RepeatBlock(self.take_name(name), self, most=most))

    def sequence(self, name: str = "sequence") -> set_blocks.Block:
        """Add a block of steps that run one after the other and count as one step.

        Use it as a branch of a fork, or for steps that share a condition or a timeout.
        """
        return self._add(set_blocks.Block(self.take_name(name), self))

    def on_failure(
        self, runs: set_steps.Runs, /, *, causes: Sequence[str] = (), **inputs: Any
    ) -> set_steps.CallStep:
        """Add a step that runs after the flow has failed.

        With `causes` it runs only after a failure for one of these reasons. Steps with the same
        `causes` belong together; only the first group whose causes match runs. The flow stays
        failed.
        """
        steps = self._catch.setdefault(tuple(causes), set_blocks.Steps())
        return self._aside(steps, runs, inputs)

    def finally_(self, runs: set_steps.Runs, /, **inputs: Any) -> set_steps.CallStep:
        """Add a step that runs at the end of the flow, whether it succeeded or failed."""
        return self._aside(self._finally, runs, inputs)

    def returns(self, value: "Expression | set_steps.Step") -> None:
        """Set the flow's result; by default it is the value of the last step."""
        self._result = value.as_expression if isinstance(value, set_steps.Step) else value

    # manifest and runs

    def manifest(self) -> dict[str, Any]:
        """Return the SyncSet as an object for `kiln apply`.

        Raises BadOption for errors in the set, and for functions that no worker could import.
        """
        body = self._body(_importable)
        self._check(body)
        return body

    def submit(self) -> set_runs.SetRun:
        """Create the SyncSet, or a new generation of an existing SyncSet; return at once.

        Functions that workers cannot import are shipped. Raises BadOption, NoSession,
        ConfigurationError.
        """
        server = set_runs.server(self.of)
        shipping = set_runs.Shipping()
        body = self._body(shipping.call)
        self._check(body)
        return set_runs.submit(server, body, shipping, of=self.of)

    def run(self, timeout: float | None = None) -> Any:
        """Submit the set, wait until it has finished and return its result.

        Raises the errors of `submit` and of `SetRun.result`.
        """
        return self.submit().result(timeout)

    def declared(self) -> tuple[dict[str, Any], dict[str, Callable[..., Any]]]:
        """Return the SyncSet object, and its functions by name.

        The steps in the object refer to the functions by these names. Used to run the set in this
        process. Raises BadOption.
        """
        found: dict[str, Callable[..., Any]] = {}

        def locate(function: Callable[..., Any]) -> dict[str, Any]:
            name = serialization.function_name(function)
            name = f"{name.partition(':')[0]}:{name.partition(':')[2].replace('<locals>.', '')}"
            name = name.replace("<lambda>", "anonymous")
            while found.setdefault(name, function) is not function:
                name += "_"
            return {"function": name}

        body = self._body(locate)
        self._check(body)
        return body, found

    def __repr__(self) -> str:
        return f"<SyncSet {self.name}: {len(self._names)} steps>"

    # for steps

    def take_name(self, wanted: str, *, instead_of: str = "") -> str:
        """Reserve a name for a step and return it; a number is appended if the name is taken.

        `instead_of`: the present name of a step that is renamed; then a name that is taken is an
        error. Raises BadOption.
        """
        if not flow_program.STEP_NAME.fullmatch(wanted):
            raise errors.BadOption(
                f"{self.of}: step {wanted!r}: must be named by 1 to 40 letters and digits, the "
                "first in lower case"
            )
        self._names.pop(instead_of, None)
        taken = {name.lower() for name in self._names} | flow_program.RESERVED
        if instead_of and wanted.lower() in taken:
            raise errors.BadOption(f"{self.of}: step {wanted!r}: another step has that name")
        name, number = wanted, 2
        while name.lower() in taken:
            name, number = f"{wanted}{number}", number + 1
        self._names[name] = None
        return name

    def enter_block(self, steps: set_blocks.Steps) -> None:
        """Add the steps that are declared from now on to this block."""
        self._open.append(steps)

    def leave_block(self, steps: set_blocks.Steps) -> None:
        """Add the steps that are declared from now on to the enclosing block again."""
        self._open.remove(steps)

    def _named(self, runs: set_steps.Runs) -> tuple[str, str]:
        """Return a name for a step that runs this function or program, and a description for
        messages.
        """
        name = self.take_name(set_steps.step_name(runs))
        return name, f"{self.of}: step {name}"

    def _add(self, step: S) -> S:
        self._open[-1].listed.append(step)
        return step

    def _aside(
        self, steps: set_blocks.Steps, runs: set_steps.Runs, inputs: Mapping[str, Any]
    ) -> set_steps.CallStep:
        name, of = self._named(runs)
        does = set_steps.work(runs, inputs, first={}, of=of)
        step = set_steps.CallStep(name, self, does)
        steps.listed.append(step)
        return step

    def _body(self, locate: set_steps.Locate) -> dict[str, Any]:
        if not self._groups:
            raise errors.BadOption(
                f'{self.of}: has no workers: say ss.group("worker", replicas=…) first'
            )
        flow: dict[str, Any] = {"do": self._steps.render(locate)}
        flow["params"] = self._params
        flow["result"] = (
            "" if self._result is None else f"${{ {set_expressions.text(self._result)} }}"
        )
        flow["catch"] = [
            {**_given({"causes": list(causes)}), "do": steps.render(locate)}
            for causes, steps in self._catch.items()
        ]
        flow["finally"] = self._finally.render(locate)
        spec: dict[str, Any] = {"resources": {"groups": self._groups}, "flow": _given(flow)}
        if self._controller is not None:
            spec["resources"]["controller"] = self._controller
        if self._objects:
            spec["resources"]["objects"] = self._objects
        data = _given({"snapshots": self._snapshots, "outputs": self._kept()})
        if data:
            spec["data"] = {**data, "pond": {"name": self._pond}}
        for setting in set_options.SETTINGS:
            if setting.name in self._given:
                _put(spec, setting.path, self._given[setting.name])
        return {
            "apiVersion": kinds.SYNC_SETS.api_version,
            "kind": kinds.SYNC_SETS.kind,
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def _kept(self) -> list[dict[str, Any]]:
        """Return the declared outputs with the current names of their steps.

        A step may have been renamed since its output was declared.
        """
        paths = dict(set_blocks.paths(self._steps))
        return [
            {"name": name, "step": paths.get(step, step.name), **_given({"glob": glob})}
            for name, step, glob in self._outputs
        ]

    def _check(self, body: Mapping[str, Any]) -> None:
        whole = {**body, "metadata": {"name": self.name, "namespace": "default"}}
        try:
            declared = msgspec.convert(whole, sync_set.SyncSet)
        except msgspec.ValidationError as error:
            raise errors.BadOption(f"{self.of}: {error}") from error
        problems = sync_set_validation.validate_sync_set(declared)
        if problems:
            text = "; ".join(f"{path} {text}" for path, text in problems)
            raise errors.BadOption(f"{self.of}: {text}")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def _put(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *outer, last = path
    for name in outer:
        spec = spec.setdefault(name, {})
    spec[last] = value


def _anywhere(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a `call` with a placeholder name, for checks only."""
    return {"function": "module:function"}


def _importable(function: Callable[..., Any]) -> dict[str, Any]:
    name = serialization.function_name(function)
    if sdk_task.function_of(serialization.located(function)) is not function:
        raise errors.BadOption(
            f"function {name}: workers cannot import it, so a manifest cannot name it: put it at "
            "the top of a module that they have, or let submit() send it along"
        )
    return {"function": name}
