"""Locates the gateway for the bridge: a running one, or one embedded in this process."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig, Token
from pointsman.router.bridge.gateway_client import Address, GatewayUnreachableError
from pointsman.router.serving.state_folder import RunningGateway, StateFolderError, find_running

if TYPE_CHECKING:
    from pointsman.router.launch import Launch

RESTART_S = 10.0  # for a gateway that is being restarted
_POLL_S = 0.1

logger = logging.getLogger(__name__)


class GatewayLocator:
    """`find` fits `gateway_client.Locate`. `launch` may raise GatewayUnreachableError."""

    def __init__(self, state_dir: Path, token: str | None, launch: Callable[[], Launch]) -> None:
        self._state_dir = state_dir
        self._token = token
        self._launch = launch
        self._embedded: _EmbeddedGateway | None = None
        self._stop = asyncio.Event()  # ends the embedded gateway, even while it starts
        self._found_before = False
        self.ended = asyncio.Event()  # the embedded gateway has stopped

    async def find(self) -> Address:
        """Raises GatewayUnreachableError."""
        if self._found_before and self._embedded is None:
            await self._wait_for_restart()
        if self._stop.is_set():
            raise GatewayUnreachableError("The gateway of this process is stopping.")
        if self._embedded is None or self._embedded.failed:
            found = find_running(self._state_dir)
            if found is not None:
                return self._address_of(found)
            self._embedded = self._start()
        return await self._embedded.address()  # concurrent callers share it

    async def close(self) -> None:
        """Stop the embedded gateway, if there is one, as a signal would."""
        self._stop.set()
        if self._embedded is not None:
            await asyncio.gather(self._embedded.task, return_exceptions=True)

    async def _wait_for_restart(self) -> None:
        """Wait for a gateway that ran before, and start our own only if it stays away."""
        waited_s = 0.0
        while find_running(self._state_dir) is None and waited_s < RESTART_S:
            await asyncio.sleep(_POLL_S)
            waited_s += _POLL_S

    def _address_of(self, found: RunningGateway) -> Address:
        self._found_before = True
        if self._token is None:
            raise GatewayUnreachableError(
                f"A gateway is running on {found.url}, but POINTSMAN_TOKEN is not set. Set it to a token "
                "(`pointsman token create NAME` creates one)."
            )
        return Address(found.url, self._token)

    def _start(self) -> _EmbeddedGateway:
        secret = self._token or "ptm_" + secrets.token_urlsafe(32)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        launch = embedded_launch(self._launch(), None if self._token else secret, ready.set_result)
        return _EmbeddedGateway(asyncio.get_running_loop().create_task(self._serve(launch)), ready, secret)

    async def _serve(self, launch: Launch) -> None:
        from pointsman.router.run import serve  # deferred: a bridge to a running daemon does not need it

        await serve(launch, self._stop)
        self.ended.set()


@dataclass(frozen=True, slots=True)
class _EmbeddedGateway:
    """A gateway inside this process, running or starting."""

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
        except (StateFolderError, ListenError, DaemonError, ConfigError) as error:
            raise GatewayUnreachableError(str(error)) from error
        except GatewayUnreachableError:
            raise
        except Exception as error:
            logger.exception("could not start the gateway of this process")
            raise GatewayUnreachableError(
                "Could not start the gateway of this process; the log on stderr has the reason."
            ) from error
        raise GatewayUnreachableError("The gateway of this process stopped before it was ready.")


def embedded_launch(launch: Launch, secret: str | None, ready: Callable[[str], None]) -> Launch:
    """Return the launch on a free loopback port; `secret` becomes a token with access to everything."""

    def adapted(config: GatewayConfig) -> GatewayConfig:
        listen = config.listen.model_copy(update={"host": "127.0.0.1", "port": 0})
        if secret is None:
            return config.model_copy(update={"listen": listen})
        name = next(name for name in ("stdio", *(f"stdio-{n}" for n in range(2, 10**6))) if name not in config.tokens)
        token = Token(sha256=hashlib.sha256(secret.encode()).hexdigest(), projects=("*",), servers=("*",))
        return config.model_copy(update={"listen": listen, "tokens": {**config.tokens, name: token}})

    return replace(launch, config=adapted(launch.config), load=lambda: adapted(launch.load()), ready=ready)
