"""Reloads the configuration when its file changes or SIGHUP arrives. An invalid edit has no effect, but one: tokens
that it no longer has are withdrawn, because a revocation must not wait until a mistake elsewhere is corrected."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.loader import advice, load_tokens
from pointsman.config.model import GatewayConfig
from pointsman.router.serving.tasks import Backoff, TaskSet

logger = logging.getLogger(__name__)

_DEBOUNCE_MS = 100  # an editor's burst of events is one change
_SETTLE_LOOKS = 20  # then a file that keeps changing is read anyway
_POLL_S = 1.0  # in addition to inotify: some mounts have no events
_POLLS = 60  # before inotify is tried again
_WATCH_AFTER_S = 0.5  # loading the library for notifications takes 20 ms, and the first client need not wait for that
_RETRY_S = 2.0
_LONGEST_RETRY_S = 300.0

READ_AT_START: Final = ("listen.host", "listen.port", "state", "telemetry", "workers")  # keys of a gateway

Fingerprint = tuple[int, ...]
Watch = Callable[..., AsyncGenerator[object]]  # watches folders; yields after each change, and at least every second


def _notifications(*folders: Path) -> AsyncGenerator[object]:
    from watchfiles import awatch

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
    """Watches one file. Watcher and reload are separate tasks, so that SIGHUP works even if the watcher fails."""

    tasks = ("configuration watcher", "configuration reload")

    def __init__(
        self,
        path: Path,
        load: Callable[[], GatewayConfig],
        apply: Callable[[GatewayConfig], Awaitable[None]],
        current: Callable[[], GatewayConfig],
        *,
        watch: Watch = _notifications,
        poll_s: float = _POLL_S,
        polls: int = _POLLS,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        read_at_start: Sequence[str] = READ_AT_START,
    ) -> None:
        self._path = path
        self._load = load
        self._apply = apply
        self._current = current  # the configuration in effect
        self._watch = watch
        self._poll_s = poll_s
        self._polls = polls
        self._around = around  # each reload
        self._read_at_start = read_at_start  # keys that keep the values of the start
        self.waiting: tuple[str, ...] = ()  # those of them that have other values in the file
        self._seen = self._fingerprint()
        self._loaded: Fingerprint | None = None  # of the file that the last reload read
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []  # for the end of a reload that begins from now on
        self._refusal: tuple[str, ...] = ()  # the problems of the last edit
        self.withdrew = False  # the tokens that the rejected file no longer has are not accepted any more
        self._failure = ""  # why the last attempt failed, unless the file is invalid
        self._watching = True
        self._no_notifications = False  # so the file is polled
        self._gone = False  # and the log says so
        self.asked_by = ""  # who asked for the reload under way; "": the file has changed
        self._asked_by = ""  # of the next one

    def request(self) -> None:
        """Reload even if unchanged (SIGHUP: files named by `${file:...}` may have changed)."""
        self._wanted.set()

    async def reload(self, asked_by: str = "") -> str:
        """Reload now, and return what is wrong with the file or with the reload; empty: it is in effect."""
        self._asked_by = asked_by
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self.request()
        await done
        return "\n".join(self._refusal) or self._failure

    @property
    def rejected(self) -> bool:
        """Whether the last reload found the file invalid."""
        return bool(self._refusal)

    async def catch_up(self) -> None:
        """Reload before `start`: the configuration that this process was started with may be older than the file."""
        await self._settled()
        with self._around():
            await self._reload()

    def start(self, tasks: TaskSet) -> None:
        for name, work in zip(self.tasks, (self._request_on_change, self._reload_on_request), strict=True):
            tasks.start(name, work)

    def report(self, *, to_owner: bool = False) -> dict[str, str]:
        """For `/health`: problems of the configuration, and whether changes of its file are noticed.

        Only the owner sees the path of the file.
        """
        report = {}
        if problems := list(self._problems(f" --config {shlex.quote(str(self._path.absolute()))}" if to_owner else "")):
            report["configuration"] = " ".join(problems)
        if self._watching and self._no_notifications:
            report["configuration_watch"] = (
                "The configuration file is polled every second, because file notifications are not available. "
                "The log has the reason."
            )
        return report

    def _problems(self, option: str) -> Iterator[str]:
        if self._fingerprint() is None:
            yield "The file is missing or not accessible; the previous configuration stays in effect. Restore the file."
        if self._refusal:
            count = "1 problem" if len(self._refusal) == 1 else f"{len(self._refusal)} problems"
            yield (
                f"The last edit was rejected ({count}); the previous configuration stays in effect. "
                f"Run `pointsman config validate{option}` for details."
            )
        if self._failure:
            yield f"The last reload failed: {self._failure}. It is retried with backoff; the log has the reason."
        if not self._watching:
            yield "The file is not watched: edits take effect only after SIGHUP. The log has the reason."

    async def _request_on_change(self) -> None:
        try:
            async with aclosing(self._ticks()) as ticks:
                self._watching = True
                async for _ in ticks:
                    await self._note_absence()
                    if self._fingerprint() not in (None, self._seen):
                        self._seen = await self._settled()
                        if self._seen != self._loaded:  # a request may have been faster
                            self._wanted.set()
        finally:
            self._watching = False

    async def _note_absence(self) -> None:
        """Log once that the file has disappeared; an editor that replaces it is given a moment."""
        if self._fingerprint() is None and not self._gone:
            await asyncio.sleep(_DEBOUNCE_MS / 1000)
        if (gone := self._fingerprint() is None) and not self._gone:
            logger.warning(
                "%s is gone; the configuration that was read from it stays in effect until the next start. "
                "Move the file back, or restore it",
                self._path.absolute(),
            )
        self._gone = gone

    async def _ticks(self) -> AsyncGenerator[None]:
        """Yield after each notification, and at least every second."""
        await asyncio.sleep(_WATCH_AFTER_S)
        yield
        while True:
            try:
                # The folder, not the file: editors and orchestrators replace the file.
                folders = {self._path.absolute().parent, self._path.resolve().parent}
                async with aclosing(self._watch(*folders)) as notifications:
                    async for _ in notifications:
                        self._notified()
                        yield
                reason = "the watch ended"
            except Exception as error:  # no inotify instance left, folder deleted, ...: watchfiles raises many types
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
        """Debounce: wait until the file is stable, since some programs truncate it and write it in pieces."""
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
            waiting, self._waiting = self._waiting, []
            self.asked_by, self._asked_by = self._asked_by, ""
            try:
                with self._around():
                    await self._reload()
            finally:
                for done in waiting:
                    if not done.done():
                        done.set_result(None)
            if not self._failure:
                backoff.reset()

    async def _reload(self) -> None:
        """Never raises, so that the task survives for the next edit."""
        self._loaded = self._fingerprint()
        try:
            config = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._failure = ""
            self._refusal = tuple(str(problem) for problem in error.problems)
            logger.error(  # noqa: TRY400 - a traceback would hide the problems
                "rejected the new configuration; the running one stays in effect:\n%s", "\n".join(self._refusal)
            )
            self.withdrew = await self._withdraw_tokens()
            return
        except (
            Exception
        ):  # whatever it is: the task must see the next edit, and `/health` says that this one is not used
            self._failure = "could not read the configuration; the previous one stays in effect"
            logger.exception("%s; retrying with backoff", self._failure)
            return
        self._refusal = ()
        started = self._current()
        self._wait_for_restart(needs_restart(started, config, self._read_at_start))
        try:
            await self._apply(keeping_started(started, config, self._read_at_start))
        except Exception:  # of any part of the daemon: the others have the new configuration, and it is tried again
            self._failure = "could not apply the configuration completely"
            logger.exception("%s; retrying with backoff", self._failure)
            return
        self._failure = ""
        logger.info("configuration reloaded from %s", self._path.name)

    def _wait_for_restart(self, keys: list[str]) -> None:
        for key in keys:
            if key not in self.waiting:
                logger.warning("`%s` has changed; that takes effect at the next start", key)
        self.waiting = tuple(keys)

    async def _withdraw_tokens(self) -> bool:
        """Take away the tokens that a rejected file no longer has.

        False: the file's tokens cannot be read, or it has none, as a file that was emptied by mistake.
        """
        try:
            before = self._current()
            config = await asyncio.to_thread(without_revoked, before, self._path)
            if len(config.tokens) < len(before.tokens):
                gone = ", ".join(f"`{name}`" for name in before.tokens if name not in config.tokens)
                logger.warning("withdrew tokens that the rejected configuration no longer has: %s", gone)
                await self._apply(config)
        except ConfigError:
            return False
        except Exception:  # the command that revoked a token is told that this failed
            logger.exception("could not withdraw the tokens that the rejected configuration no longer has")
            return False
        return True

    def _fingerprint(self) -> Fingerprint | None:
        try:
            found = self._path.stat()
        except OSError:
            return None  # an editor is replacing it; a deleted file does not stop the daemon
        return stat.S_IFMT(found.st_mode), found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def without_revoked(config: GatewayConfig, path: Path) -> GatewayConfig:
    """The configuration in effect, without the tokens that a rejected file no longer has; never with one more, and
    never with wider rights.

    Raises:
        ConfigError: the file's tokens cannot be read, or it has none.
    """
    listed = load_tokens(path, os.environ)
    if not listed:
        raise ConfigError([ConfigProblem(str(path), None, None, "tokens", "has no token")])
    kept = {
        name: token for name, token in config.tokens.items() if name in listed and listed[name].sha256 == token.sha256
    }
    return config.model_copy(update={"tokens": kept})


def needs_restart(old: GatewayConfig, new: GatewayConfig, keys: Sequence[str] = READ_AT_START) -> list[str]:
    """Return the changed keys that a reload cannot apply."""
    return [key for key in keys if attrgetter(key)(old) != attrgetter(key)(new)]


def keeping_started(old: GatewayConfig, new: GatewayConfig, keys: Sequence[str] = READ_AT_START) -> GatewayConfig:
    """Return the new configuration, with the values of the old one for all keys that a reload cannot apply."""
    for key in needs_restart(old, new, keys):
        section, _, name = key.partition(".")
        value = getattr(old, section)
        if name:
            value = getattr(new, section).model_copy(update={name: getattr(value, name)})
        new = new.model_copy(update={section: value})
    return new


def log_advice(config: GatewayConfig) -> None:
    for remark in advice(config):
        logger.warning("%s", remark)
    for note in config.notes:
        logger.info("%s", note)
