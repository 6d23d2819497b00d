"""Where the bridge finds its gateway: the one that runs, or one of its own, inside this process."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.config.model import GatewayConfig, Token
from pointsman.router.bridge.link import Address, GatewayUnreachableError
from pointsman.router.serving.state_folder import Running, StateFolderError, running

if TYPE_CHECKING:
    from pointsman.router.daemon import Launch

COME_BACK_S = 10.0  # for a gateway that is being restarted
_LOOK_EVERY_S = 0.1

logger = logging.getLogger(__name__)


class GatewayLocator:
    """`await place.find()` is `link.Locate`. `launch` may raise NoGateway."""

    def __init__(self, state_dir: Path, token: str | None, launch: Callable[[], Launch]) -> None:
        self._state_dir = state_dir
        self._token = token
        self._launch = launch
        self._own: _Own | None = None
        self._stop = asyncio.Event()  # tells our own one to end, however far it has come
        self._found_before = False
        self.ended = asyncio.Event()  # our own gateway was told to stop, and has

    async def find(self) -> Address:
        """Raises GatewayUnreachableError."""
        if self._found_before and self._own is None:
            await self._wait_until_back()
        if self._stop.is_set():
            raise GatewayUnreachableError("The gateway of this process was told to stop.")
        if self._own is None or self._own.failed:
            found = running(self._state_dir)
            if found is not None:
                return self._known(found)
            self._own = self._start()
        return await self._own.address()  # the same one for all who ask while it starts

    async def close(self) -> None:
        """End our own gateway, if there is one, as a signal would."""
        self._stop.set()
        if self._own is not None:
            await asyncio.gather(self._own.task, return_exceptions=True)

    async def _wait_until_back(self) -> None:
        """Somebody ran a gateway before, so it is theirs to run: ours is only for when it stays away."""
        waited_s = 0.0
        while running(self._state_dir) is None and waited_s < COME_BACK_S:
            await asyncio.sleep(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S

    def _known(self, found: Running) -> Address:
        self._found_before = True
        if self._token is None:
            raise GatewayUnreachableError(
                f"A gateway runs on {found.url}, and POINTSMAN_TOKEN is not set: put a token there "
                "(`pointsman token create NAME` makes one)."
            )
        return Address(found.url, self._token)

    def _start(self) -> _Own:
        secret = self._token or "ptm_" + secrets.token_urlsafe(32)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        launch = private(self._launch(), None if self._token else secret, ready.set_result)
        return _Own(asyncio.get_running_loop().create_task(self._serve(launch)), ready, secret)

    async def _serve(self, launch: Launch) -> None:
        from pointsman.router.daemon import serve  # a bridge to a daemon starts without all this

        await serve(launch, self._stop)
        self.ended.set()


@dataclass(frozen=True, slots=True)
class _Own:
    """A gateway inside this process, from the moment that it begins to start."""

    task: asyncio.Task[None]
    ready: asyncio.Future[str]  # its URL
    secret: str

    @property
    def failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def address(self) -> Address:
        """Raises GatewayUnreachableError."""
        from pointsman.router.serving.socket import ListenError
        from pointsman.router.serving.tasks import DaemonError

        await asyncio.wait((self.ready, self.task), return_when=asyncio.FIRST_COMPLETED)
        if self.ready.done():
            return Address(self.ready.result(), self.secret)
        try:
            self.task.result()
        except (StateFolderError, ListenError, DaemonError) as error:
            raise GatewayUnreachableError(str(error)) from error
        except Exception as error:
            logger.exception("the gateway of this process could not start")
            raise GatewayUnreachableError(
                "The gateway of this process could not start; its log on stderr says why."
            ) from error
        raise GatewayUnreachableError("The gateway ended before it was ready.")


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
