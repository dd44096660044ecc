"""The first page of `floe dev`: the asset graph. Dagster's own first page is a timeline, empty without a run."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["LandingPage", "asset_graph_path"]

_EXPANDED_ASSETS = 40  # a larger graph is shown by its groups


def asset_graph_path(groups: Sequence[str], assets: int) -> str:
    """The page with the graph of all assets; the groups of a small one are expanded.

    Args:
        groups: The names of the groups.
        assets: The number of assets.
    """
    if len(groups) < 2 or assets > _EXPANDED_ASSETS:
        return "/asset-groups"
    return f"/asset-groups?expanded={quote(','.join(f'global@global:{name}' for name in sorted(groups)), safe=',@:')}"


class LandingPage:
    """ASGI middleware that leads from the root to a page, and forwards all other requests."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
            await RedirectResponse(self._path, status_code=303)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
