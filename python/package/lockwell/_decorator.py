"""Decorators of functions that run while they hold a lock."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ._lock import Lock
from ._request import Request

F = TypeVar("F", bound=Callable[..., Any])
Name = str | Callable[..., str]


class Decorator(Protocol):
    def __call__(self, function: F, /) -> F: ...


def decorator(request: Callable[[str], Request[Lock]], name: Name) -> Decorator:
    def decorate(function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator runs after its call has returned: hold the lock in its body")

        def made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request[Lock]:
            return request(name if isinstance(name, str) else name(*args, **kwargs))

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return await made(args, kwargs).arun(function, *args, **kwargs)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return made(args, kwargs).run(function, *args, **kwargs)

        return called  # type: ignore[return-value]

    return decorate
