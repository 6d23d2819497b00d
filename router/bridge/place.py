"""Where the bridge finds its gateway: the one that runs, or one of its own, inside this process."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.config.model import GatewayConfig, Token
from pointsman.router.bridge.link import Address, NoGateway
from pointsman.router.state_folder import StateFolderError, running

if TYPE_CHECKING:
    from pointsman.router.daemon import Launch

COME_BACK_S = 10.0  # for a gateway that is being restarted
_LOOK_EVERY_S = 0.1


class Place:
    """`await place.find()` is `link.Locate`."""

    def __init__(self, state_dir: Path, token: str | None, launch: Callable[[], Launch]) -> None:
        self._state_dir = state_dir
        self._token = token
        self._launch = launch
        self._own: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()  # tells our own one to end, however far it has come
        self._found_before = False
        self.ended = asyncio.Event()  # our own gateway was told to stop

    async def find(self) -> Address:
        """Raises NoGateway."""
        if self._found_before and self._own is None:
            await self._wait_until_back()
        found = running(self._state_dir)
        if found is None:
            if self._own is not None and not _failed(self._own):  # a second one would not hear what ended the first
                raise NoGateway("The gateway of this process was told to stop.")
            return await self._start()
        self._found_before = True
        if self._token is None:
            raise NoGateway(
                f"A gateway runs on {found.url}, and POINTSMAN_TOKEN is not set: put a token there "
                "(`pointsman token create NAME` makes one)."
            )
        return Address(found.url, self._token)

    async def close(self) -> None:
        """End our own gateway, if there is one, as a signal would."""
        self._stop.set()
        if self._own is not None:
            await asyncio.gather(self._own, return_exceptions=True)

    async def _wait_until_back(self) -> None:
        """Somebody ran a gateway before, so it is theirs to run: ours is only for when it stays away."""
        waited_s = 0.0
        while running(self._state_dir) is None and waited_s < COME_BACK_S:
            await asyncio.sleep(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S

    async def _start(self) -> Address:
        from pointsman.router.listening import CannotListen  # a bridge to a daemon starts without all this

        secret = self._token or "ptm_" + secrets.token_urlsafe(32)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        launch = private(self._launch(), None if self._token else secret, ready.set_result)
        self._own = asyncio.get_running_loop().create_task(self._serve(launch))
        await asyncio.wait((ready, self._own), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            return Address(ready.result(), secret)
        try:
            self._own.result()
        except (StateFolderError, CannotListen) as error:
            raise NoGateway(str(error)) from error
        raise NoGateway("The gateway ended before it was ready.")

    async def _serve(self, launch: Launch) -> None:
        from pointsman.router.daemon import serve

        try:
            await serve(launch, self._stop)
        finally:
            self.ended.set()


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def private(launch: Launch, secret: str | None, ready: Callable[[str], None]) -> Launch:
    """The same gateway on a loopback port of its own; `secret` becomes a token that may use everything."""

    def adapted(config: GatewayConfig) -> GatewayConfig:
        listen = config.listen.model_copy(update={"host": "127.0.0.1", "port": 0})
        if secret is None:
            return config.model_copy(update={"listen": listen})
        name = next(name for name in ("stdio", *(f"stdio-{n}" for n in range(2, 10**6))) if name not in config.tokens)
        token = Token(sha256=hashlib.sha256(secret.encode()).hexdigest(), projects=("*",), servers=("*",))
        return config.model_copy(update={"listen": listen, "tokens": {**config.tokens, name: token}})

    return replace(launch, config=adapted(launch.config), load=lambda: adapted(launch.load()), ready=ready)
