"""What counts as an implementation of a hook, and whether it fits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pluggy
from pluggy import HookimplOpts

from ..errors import HookError
from ..hints import did_you_mean
from ..hookspecs import PROJECT, Plugin

__all__ = ["HOOKS", "Hooks", "call"]

PREFIX = f"{PROJECT}_"

HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(Plugin).items()
    if hasattr(spec, f"{PROJECT}_spec")
}
"""Every hook with the names of its parameters."""

_WRAPPABLE = "nanomem_build"


class Hooks(pluggy.PluginManager):
    """pluggy's manager for this project, with two rules of its own.

    A function whose name begins with ``nanomem_`` is an implementation, marked with ``hookimpl`` or not. What a plugin
    merely inherits from `Plugin` is none.
    """

    def __init__(self) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(Plugin)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> HookimplOpts | None:
        if not _is_function(plugin, name):
            return None
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(PREFIX) and not hasattr(getattr(plugin, name), f"{PROJECT}_spec"):
            return HookimplOpts(
                wrapper=False, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False, specname=None
            )
        return options

    def verify(self, plugin: object, name: str) -> None:
        """Check every implementation in `plugin` against the specifications.

        Raises:
            HookError: a hook of that name doesn't exist, or its parameters are others; says what was expected.
        """
        for attribute in dir(plugin):
            options = self.parse_hookimpl_opts(plugin, attribute)
            if options is None:
                if attribute in HOOKS and not _is_function(plugin, attribute):
                    raise HookError(f"plugin {name!r}: {attribute} must be a function or method", plugin=name)
                continue
            hook = options["specname"] or attribute
            if hook in HOOKS:
                _verify_one(name, hook, getattr(plugin, attribute), options)
            elif not options["optionalhook"]:
                raise HookError(
                    f"plugin {name!r} implements {_definition(getattr(plugin, attribute), hook)}, but there is no hook "
                    f"{hook!r}{did_you_mean(hook, HOOKS)} (the hooks: {', '.join(HOOKS)})",
                    plugin=name,
                )

    def implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Implementations in the order of registration, those marked ``tryfirst`` before and ``trylast`` after."""
        caller: pluggy.HookCaller = getattr(self.hook, hook)
        return sorted(caller.get_hookimpls(), key=lambda each: each.trylast - each.tryfirst)


def call(implementation: pluggy.HookImpl, **arguments: Any) -> Any:
    """Call one implementation with those of the hook's `arguments` that it takes."""
    names = (*implementation.argnames, *implementation.kwargnames)
    return implementation.function(*(arguments[name] for name in names))


def _is_function(plugin: object, name: str) -> bool:
    # Looked up without getattr(), which would run a property.
    found = vars(plugin).get(name) if isinstance(plugin, ModuleType) else inspect.getattr_static(plugin, name, None)
    return isinstance(found, (FunctionType, MethodType, staticmethod, classmethod))


def _verify_one(plugin: str, hook: str, function: Callable[..., Any], options: HookimplOpts) -> None:
    found = inspect.signature(function).parameters.values()
    named = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    problem = None
    unknown = [each.name for each in named if each.name not in HOOKS[hook]]
    if unknown:
        problem = f"there is no parameter {unknown[0]!r}{did_you_mean(unknown[0], HOOKS[hook])}"
    elif any(each.kind is each.KEYWORD_ONLY for each in named):
        problem = "its parameters must not be keyword-only"
    elif options["hookwrapper"] or (options["wrapper"] and hook != _WRAPPABLE):
        problem = f"only {_WRAPPABLE} can be wrapped, by wrapper=True; this hook is called plugin by plugin"
    elif options["wrapper"] and not inspect.isgeneratorfunction(function):
        problem = "a wrapper must be a generator function that yields once"
    if problem:
        raise HookError(
            f"plugin {plugin!r}: {problem}\n"
            f"  expected: {hook}({', '.join(HOOKS[hook])})\n"
            f"  found:    {_definition(function, hook)}",
            plugin=plugin,
        )


def _definition(function: Callable[..., Any], hook: str) -> str:
    return f"{hook}({', '.join(str(each) for each in inspect.signature(function).parameters.values())})"
