"""Takes what a daemon has for itself (the state folder, the port, the log file), and runs it until it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from msgspec.structs import replace

from pointsman.router.daemon import Daemon
from pointsman.router.launch import Launch
from pointsman.router.replication import held_folder
from pointsman.router.serving import process, state_folder
from pointsman.router.serving.log_file import logged_to_file
from pointsman.router.serving.socket import bind
from pointsman.router.serving.tasks import DaemonError


async def serve(launch: Launch, stop: asyncio.Event | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until `stop` is set by a caller that handles the signals itself.

    Raises:
        StateFolderError: another daemon uses the state folder, it cannot be written, or it is a replica's.
        ListenError: could not bind the address.
        ConfigError: the configuration that `prepare` has written is invalid.
        DaemonError: an essential task ended.
    """
    process.return_large_blocks()
    with ExitStack() as stack:
        replica_dir = stack.enter_context(
            held_folder(launch.state_dir, replicas=launch.config.state.replicas, number=launch.worker)
        )
        launch = replace(launch, replica_dir=replica_dir)
        listen = launch.config.listen
        listener = stack.enter_context(bind(listen.host, listen.port, shared=launch.worker > 0))
        if launch.prepare(launch.config):
            launch = replace(launch, config=launch.load())
        with logged_to_file(launch.own_dir, launch.config.log) as log_file:
            daemon = Daemon(launch, listener, log_file)
            try:
                await daemon.start()
                await _serve(daemon, stop)
            except (state_folder.StateFolderError, DaemonError) as error:
                log_file.say(str(error))
                raise
            finally:
                await daemon.stop()
                log_file.say("pointsman has ended")


async def _serve(daemon: Daemon, stop: asyncio.Event | None) -> None:
    if stop is not None:
        await daemon.serve(stop)
        return
    stop = asyncio.Event()
    with process.stop_on_signals(stop):
        await daemon.serve(stop)
