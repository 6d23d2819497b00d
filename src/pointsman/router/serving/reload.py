"""Reads the configuration again when its file changes or SIGHUP arrives; a broken edit changes nothing."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path

from watchfiles import awatch

from pointsman.config.errors import ConfigError
from pointsman.config.model import GatewayConfig
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

_DEBOUNCE_MS = 100  # an editor's burst of events is one change
_SETTLE_LOOKS = 20  # a file that keeps changing is read all the same
_POLL_S = 1.0  # also beside inotify: some mounts have no events
_POLLS = 60  # before inotify is tried again
_RETRY_S = 2.0
_LONGEST_RETRY_S = 300.0

Fingerprint = tuple[int, ...]
Watch = Callable[..., AsyncGenerator[object]]  # of folders; yields after each change, and at least every second


def _notifications(*folders: Path) -> AsyncGenerator[object]:
    return awatch(
        *folders,
        watch_filter=None,
        debounce=_DEBOUNCE_MS,
        step=_DEBOUNCE_MS // 2,
        rust_timeout=int(_POLL_S * 1000),
        yield_on_timeout=True,
        recursive=False,
    )


class Reloader:
    """Watches one file. Watcher and reload are separate tasks, so that SIGHUP works whatever happens to the watcher."""

    tasks = ("configuration watcher", "configuration reload")

    def __init__(
        self,
        path: Path,
        load: Callable[[], GatewayConfig],
        apply: Callable[[GatewayConfig], Awaitable[None]],
        *,
        watch: Watch = _notifications,
        poll_s: float = _POLL_S,
        polls: int = _POLLS,
    ) -> None:
        self._path = path
        self._load = load
        self._apply = apply
        self._watch = watch
        self._poll_s = poll_s
        self._polls = polls
        self._seen = self._fingerprint()
        self._wanted = asyncio.Event()
        self._refusal: tuple[str, ...] = ()  # the problems of the last edit
        self._failure = ""  # what failed in the last attempt, for no fault of the file
        self._watching = True
        self._no_notifications = False  # so the file is polled

    def request(self) -> None:
        """Read it again, changed or not (SIGHUP: what `${file:...}` names may have changed)."""
        self._wanted.set()

    def start(self, tasks: TaskSet) -> None:
        for name, work in zip(self.tasks, (self._request_on_change, self._reload_on_request), strict=True):
            tasks.start(name, work)

    def report(self) -> dict[str, str]:
        """For `/health`: what is wrong with the configuration, and whether changes of its file are noticed."""
        report = {}
        if problems := list(self._problems()):
            report["configuration"] = " ".join(problems)
        if self._watching and self._no_notifications:
            report["configuration_watch"] = (
                "The configuration file is polled every second, because file notifications are not available. "
                "The log has the reason."
            )
        return report

    def _problems(self) -> Iterator[str]:
        if self._fingerprint() is None:
            yield "The file is gone or cannot be reached, and what was read before holds. Put it back in its place."
        if self._refusal:
            count = "1 problem" if len(self._refusal) == 1 else f"{len(self._refusal)} problems"
            yield (
                f"The last edit was refused ({count}) and the one before it holds. "
                "`pointsman config validate` shows what is wrong."
            )
        if self._failure:
            yield f"The last reload failed: {self._failure}. It is retried with backoff; the log has the reason."
        if not self._watching:
            yield "The file is not watched: an edit takes effect after SIGHUP only. The log has the reason."

    async def _request_on_change(self) -> None:
        try:
            async with aclosing(self._ticks()) as ticks:
                self._watching = True
                async for _ in ticks:
                    if self._fingerprint() not in (None, self._seen):
                        self._seen = await self._settled()
                        self._wanted.set()
        finally:
            self._watching = False

    async def _ticks(self) -> AsyncGenerator[None]:
        """One after each notification, and one every second in any case."""
        while True:
            try:
                # The folder, not the file: editors and orchestrators put a new file in the old one's place.
                folders = {self._path.absolute().parent, self._path.resolve().parent}
                async with aclosing(self._watch(*folders)) as notifications:
                    async for _ in notifications:
                        self._notified()
                        yield
                reason = "the watch ended"
            except Exception as error:  # no inotify instance left, the folder is gone, ...: watchfiles has many kinds
                reason = str(error) or type(error).__name__
            self._not_notified(reason)
            for _ in range(self._polls):
                yield
                await asyncio.sleep(self._poll_s)

    def _notified(self) -> None:
        if self._no_notifications:
            self._no_notifications = False
            logger.info("file notifications are available again; the configuration file is watched with them")

    def _not_notified(self, reason: str) -> None:
        if not self._no_notifications:
            logger.warning("no file notifications (%s): the configuration file is polled every second", reason)
        self._no_notifications = True

    async def _settled(self) -> Fingerprint | None:
        """Wait until the file stays as it is: some programs empty it first and write it piece by piece."""
        before = fingerprint = self._fingerprint()
        for _ in range(_SETTLE_LOOKS):
            await asyncio.sleep(_DEBOUNCE_MS / 1000)
            fingerprint = self._fingerprint()
            if fingerprint is not None and fingerprint == before:
                break
            before = fingerprint
        return fingerprint

    async def _reload_on_request(self) -> None:
        backoff = Backoff(_RETRY_S, _LONGEST_RETRY_S)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s() if self._failure else None):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._reload()
            if not self._failure:
                backoff.reset()

    async def _reload(self) -> None:
        """Never raises: the next edit must find this task alive, and at once."""
        try:
            config = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._failure = ""
            self._refusal = tuple(str(problem) for problem in error.problems)
            logger.error(  # noqa: TRY400 - the problems say it all, a traceback would hide them
                "the new configuration is refused, the running one stays:\n%s", "\n".join(self._refusal)
            )
            return
        except Exception:
            self._failure = "the configuration could not be read, and the one before it holds"
            logger.exception("%s; retrying with backoff", self._failure)
            return
        self._refusal = ()
        try:
            await self._apply(config)
        except Exception:
            self._failure = "the configuration was read, but could not be applied completely"
            logger.exception("%s; retrying with backoff", self._failure)
            return
        self._failure = ""
        logger.info("configuration reloaded from %s", self._path.name)

    def _fingerprint(self) -> Fingerprint | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # between two writes of an editor; gone for good is no order to stop
        return stat.S_IFMT(found.st_mode), found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
