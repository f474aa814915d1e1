"""JSONPath exactly as defined by RFC 9535, in bounded time.

Used by result rules, which import this module when they compile the first path. The library is
python-jsonpath in strict mode; its hooks count the work, and `match()` and `search()` use `iregexp`
instead of Python's backtracking `re`. Pure: a path and a document, no I/O.
"""

import contextvars
import functools
from collections.abc import Iterable
from typing import Any, ClassVar

import jsonpath
from jsonpath import filter as filters
from jsonpath import function_extensions as functions
from jsonpath import parse

from kilnwork.api import iregexp, json_limits
from kilnwork.kit import errors

MAX_CHARS = 1024
"""Maximum length of a path: the parser of the library recurses."""

_NODE_STEPS = 20
_TEST_STEPS = 25
"""Number of steps counted for a node, and for a test in a filter: the library takes about 2 µs and
2.5 µs for them."""

_budget: contextvars.ContextVar[json_limits.Budget] = contextvars.ContextVar("budget")
"""Budget of the current evaluation: the library's hooks for tests and functions get no context."""


class PathError(errors.KilnError):
    """The text is not a JSONPath; the message gives the position."""


class Path:
    """A compiled JSONPath. It may be shared between threads."""

    def __init__(self, text: str) -> None:
        """Compile a path; raises PathError."""
        if len(text) > MAX_CHARS:
            raise PathError(f"has {len(text)} characters; {MAX_CHARS} are allowed")
        try:
            path = _ENVIRONMENT.compile(text)
        except jsonpath.JSONPathError as error:
            # not str(error), which fails for an empty path
            index = error.token.index if error.token else -1
            where = f" (character {index})" if index >= 0 else ""
            raise PathError(f"is no JSONPath (RFC 9535): {error.args[0]}{where}") from error
        except (ArithmeticError, ValueError) as error:
            # from numbers such as [1e5] and 1e999, which the library reads with int() and float()
            raise PathError(f"is no JSONPath (RFC 9535): {error}") from error
        except iregexp.PatternError as error:
            raise PathError(f"has a pattern that {error}") from error
        if not isinstance(path, jsonpath.JSONPath):
            raise PathError("is several paths")
        self._query = _Query(env=_ENVIRONMENT, segments=path.segments)

    def select(self, document: Any, budget: json_limits.Budget) -> list[Any]:
        """Return the values at the path, in the order of the document. Raises LimitExceeded."""
        structured = isinstance(document, (dict, list))
        token = _budget.set(budget)
        try:
            # in a scalar, only the root can match
            found = [node.obj for node in self._query.finditer(document if structured else 0)]
        except RecursionError as error:
            raise json_limits.LimitExceeded("is too deep for a path with ..") from error
        finally:
            _budget.reset(token)
        return found if structured else [document for _ in found]


@functools.lru_cache(maxsize=512)
def compile_path(text: str) -> Path:
    """Compile a path, with a cache. Raises PathError."""
    return Path(text)


class _Node(jsonpath.JSONPathMatch):
    """A node that counts itself in the budget, and keeps neither path nor children.

    A node of the library copies the path of its parent and keeps all of its children.
    """

    __slots__ = ()

    def __init__(self, obj: object, root: Any, filter_context: Any) -> None:
        _budget.get().spend(_NODE_STEPS)
        super().__init__(
            obj=obj, root=root, filter_context=filter_context, parent=None, path="", parts=()
        )

    def new_child(self, obj: object, key: int | str) -> "_Node":
        return _Node(obj, self.root, self._filter_context)

    def add_child(self, *children: jsonpath.JSONPathMatch) -> None:
        pass


class _Query(jsonpath.JSONPath):
    """A path, or a query in a filter. The base class starts at a node that is not counted."""

    def finditer(
        self, data: Any, *, filter_context: Any = None
    ) -> Iterable[jsonpath.JSONPathMatch]:
        nodes: Iterable[jsonpath.JSONPathMatch] = [_Node(data, data, filter_context or {})]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Parser(parse.Parser):
    """The library's parser, with our queries in filters."""

    def parse_absolute_query(self, stream: Any) -> Any:
        return self._counted(super().parse_absolute_query(stream))

    def parse_relative_query(self, stream: Any) -> Any:
        return self._counted(super().parse_relative_query(stream))

    def _counted(self, query: Any) -> Any:
        query.path = _Query(env=self.env, segments=query.path.segments)
        return query


class _Regexp(functions.FilterFunction):
    """The function `match()` or `search()`; its pattern was checked when the path was compiled."""

    arg_types: ClassVar = [functions.ExpressionType.VALUE, functions.ExpressionType.VALUE]
    return_type = functions.ExpressionType.LOGICAL

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def __call__(self, value: object, pattern: str) -> bool:
        if not isinstance(value, str):
            return False
        compiled = iregexp.compile_pattern(pattern)
        matches = compiled.fullmatch if self._whole else compiled.search
        return matches(value, _budget.get())


class _Environment(jsonpath.JSONPathEnvironment):
    """The environment of RFC 9535, with counted work."""

    parser_class = _Parser

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Regexp(whole=True)
        self.function_extensions["search"] = _Regexp(whole=False)

    def validate_function_extension_signature(self, token: Any, args: list[Any]) -> list[Any]:
        args = super().validate_function_extension_signature(token, args)
        if token.value in ("match", "search"):
            if not isinstance(args[1], filters.StringLiteral):
                problem = f"the pattern of {token.value}() must be a literal"
                raise jsonpath.JSONPathTypeError(problem, token=token)
            iregexp.compile_pattern(args[1].value)
        return args

    def is_truthy(self, obj: object) -> bool:
        _budget.get().spend(_TEST_STEPS)
        return super().is_truthy(obj)

    def compare(self, left: object, operator: str, right: object) -> bool:
        budget = _budget.get()
        budget.spend(_TEST_STEPS)
        # the library compares lists and objects as Python does: [true] == [1]
        both = type(left) in (dict, list) and type(right) in (dict, list)
        if both and operator in ("==", "!=", "<=", ">="):
            return json_limits.equal(left, right, budget) is not (operator == "!=")
        if isinstance(left, str):
            budget.spend(len(left) >> 6)
        return super().compare(left, operator, right)


_ENVIRONMENT = _Environment(strict=True)
