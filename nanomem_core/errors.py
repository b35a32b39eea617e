"""Every error the library raises on purpose, in one tree.

Each class also inherits the builtin a caller would expect, so ``except ValueError`` keeps working::

    NanomemError
    ├── InputError (ValueError)                an argument has the wrong form or range
    │   ├── FilterError                        a filter that can't be understood
    │   └── TimeError                          a time that can't be read
    ├── ConfigError (ValueError)               a setting is wrong; carries `source` and `key`
    ├── NotFoundError (LookupError)            no such record, scope or file content
    ├── ClosedError (ValueError)               the object was closed before this call
    ├── ConflictError                          a precondition failed: somebody wrote first
    ├── VetoError                              a plugin refused the commit
    ├── PluginError
    │   ├── PluginLoadError (ImportError)      a plugin could not be imported or registered
    │   ├── HookError (TypeError)              a hook has a wrong name or signature
    │   ├── UnknownComponentError (LookupError)  no plugin offers a component of that name
    │   └── DuplicateComponentError            two plugins offer one name
    ├── StorageError (OSError)
    │   ├── CorruptionError                    bytes on disk are not what was written
    │   ├── FormatError                        the file is of another kind or a newer version
    │   ├── LockTimeoutError (TimeoutError)    another process kept the lock for too long
    │   └── ReadOnlyError (PermissionError)    a write to a store opened for reading
    ├── EmbedderError                          an embedder failed or broke its contract
    │   ├── EmbedderMismatchError              the store holds vectors of another embedder
    │   └── WidthError                         a model's vectors are not as wide as was said or seen
    └── GeneratorError                         a language model failed or broke its contract
        ├── BudgetError                        the budget of tokens is used up; the model was not asked
        ├── EndpointError                      the server of a model can't be used; an EmbedderError as well
        │   ├── BadResponseError               it answers, but not what its protocol says
        │   ├── EndpointTimeoutError (TimeoutError)  it takes too long
        │   ├── RefusedError                   it answers with a status that means no
        │   │   ├── AuthenticationError (PermissionError)  the key is missing, wrong, or not enough
        │   │   ├── ContextLengthError         the text is longer than the model can read
        │   │   └── RateLimitedError           it was asked too often, or the quota is used up
        │   └── UnreachableError (ConnectionError)  no connection, or one that breaks
        └── ReplyError (ValueError)            what a model answered can't be used
"""

from __future__ import annotations

__all__ = [
    "AuthenticationError",
    "BadResponseError",
    "BudgetError",
    "ClosedError",
    "ConfigError",
    "ConflictError",
    "ContextLengthError",
    "CorruptionError",
    "DuplicateComponentError",
    "EmbedderError",
    "EmbedderMismatchError",
    "EndpointError",
    "EndpointTimeoutError",
    "FilterError",
    "FormatError",
    "GeneratorError",
    "HookError",
    "InputError",
    "LockTimeoutError",
    "NanomemError",
    "NotFoundError",
    "PluginError",
    "PluginLoadError",
    "RateLimitedError",
    "ReadOnlyError",
    "RefusedError",
    "ReplyError",
    "StorageError",
    "TimeError",
    "UnknownComponentError",
    "UnreachableError",
    "VetoError",
    "WidthError",
]


class NanomemError(Exception):
    """Base of every error of this library."""


class InputError(NanomemError, ValueError):
    """An argument has the wrong form or range; nothing was changed."""


class FilterError(InputError):
    """A ``filter=`` mapping uses an unknown operator or a value of the wrong shape."""


class TimeError(InputError):
    """A value can't be read as a point in time."""


class ConfigError(NanomemError, ValueError):
    """A setting is wrong.

    Attributes:
        key: dotted name of the setting, or None.
        source: where the value came from (a file, a variable, an argument), or None.
    """

    def __init__(self, message: str, *, key: str | None = None, source: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.source = source


class NotFoundError(NanomemError, LookupError):
    """What was asked for by name does not exist.

    Attributes:
        id: the name that was asked for, or None.
    """

    def __init__(self, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class ClosedError(NanomemError, ValueError):
    """The memory, store or embedder was closed before this call."""


class ConflictError(NanomemError):
    """A precondition did not hold: somebody else wrote first, or the id is taken.

    Attributes:
        id: the record concerned, or None for a whole scope.
        expected: the version (or head) the caller expected; 0 means "absent".
        found: the version (or head) that is stored.
    """

    def __init__(
        self,
        message: str,
        *,
        id: str | None = None,
        expected: int | None = None,
        found: int | None = None,
    ) -> None:
        super().__init__(message)
        self.id = id
        self.expected = expected
        self.found = found


class VetoError(NanomemError):
    """A ``nanomem_before_commit`` hook refused the commit; nothing was written."""


class PluginError(NanomemError):
    """Base of what can go wrong with plugins.

    Attributes:
        plugin: the plugin's name, or None.
    """

    def __init__(self, message: str, *, plugin: str | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin


class PluginLoadError(PluginError, ImportError):
    """A plugin could not be imported or registered; the cause is chained."""


class HookError(PluginError, TypeError):
    """A hook implementation has a name or a signature that no hook specification has."""


class UnknownComponentError(PluginError, LookupError):
    """No loaded plugin offers a component of that kind and name."""


class DuplicateComponentError(PluginError):
    """Two plugins offer one component name."""


class StorageError(NanomemError, OSError):
    """A store could not do what it was asked; what was acknowledged before is untouched."""


class CorruptionError(StorageError):
    """Bytes on disk are not what was written.

    Attributes:
        path: the file.
        offset: byte offset of the damage, or None.
        reason: what does not fit.
    """

    def __init__(self, path: str, offset: int | None, reason: str) -> None:
        where = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{where}: {reason}. Run `nanomem doctor` to see all damage.")
        self.path = path
        self.offset = offset
        self.reason = reason


class FormatError(StorageError):
    """The file is of another kind, or of a version that this release can't read."""


class LockTimeoutError(StorageError, TimeoutError):
    """Another process kept the lock for longer than the time-out; nothing was written."""


class ReadOnlyError(StorageError, PermissionError):
    """A write was asked of a store that is open for reading only."""


class EmbedderError(NanomemError):
    """An embedder failed, or returned rows of the wrong number, width or value."""


class EmbedderMismatchError(EmbedderError):
    """The store holds vectors of another embedder; nothing was compared or written.

    Attributes:
        stored_id, stored_dim: the embedder whose vectors are in the store.
        given_id, given_dim: the embedder that was given.
    """

    def __init__(self, where: str, stored_id: str, stored_dim: int, given_id: str, given_dim: int) -> None:
        super().__init__(
            f"{where} holds vectors of the embedder {stored_id!r} ({stored_dim} dimensions), but "
            f"{given_id!r} ({given_dim} dimensions) was given. Open it with {stored_id!r}, or "
            f"convert it with `nanomem reembed` (in Python: Memory.reembed)."
        )
        self.stored_id = stored_id
        self.stored_dim = stored_dim
        self.given_id = given_id
        self.given_dim = given_dim


class WidthError(EmbedderError):
    """A model's vectors are not as wide as was declared, or as its earlier ones were; none of the answer was used.

    Attributes:
        expected: numbers in a vector that were declared or seen before.
        found: numbers in a vector that came.
    """

    def __init__(self, message: str, *, expected: int = 0, found: int = 0) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class GeneratorError(NanomemError):
    """A language model failed, or broke its contract."""


class BudgetError(GeneratorError):
    """The budget of tokens is used up; the model was not asked.

    Attributes:
        budget: tokens that were allowed.
        used: tokens that were used before this call.
    """

    def __init__(self, budget: int, used: int) -> None:
        super().__init__(
            f"the token budget is used up: expected at most {budget} tokens; found {used} used already. Raise the "
            "budget, or ask again in a new session"
        )
        self.budget = budget
        self.used = used


class ReplyError(GeneratorError, ValueError):
    """What a model answered can't be used. Neither the message nor an attribute quotes the answer.

    Attributes:
        expected: the shape that was asked for.
        found: what the answer was instead.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"answer of the model: expected {expected}; found {found}")
        self.expected = expected
        self.found = found


class EndpointError(GeneratorError, EmbedderError):
    """The server of a model can't be used. The message holds no key.

    Generators and embedders share endpoints, so ``except GeneratorError`` and ``except EmbedderError`` both catch it.

    Attributes:
        url: the endpoint, without user, password and query; None if it is not known.
        status: the HTTP status of the answer, None if there was none.
        retry_after: seconds after which the server wants to be asked again, None if it does not say.
    """

    def __init__(
        self, message: str, *, url: str | None = None, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.url = url
        self.status = status
        self.retry_after = retry_after


class UnreachableError(EndpointError, ConnectionError):
    """No connection to the endpoint, or one that breaks; or it was found dead a moment ago and is left alone."""


class EndpointTimeoutError(EndpointError, TimeoutError):
    """The endpoint takes longer than the time-out allows."""


class BadResponseError(EndpointError):
    """The endpoint answers, but not what its protocol says; `status` is None if the answer breaks off."""


class RefusedError(EndpointError):
    """The endpoint answers with a status that means no.

    Attributes:
        code: the provider's own word for what is wrong, such as ``model_not_found``, or None.
        parameter: the field of the request that it complains of, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        parameter: str | None = None,
    ) -> None:
        super().__init__(message, url=url, status=status, retry_after=retry_after)
        self.code = code
        self.parameter = parameter


class AuthenticationError(RefusedError, PermissionError):
    """The key is missing or wrong, or does not allow this."""


class RateLimitedError(RefusedError):
    """The endpoint was asked too often, or a quota is used up; `retry_after` says when to come back, if it is known."""


class ContextLengthError(RefusedError):
    """The text is longer than the model can read."""
