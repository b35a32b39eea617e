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
    │   └── EmbedderMismatchError              the store holds vectors of another embedder
    └── GeneratorError                         a language model failed or broke its contract
"""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "ConfigError",
    "ConflictError",
    "CorruptionError",
    "DuplicateComponentError",
    "EmbedderError",
    "EmbedderMismatchError",
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
    "ReadOnlyError",
    "StorageError",
    "TimeError",
    "UnknownComponentError",
    "VetoError",
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
        super().__init__(f"{where}: {reason}. Run `nanomem doctor {path}` to see all damage.")
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


class GeneratorError(NanomemError):
    """A language model failed, or broke its contract."""
