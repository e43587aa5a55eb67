"""Docker commands as values."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from signal import SIGABRT, SIGINT, SIGKILL, SIGQUIT, SIGTERM

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.config.release import Rank, cache_volume, peer_labels, trust_mark
from sparkops.engines import ENGINES, runtime
from sparkops.engines.launch import Seat
from sparkops.node.docker import secrets
from sparkops.node.docker.ranks import program

BUILD_TIMEOUT_S = 4 * 3600.0  # a vLLM from source takes 20 to 30 min on a Spark, FlashInfer 40 min
MODELS = "/models"  # where a container sees the node's model_dir
LOG_FILE_SIZE = "20m"
LOG_FILES = "5"
BOUNDED_LOG = ("--log-driver=json-file", f"--log-opt=max-size={LOG_FILE_SIZE}", f"--log-opt=max-file={LOG_FILES}")


PIDS = 8192
"""Processes and threads of one container: far above an engine with its compilers, far below a node's 4 million."""
RIGHTS = (
    f"--user={runtime.USER}:{runtime.USER}",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    f"--pids-limit={PIDS}",
)
"""Rights of a container that runs an image's own programs: an unprivileged user without a capability."""
GATE_GIB = 16
"""Memory limit of a container that imports torch and vLLM to report their versions: it needs 2 to 4 GiB."""
BUILDKIT = ("env", "DOCKER_BUILDKIT=1", "BUILDX_BUILDER=default")


def docker(*argv: str, timeout_s: float = 60.0, stdin: bytes = b"") -> Command:
    """A docker command that changes the node."""
    return Command(("docker", *argv), stdin=stdin, timeout_s=timeout_s, changes=True)


def create(
    rank: Rank, node: NodeConfig, image: str, jobs: int, seat: Seat | None = None, memory_gib: float | None = None
) -> Command:
    """Create the container of `rank` from `image` (an image ID, so that a moved tag changes nothing).

    The engine gets SIGTERM, and runs at most `jobs` compilers at once unless its recipe says otherwise. It has no
    restart policy: its guard starts it. A rank of several has a `seat`. The environment of the node
    replaces that of the recipe, and the seat's replaces both. `memory_gib` limits its memory in GiB, without swap.
    """
    recipe = rank.release.recipe
    runs = program(rank, MODELS, seat)
    limit_mib = None if memory_gib is None else int(memory_gib * 1024)
    memory = () if limit_mib is None else (f"--memory={limit_mib}m", f"--memory-swap={limit_mib}m")
    env = {
        **ENGINES[recipe.engine].env,
        "HOME": runtime.HOME,
        **runtime.CACHES,
        **runtime.compilers(jobs),
        **recipe.serve.env,
        **(node.env or {}),
        **runs.env,
    }
    return docker(
        "create",
        f"--name={rank.container}",
        *label_options({**rank.labels, **peer_labels(seat.peers if seat else (), node.port or 22)}),
        "--network=host",
        "--restart=no",
        *RIGHTS,
        *memory,
        f"--shm-size={int(recipe.serve.shm_gib * 1024)}m",
        f"--stop-timeout={recipe.serve.stop_grace_s}",
        *BOUNDED_LOG,
        f"--volume={model_dir(node)}:{MODELS}:ro",
        # Compiled kernels are code: neither another image nor another recipe must find them.
        f"--volume={cache_volume(rank.release)}:{runtime.CACHE}",
        *gpu(node),
        *runs.options,
        *(f"--env={name}={value}" for name, value in env.items()),
        f"--entrypoint={runs.entrypoint}",
        image,
        *runs.arguments,
        timeout_s=120.0,
    )


def label_options(labels: Mapping[str, str]) -> Iterable[str]:
    """Return the options that give a container or an image these labels."""
    return (f"--label={key}={value}" for key, value in labels.items())


def model_dir(node: NodeConfig) -> str:
    """Return the directory that holds the models on a node."""
    return node.model_dir or "/srv/models"


def host_paths(node: NodeConfig) -> frozenset[str]:
    """Return the directories, files and devices of a node that its engines get."""
    devices = (*(node.gpu_devices or ()), *(node.gpu_mounts or ())) if node.gpu == "devices" else ()
    return frozenset((model_dir(node), *devices))


def gpu(node: NodeConfig) -> tuple[str, ...]:
    """Return the options that give a container the accelerator of `node`."""
    match node.gpu:
        case "runtime":
            return ("--gpus=all",)
        case "cdi":
            return ("--device=nvidia.com/gpu=all",)
        case "devices":
            devices = (f"--device={path}" for path in node.gpu_devices or ())
            mounts = (f"--volume={path}:{path}:ro" for path in node.gpu_mounts or ())
            return (*devices, *mounts)
        case "none" | None:
            return ()


def put(container: str, path: str, content: bytes) -> Command:
    """Write `content` to `path` in a created container: owned by the engine's user, mode 0400, removed with it."""
    file = PurePosixPath(path)
    return docker("cp", "-", f"{container}:{file.parent}", stdin=_tar(file.name, content, 0o400, runtime.USER))


def _tar(name: str, content: bytes, mode: int, user: int) -> bytes:
    """Return an archive of one file. Its time is 0, so that the same content gives the same bytes."""
    archive, member = io.BytesIO(), tarfile.TarInfo(name)
    member.size, member.mode, member.uid, member.gid = len(content), mode, user, user
    with tarfile.open(fileobj=archive, mode="w") as packed:
        packed.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def named(command: Command, name: str) -> Command:
    """Return a `create` whose container has another name."""
    position = next(index for index, word in enumerate(command.argv) if word.startswith("--name="))
    return replace(command, argv=(*command.argv[:position], f"--name={name}", *command.argv[position + 1 :]))


def rename(container: str, name: str) -> Command:
    return docker("rename", container, name)


def start(container: str) -> Command:
    return docker("start", container)


def stop(container: str, grace_s: int) -> Command:
    """Send SIGTERM, and SIGKILL after `grace_s` seconds. The container and its log stay."""
    return docker("stop", f"--time={grace_s}", container, timeout_s=grace_s + 60.0)


def set_restart(container: str, policy: str) -> Command:
    """Set Docker's restart policy: `always` after a crash, a reboot and a restart of Docker, or `no`.

    Not `unless-stopped`: after dockerd was killed, the new dockerd stops containers that still run, and would leave
    this one down.
    """
    return docker("update", f"--restart={policy}", container)


def kill(container: str) -> Command:
    return docker("kill", container)


STOP_FORMAT = '--format={{.Action}} {{index .Actor.Attributes "signal"}}'
ENDING = frozenset(str(int(number)) for number in (SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGTERM))
"""Signals with which an operator asks for an end. `docker kill -s HUP` or USR1, as of programs that rotate logs, does
not: a crash hours later would count as an operator's decision."""


def stops(container: str, since_s: float, until_s: float) -> Command:
    """List the stops and kills that Docker received, from `since_s` to `until_s` (seconds since 1970).

    One a line, a kill with the number of its signal.
    """
    between = (f"--since={since_s:.9f}", f"--until={until_s:.9f}")
    filters = (f"--filter=container={container}", "--filter=event=stop", "--filter=event=kill")
    return Command(("docker", "events", *between, *filters, STOP_FORMAT), timeout_s=20.0)


def ends_by_hand(printed: str) -> bool:
    """Return whether an operator asked for an end, of the output of `stops`."""
    events = (line.split() for line in printed.splitlines())
    return any(event[:1] == ["stop"] or (event[:1] == ["kill"] and ENDING.issuperset(event[1:])) for event in events)


def remove(container: str) -> Command:
    """Remove a stopped container; a running one is refused by Docker."""
    return docker("rm", container)


def remove_by_force(container: str) -> Command:
    return docker("rm", "--force", container)


def logs(
    container: str, *, follow: bool, tail: int | None, since: str | None = None, timestamps: bool = False
) -> Command:
    """Print the container's log, both streams. `since`: a time, or how long ago, as Docker reads it on the node."""
    flags = [flag for flag, given in (("--follow", follow), ("--timestamps", timestamps)) if given]
    times = [f"--since={since}"] if since else []
    options = (*flags, *times, f"--tail={tail if tail is not None else 'all'}")
    timeout_s = 30 * 24 * 3600.0 if follow else 120.0
    return Command(("docker", "logs", *options, container), timeout_s=timeout_s)


def build(
    tag: str, labels: Mapping[str, str], build_args: Mapping[str, str], hidden: Mapping[str, bytes] | None = None
) -> Command:
    """Build with BuildKit from a tar on stdin. `hidden` are secrets by the ID that the Dockerfile mounts.

    `docker build` has BuildKit with the buildx plugin and, in older clients, without it. The builder is named because
    another default builder would not see the node's own images.
    """
    options = (
        "--progress=plain",
        "--file=Dockerfile",
        f"--tag={tag}",
        *label_options(labels),
        *(f"--build-arg={name}={value}" for name, value in build_args.items()),
        *secrets.options(hidden or {}),
    )
    command = Command((*BUILDKIT, "docker", "build", *options, "-"), timeout_s=BUILD_TIMEOUT_S, changes=True)
    return secrets.hold(command, hidden or {})


def label(image: str, name: str, labels: Mapping[str, str]) -> Command:
    """Give an image another name and further labels: a build without a step.

    Sent as an archive: buildx 0.13 leaves two directories in /tmp for each Dockerfile that it reads from stdin.
    """
    argv = (*BUILDKIT, "docker", "build", "--quiet", f"--tag={name}", *label_options(labels), "-")
    return Command(argv, stdin=_tar("Dockerfile", f"FROM {image}\n".encode(), 0o644, 0), timeout_s=120.0, changes=True)


def read_manifest(image: str) -> Command:
    """Print the manifest, or list of manifests, that a registry has of an image."""
    return Command((*BUILDKIT, "docker", "buildx", "imagetools", "inspect", "--raw", image), timeout_s=60.0)


def tag(image: str, name: str) -> Command:
    return docker("tag", image, name)


def trust(name: str, image: str) -> Command:
    """Record that the image ID `image` got its name from a passed gate or a verified copy."""
    return docker("volume", "create", trust_mark(name, image))


def remove_image(name: str) -> Command:
    """Remove a name of an image, with the last name the image."""
    return docker("rmi", name)


def memory_limit(gib: int) -> tuple[str, str]:
    """Return the options that bound the memory of a container, without swap."""
    return f"--memory={gib}g", f"--memory-swap={gib}g"


def check_image(image: str, script: bytes, *arguments: str, models: str = "", memory_gib: int = GATE_GIB) -> Command:
    """Run a Python script inside an image as the engine's user, without network, and remove the container.

    `models`: the node's model directory, which it sees as an engine does; empty for none. `memory_gib`: its limit.
    """
    limits = (*memory_limit(memory_gib), "--cpu-shares=64")  # an engine may serve
    mounted = (f"--volume={models}:{MODELS}:ro",) if models else ()
    options = ("--rm", "--interactive", "--network=none", *RIGHTS, *limits, f"--env=HOME={runtime.HOME}", *mounted)
    return docker("run", *options, "--entrypoint=python", image, "-", *arguments, timeout_s=600.0, stdin=script)


def inside(container: str, argv: Sequence[str]) -> Command:
    """Run a program in a container that runs."""
    return Command(("docker", "exec", container, *argv), timeout_s=30.0)


def read_file(image: str, path: str) -> Command:
    return docker("run", "--rm", "--network=none", *RIGHTS, "--entrypoint=cat", image, path)
