"""The stylesheet, the script and the icon: read once, served from memory. Their addresses change with their content."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

from starlette.responses import Response

_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class StaticFiles:
    """No file is opened for a request, and no header of a request is read: there is no Range."""

    def __init__(self, path: str = "/page/static") -> None:
        self._path = path
        folder = files("pointsman.router.page") / "static"
        self.contents = {name: (folder / name).read_bytes() for name in _TYPES}
        self._versions = {name: sha256(content).hexdigest()[:12] for name, content in self.contents.items()}

    def url(self, name: str) -> str:
        return f"{self._path}/{name}?v={self._versions[name]}"

    def response(self, name: str) -> Response | None:
        content = self.contents.get(name)
        if content is None:
            return None
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, 200, headers, _TYPES[name])
