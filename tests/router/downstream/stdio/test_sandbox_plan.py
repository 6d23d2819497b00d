from __future__ import annotations

import errno
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pointsman.config.sections.server import Sandbox, Server, ServerLimits
from pointsman.router.downstream.stdio.landlock import Abilities
from pointsman.router.downstream.stdio.launch import Confined, SandboxRefusedError
from pointsman.router.downstream.stdio.sandbox import Host, plan
from pointsman.router.downstream.stdio.seccomp import filter_of

ABLE = Abilities(abi=7, user_namespace="", network_namespace="")
BUBBLEWRAP = Host(ABLE, bwrap="/usr/bin/bwrap", bwrap_problem="")
LANDLOCK = Host(ABLE)
BOTH = pytest.mark.parametrize("host", [BUBBLEWRAP, LANDLOCK], ids=["bubblewrap", "landlock"])
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/nobody-at-all"}


def planned(host: Host, sandbox: Sandbox, protected: tuple[Path, ...] = (), **more: Any) -> Any:
    argv, env = more.pop("argv", ("/bin/sh",)), {**ENV, **more.pop("env", {})}
    return plan(argv, env, more.pop("cwd", None), Confined(sandbox, **more), host, protected)


def refusal(*args: Any, **more: Any) -> str:
    with pytest.raises(SandboxRefusedError) as refused:
        planned(*args, **more)
    return str(refused.value)


# ---------------------------------------------------------------------- what a machine cannot enforce


def test_without_bubblewrap_and_landlock_it_says_what_to_install() -> None:
    old = replace(LANDLOCK, abilities={**ABLE, "abi": 5})
    assert "bubblewrap is not installed" in refusal(old, Sandbox(network=True))
    assert "Linux 6.12" in refusal(old, Sandbox(network=True))
    assert "apt install bubblewrap" in refusal(old, Sandbox(network=True))


def test_landlock_without_a_network_namespace_refuses_network_false_and_says_why() -> None:
    without = replace(LANDLOCK, abilities={**ABLE, "network_namespace": "Operation not permitted"})
    assert "UDP and unix sockets" in refusal(without, Sandbox())
    assert "Operation not permitted" in refusal(without, Sandbox())
    assert planned(without, Sandbox(network=True)).how.startswith("Landlock")


def test_an_unknown_processor_and_another_system_are_refused() -> None:
    assert "riscv64" in refusal(replace(BUBBLEWRAP, machine="riscv64"), Sandbox())
    assert "needs Linux" in refusal(replace(BUBBLEWRAP, linux=False), Sandbox())


@BOTH
def test_processes_are_not_limited_for_root_or_without_a_user_namespace(host: Host) -> None:
    limits = ServerLimits(processes=10)
    assert "exempts root" in refusal(replace(host, root=True), Sandbox(), limits=limits)
    without = replace(host, abilities={**ABLE, "user_namespace": "No space left on device"})
    assert "counts all processes of the user" in refusal(without, Sandbox(), limits=limits)
    with pytest.raises(SandboxRefusedError):
        plan(("/bin/sh",), ENV, None, Confined(None, limits), replace(host, root=True))


@BOTH
def test_variables_of_the_loader_are_refused_because_they_act_before_the_sandbox(host: Host) -> None:
    assert "`LD_`" in refusal(host, Sandbox(), env={"LD_PRELOAD": "/x.so"})


@BOTH
def test_a_container_is_refused_because_it_would_run_outside(tmp_path: Path, host: Host) -> None:
    program(tmp_path / "docker")
    assert "container" in refusal(host, Sandbox(), argv=("docker",), env={"PATH": str(tmp_path)})


def test_landlock_refuses_programs_that_download(tmp_path: Path) -> None:
    program(tmp_path / "uvx")
    assert "apt install bubblewrap" in refusal(LANDLOCK, Sandbox(), argv=("uvx", "x"), env={"PATH": str(tmp_path)})


# ---------------------------------------------------------------------- the state folder and the configuration


@BOTH
@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("named", ["state", "", "state/logs", "link", "project", "link/logs"])
def test_no_path_may_reach_the_state_folder_or_the_configuration(
    tmp_path: Path, host: Host, key: str, named: str
) -> None:
    (tmp_path / "state" / "logs").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pointsman.yaml").touch()
    (tmp_path / "link").symlink_to("state")
    protected = (tmp_path / "state", tmp_path / "project" / "pointsman.yaml")
    reason = refusal(host, Sandbox.model_validate({key: [tmp_path / named]}), protected)
    assert f"path 1 of `sandbox.{key}` would let it reach the state folder" in reason
    assert str(tmp_path) not in reason  # clients see it, too


@BOTH
def test_a_working_directory_that_holds_the_state_folder_is_refused(tmp_path: Path, host: Host) -> None:
    (tmp_path / "state").mkdir()
    assert "its `cwd` would let it reach" in refusal(host, Sandbox(), (tmp_path / "state",), cwd=tmp_path)


@BOTH
def test_a_state_folder_among_the_programs_of_the_system_is_refused(host: Host) -> None:
    assert "all programs must read" in refusal(host, Sandbox(), (Path("/usr/lib"),))


@BOTH
def test_a_cache_in_a_home_folder_that_is_the_state_folder_can_be_named(tmp_path: Path, host: Host) -> None:
    (tmp_path / ".cache" / "uv").mkdir(parents=True)
    assert str(tmp_path / ".cache" / "uv") in str(
        planned(host, Sandbox(read=(tmp_path / ".cache" / "uv",)), (tmp_path,))
    )


@BOTH
def test_no_server_may_change_pointsman_itself(tmp_path: Path, host: Host) -> None:
    (tmp_path / "lib" / "pointsman").mkdir(parents=True)
    own = replace(host, own_files=(str(tmp_path / "lib" / "pointsman"),))
    assert "change Pointsman" in refusal(own, Sandbox(write=(tmp_path / "lib",)))
    assert planned(own, Sandbox(read=(tmp_path / "lib",)))


@BOTH
def test_a_path_that_does_not_exist_is_refused(tmp_path: Path, host: Host) -> None:
    assert "path 2 of `sandbox.read` does not exist" in refusal(host, Sandbox(read=(tmp_path, tmp_path / "x")))


# ---------------------------------------------------------------------- what it can reach


def test_what_a_server_can_replace_by_a_link_is_not_followed(tmp_path: Path) -> None:
    """The folder that it reads is in the one that it writes to: after a first run, it may be a link to anything."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "data").symlink_to(tmp_path / "secret")
    for host in (BUBBLEWRAP, LANDLOCK):
        launch = planned(host, Sandbox(read=(tmp_path / "open" / "data",), write=(tmp_path / "open",)))
        assert str(tmp_path / "open") in str(launch.argv)
        assert "secret" not in str(launch.argv)


def test_a_program_that_a_server_can_change_names_nothing_that_it_may_read(tmp_path: Path) -> None:
    program(tmp_path / "secret" / "tool")
    for number, first_line in enumerate((f"#!{tmp_path}/secret/tool\n", f"#!/usr/bin/env {tmp_path}/secret/tool\n")):
        program(tmp_path / "open" / f"server{number}", first_line)
    (tmp_path / "open" / "server2").symlink_to(tmp_path / "secret" / "tool")
    (tmp_path / "link").symlink_to("open")
    for host in (BUBBLEWRAP, LANDLOCK):
        for name in ("open/server0", "open/server1", "open/server2", "link/server0", "link/server2"):
            argv = (str(tmp_path / name),)
            launch = planned(host, Sandbox(write=(tmp_path / "open",)), argv=argv)
            assert str(tmp_path / "open") in str(launch.argv)
            assert str(tmp_path / "secret") not in str(launch.argv)


def test_inner_folders_are_mounted_over_outer_ones(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    argv = planned(BUBBLEWRAP, Sandbox(read=(tmp_path / "a",), write=(tmp_path / "a" / "b",))).argv
    outer, inner = argv.index(str(tmp_path / "a")), argv.index(str(tmp_path / "a" / "b"))
    assert argv[outer - 1] == "--ro-bind"
    assert argv[inner - 1] == "--bind"
    assert outer < inner


def test_a_program_is_followed_to_its_interpreter_and_environment(tmp_path: Path) -> None:
    program(tmp_path / "base" / "bin" / "python3.12")
    (tmp_path / "base" / "lib").mkdir()
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(tmp_path / "base" / "bin" / "python3.12")
    program(tmp_path / "venv" / "bin" / "server", f"#!{tmp_path}/venv/bin/python\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "server").symlink_to("../venv/bin/server")
    argv = planned(BUBBLEWRAP, Sandbox(), argv=("server",), env={"PATH": str(tmp_path / "bin")}).argv
    for path in ("bin", "venv/bin", "base/bin", "base/lib"):
        assert str(tmp_path / path) in argv
    assert str(tmp_path) not in argv


def test_a_program_in_the_home_folder_does_not_open_it(tmp_path: Path) -> None:
    program(tmp_path / "server")
    argv = planned(BUBBLEWRAP, Sandbox(), argv=(str(tmp_path / "server"),), env={"HOME": str(tmp_path)}).argv
    assert ("--ro-bind", str(tmp_path / "server")) == argv[(i := argv.index(str(tmp_path / "server"))) - 1 : i + 1]
    assert argv[argv.index(str(tmp_path)) - 1] == "--tmpfs"


def test_the_script_of_an_interpreter_is_readable_with_its_project(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "index.js").touch()
    (tmp_path / "package.json").touch()
    program(tmp_path / "x" / "node")
    argv = (str(tmp_path / "x" / "node"), "--flag", str(tmp_path / "dist" / "index.js"))
    assert str(tmp_path) in planned(BUBBLEWRAP, Sandbox(), argv=argv).argv


@BOTH
def test_arguments_that_it_is_not_shown_are_named_by_their_number(tmp_path: Path, host: Host) -> None:
    project, data = tmp_path / "project", tmp_path / "data"
    for folder in (project, data, data / "inner", tmp_path / "state"):
        folder.mkdir()
    (project / "server.py").touch()
    (project / "pointsman.yaml").touch()
    protected = (tmp_path / "state", project / "pointsman.yaml")
    program(tmp_path / "x" / "python3")
    args = ("-u", f"{project}/server.py", f"--data={data}", "/nothing/there", "/", "/dev/null", "/usr", "x" * 5000)
    argv = (str(tmp_path / "x" / "python3"), *args, str(tmp_path / "state"))
    unseen = planned(host, Sandbox(), protected, argv=argv).unseen
    named = "its `sandbox` does not show argument"
    assert unseen[:2] == tuple(f"{named} {number} of `args`: add that path to `sandbox.read`" for number in (2, 3))
    assert unseen[2].startswith(f"{named} 9 of `args`, which would let it reach the state folder")
    assert len(unseen) == 3
    shown = planned(host, Sandbox(read=(project / "server.py", data / "inner")), protected, argv=argv[:-1])
    assert shown.unseen == ()


@BOTH
def test_a_relative_argument_begins_at_the_working_directory(tmp_path: Path, host: Host) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "beside").touch()
    argv = ("/bin/cat", "../beside", "usr")
    assert len(planned(host, Sandbox(), argv=argv, cwd=tmp_path / "work").unseen) == 1
    assert planned(host, Sandbox(), argv=argv).unseen == ()


def test_a_starter_downloads_into_a_folder_of_the_server(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "uvx")
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    launch = planned(BUBBLEWRAP, Sandbox(), argv=("uvx", "x"), env=env, name="time")
    assert launch.downloads == tmp_path / ".cache" / "pointsman" / "sandbox" / "time"
    assert launch.env["UV_CACHE_DIR"].startswith(str(launch.downloads))
    assert launch.env["UV_OFFLINE"] == "true"
    online = planned(BUBBLEWRAP, Sandbox(network=True), argv=("uvx", "x"), env=env, name="time")
    assert "UV_OFFLINE" not in online.env
    assert "--unshare-net" not in online.argv


def test_limits_are_set_by_the_launcher_before_bubblewrap() -> None:
    launch = planned(BUBBLEWRAP, Sandbox(), limits=ServerLimits(memory=64 << 20, processes=10))
    wanted = json.loads(launch.argv[len(BUBBLEWRAP.launcher)])
    assert wanted["memory"] == 64 << 20
    assert wanted["processes"] == 12  # with two of bubblewrap itself
    assert launch.argv[len(BUBBLEWRAP.launcher) + 1] == "/usr/bin/bwrap"


def program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


# ---------------------------------------------------------------------- the filter of system calls

ARCHITECTURES = {"x86_64": (0xC000003E, 41, 53), "aarch64": (0xC00000B7, 198, 199)}


def verdict(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Run the filter as the kernel does; the errno of a refusal, or 0."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number, architecture, 0, *padded)
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, operand = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:
            accumulator &= operand
        elif operation in (0x15, 0x35):
            holds = accumulator == operand if operation == 0x15 else accumulator >= operand
            at += if_true if holds else if_false
        else:
            assert operation == 0x06
            return 0 if operand == 0x7FFF0000 else operand & 0xFFFF


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("landlock", [True, False])
def test_the_filter_lets_no_socket_out(machine: str, network: bool, landlock: bool) -> None:
    audit, socket_call, pair_call = ARCHITECTURES[machine]
    code = filter_of(machine, network=network, landlock=landlock)
    assert code is not None
    close_on_exec = 0o2000000
    allowed = {family for family in range(48) if verdict(code, audit, socket_call, family, 1) == 0}
    assert allowed == (set(range(48)) - {1} if network else {2, 10, 16})
    pairs = {kind for kind in range(11) if verdict(code, audit, pair_call, 1, kind | close_on_exec) == 0}
    assert pairs == {1, 5}
    assert verdict(code, audit, 425) == errno.ENOSYS  # io_uring
    assert verdict(code, audit ^ 1, socket_call, 2, 1) == errno.ENOSYS  # another processor's numbers
    assert verdict(code, audit, 63) == 0  # any other call
    if machine == "x86_64":
        assert verdict(code, audit, socket_call | 0x40000000, 2, 1) == errno.ENOSYS
        assert verdict(code, audit, 90) == (errno.EPERM if landlock else 0)  # chmod
        assert verdict(code, audit, 302, 4711) == (errno.EPERM if landlock else 0)  # another process's limits
        assert verdict(code, audit, 302, 0) == 0


# ---------------------------------------------------------------------- the configuration


def test_the_configuration_takes_sandbox_and_limits_of_a_command_only() -> None:
    entry = Server.model_validate({"command": "x", "sandbox": {}, "limits": {"memory": "512M", "processes": 20}})
    assert entry.sandbox == Sandbox(read=(), write=(), network=False)
    assert entry.limits == ServerLimits(memory=512 << 20, processes=20)
    for other in ({"url": "https://x.example/mcp"}, {"bundled": "archive"}):
        for key, value in (("sandbox", {"network": True}), ("limits", {"memory": "1G"})):
            with pytest.raises(ValidationError, match="needs a server with `command`"):
                Server.model_validate({**other, key: value})


@pytest.mark.parametrize("memory", ["512", "1T", "-1M", True, 1000, "16M", "9" * 30 + "M", 1.5])
def test_a_memory_limit_that_cannot_be_meant_is_refused(memory: object) -> None:
    with pytest.raises(ValidationError):
        ServerLimits.model_validate({"memory": memory})
