"""Known causes in Docker's errors, when it pulls an image, or creates or starts a container."""

from __future__ import annotations

from sparkops.engines.causes import Cause

CLI = "docker/cli"
MOBY = "moby/moby"
CONTAINERD = "containerd/containerd"
RUNC = "opencontainers/runc"
NVIDIA = "NVIDIA/nvidia-container-toolkit"
LIBNVIDIA = "NVIDIA/libnvidia-container"

RESTART = "sudo systemctl restart docker"
TOOLKIT = (
    "On the node: sudo apt-get install nvidia-container-toolkit; sudo nvidia-ctk runtime configure "
    f"--runtime=docker; {RESTART}\n"
)
CONFIGURE = f"On the node: sudo nvidia-ctk runtime configure --runtime=docker; {RESTART}\n"
DEVICES = "Without the toolkit: set `gpu: devices` in the inventory."
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
CHECK_DRIVER = "On the node: `nvidia-smi` and `sudo dmesg | grep -i nvrm` show the reason. "
OLDER_IMAGE = (
    "Take an image built for the CUDA version that `nvidia-smi` prints on the node (image.use, image.base or "
    "image.vllm), or update the driver (DGX OS: sudo apt-get full-upgrade), and reboot.\n"
    'NVIDIA_DISABLE_REQUIRE: "1" in serve.env skips this check; the engine may then fail in CUDA.'
)
PATH = r"([^\s:\"']{1,256})"
FREE_DISK = "Free space on the node: `sparkops prune`; `docker system df` and `df -h /var/lib/docker` show its use."
NEW_IMAGE = "Remove the image on the node (docker image rm), then build or pull it again: `sparkops build`, docker pull"
REBUILD = "Correct the image, and build it again: `sparkops build`."
REGISTRY = (
    "Correct the name and tag in image.use or image.base; for a private image log in on the nodes: `sparkops node "
    "login REGISTRY`."
)
RETRY_PULL = "Check the node's network and DNS (`curl -I https://REGISTRY/v2/`, `resolvectl status`), then retry."
READ_ONLY = (
    "Create the directory below model_dir of the node (mkdir), or mount it elsewhere, outside the read-only directory."
)

GPU: tuple[Cause, ...] = (
    Cause(
        r'could not select device driver "cdi"|no CDI device driver registered',
        "CDI is disabled in the node's Docker (enabled by default from 28.2 on)",
        'Set {{"features": {{"cdi": true}}}} in /etc/docker/daemon.json on the node, and restart Docker; '
        "or set `gpu: runtime` in the inventory.",
        source=f"{MOBY}: daemon/cdi.go",
    ),
    Cause(
        r"could not select device driver|no known GPU vendor found|[Uu]nknown or invalid runtime name: nvidia"
        r"|Unknown runtime specified nvidia|specified default runtime 'nvidia' does not exist",
        "the node's Docker lacks the NVIDIA Container Toolkit, which `gpu: runtime` (--gpus) needs: it is not "
        "installed, or its runtime is not registered in this Docker",
        TOOLKIT + DEVICES,
        source=f"{MOBY}: daemon/devices.go, daemon/runtime_unix.go",
    ),
    Cause(
        r"[Uu]nknown (?:or invalid )?runtime (?:name: |specified )(\S{1,128})",
        "the node's Docker has no runtime {}: it is not registered in /etc/docker/daemon.json",
        f"Register it there, or remove it from the command, then: {RESTART}",
        source=f"{MOBY}: daemon/runtime_unix.go",
    ),
    Cause(
        r"(?:exec: |fork/exec )\"?[^\s\":]{0,256}(nvidia-container-runtime(?:-hook)?|nvidia-container-cli"
        r"|nvidia-container-toolkit"
        r"|nvidia-cdi-hook|nvidia-ctk)\"?: (?:executable file not found|no such file)"
        r"|couldn't find binary (nvidia-container-cli) in PATH"
        r"|(nvidia-[\w-]{1,64}) did not terminate successfully: exit status 127",
        "a program of the NVIDIA Container Toolkit is missing on the node ({0}{1}{2}): the toolkit was removed or "
        "moved, and Docker or the CDI specification still names it",
        f"{TOOLKIT}Then write the CDI specification again: {GENERATE}",
        source=f"{RUNC}: libcontainer/configs/config.go; {NVIDIA}: cmd/nvidia-container-runtime-hook",
    ),
    Cause(
        r"cannot set both Count and DeviceIDs",
        "--gpus names devices and a count of them, of which Docker accepts one",
        "Set gpu: runtime in the inventory, which asks for all, or correct --gpus of the command.",
        source="docker/cli: opts/gpus.go",
    ),
    Cause(
        r"invoking the NVIDIA Container Runtime Hook directly",
        "the NVIDIA runtime of the node is in mode cdi, in which Docker's --gpus (`gpu: runtime`) is refused",
        "Set `gpu: cdi` in the inventory; or on the node: sudo nvidia-ctk config --in-place "
        f"--set nvidia-container-runtime.mode=auto; {RESTART}",
        source=f"{NVIDIA}: cmd/nvidia-container-runtime-hook/main.go",
    ),
    Cause(
        r"unresolvable CDI devices (?:runtime|management)\.nvidia\.com/\S{1,256}",
        "the NVIDIA runtime of the node could not generate its CDI specification: the driver is not loaded, does not "
        "match its libraries, or has no device",
        f"On the node `sudo nvidia-ctk cdi generate` prints why; `nvidia-smi` must work first. Then: {RESTART}\n"
        "`gpu: devices` in the inventory needs no specification.",
        source=f"{NVIDIA}: internal/modifier/cdi.go; {NVIDIA}#1537",
    ),
    Cause(
        r"unresolvable CDI devices (\S{1,256})",
        "no CDI specification of the node has the devices {}: it was not written, is older than the devices, "
        "or their name is wrong",
        f"On the node: {GENERATE}; nvidia-ctk cdi list must then "
        "show {}\nOr set `gpu: runtime` or `gpu: devices` in the inventory.",
        source="cncf-tags/container-device-interface: pkg/cdi/cache.go",
    ),
    Cause(
        r"custom device \"?(?:[\w.-]{1,64}\.)?nvidia\.com/gpu=|stat nvidia\.com/gpu=\S{1,64} no such file"
        r"|nvidia\.com/gpu=[\w-]{1,64}\"?.{0,64}(?:not an absolute path|no such file)",
        "the node's Docker does not know CDI: it is older than 25, or CDI is disabled",
        'Update Docker, or set {{"features": {{"cdi": true}}}} in /etc/docker/daemon.json and restart it; '
        "or set `gpu: runtime` in the inventory.",
        source=f"{MOBY}: daemon/pkg/oci/devices_linux.go",
    ),
    Cause(
        r"failed to stat CDI host device \"(/dev/[^\"]{1,256})\"",
        "the CDI specification names the device {}, which the node does not have: the driver's module is not loaded, "
        "or the specification is old",
        f"On the node: sudo nvidia-modprobe -u -c 0; nvidia-smi; {GENERATE}; then `sparkops doctor`.",
        source="cncf-tags/container-device-interface: pkg/cdi/container-edits_unix.go",
    ),
    Cause(
        r"(?:failed to fulfil mount request: open|error mounting|mount src=|stat) ?\"?"
        r"(/[^\s\":]{0,128}nvidia-(?:persistenced|fabricmanager"
        r"|cuda-mps)[\w./-]{0,64})\"?.{0,512}no such file or directory",
        "the CDI specification of the node names {}, which does not exist: its service does not run, or the driver "
        "was updated",
        f"On the node: sudo systemctl enable --now nvidia-persistenced; {GENERATE}; then deploy again.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"(?:failed to fulfil mount request: open|error mounting|mount src="
        r"|stat) ?\"?(/[^\s\":]{0,256}/(?:lib(?:nvidia|cuda|nvcuvid|nvoptix|EGL_nvidia"
        r"|GLX_nvidia|vdpau_nvidia)[\w.-]{0,128}|nvidia-smi"
        r"|gsp_\w{1,16}\.bin))\"?.{0,512}no such file or directory",
        "the CDI specification of the node is old: it names {}, which no longer exists since the driver was updated",
        f"On the node: {GENERATE}; then deploy again.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"failed to (?:load|parse|read|unmarshal) CDI Spec|invalid CDI Spec|CDI registry initialization failure"
        r"|conflicting device \"[^\"]{1,128}\" \(specs",
        "a CDI specification of the node is damaged, or two of them define the same devices (/etc/cdi, /var/run/cdi)",
        f"On the node: remove the wrong file in /etc/cdi or /var/run/cdi, then: {GENERATE}",
        source="cncf-tags/container-device-interface: pkg/cdi/spec.go, cache.go",
    ),
    Cause(
        r"(?:nvidia-cdi-hook|nvidia-ctk|createContainer hook|createRuntime hook|hook #\d{1,3}).{0,512}"
        r"(?:No help topic for|flag provided but not defined|unknown command|Incorrect Usage)",
        "the CDI specification of the node was written by another version of the NVIDIA Container Toolkit than the "
        "one installed",
        f"On the node: {GENERATE}; then deploy again.",
        source=f"{NVIDIA}: cmd/nvidia-cdi-hook",
    ),
    Cause(
        r"unsatisfied condition: cuda ?>=? ?([\d.]{1,9}[\d])(?: \(cuda ?=? ?([\d.]{1,9})\))?",
        "the image needs CUDA {0} or newer, and the NVIDIA driver of the node is too old for it",
        OLDER_IMAGE,
        source=f"{LIBNVIDIA}: src/cli/configure.c, dsl.c; NVIDIA/nvidia-container-toolkit: internal/requirements",
    ),
    Cause(
        r"unsatisfied condition: (.{1,128}?)(?:, please update|: unknown|$)",
        "the image requires of the node's GPU or NVIDIA driver what they do not have: {}",
        OLDER_IMAGE,
        source=f"{LIBNVIDIA}: src/cli/configure.c",
    ),
    Cause(
        r"requirement error: invalid expression|failed to get (?:image )?requirements",
        "a requirement of the image or of serve.env (NVIDIA_REQUIRE_*) is not valid",
        'Correct it in serve.env, or set NVIDIA_DISABLE_REQUIRE: "1" there.',
        source=f"{LIBNVIDIA}: src/cli/dsl.c",
    ),
    Cause(
        r"nvml error: driver/library version mismatch|ERROR_LIB_RM_VERSION_MISMATCH|Driver/library version mismatch",
        "the NVIDIA driver's kernel module and its libraries have different versions: the driver was updated, and "
        "the node not rebooted since",
        "Reboot the node, which loads the kernel module of the new driver (`sparkops node drain NODE` moves services "
        "first).",
        source=f"{LIBNVIDIA}: src/driver.c",
    ),
    Cause(
        r"nvml error: driver not loaded|ERROR_DRIVER_NOT_LOADED|driver is not loaded",
        "the kernel module of the NVIDIA driver is not loaded on the node: after a kernel update it may not be built "
        "for the running kernel",
        CHECK_DRIVER + "Install the module for the running kernel (`uname -r`; apt, dkms), or boot the earlier kernel, "
        "and reboot.",
        source=f"{LIBNVIDIA}: src/driver.c",
    ),
    Cause(
        r"load library failed: libnvidia-ml\.so|ERROR_LIBRARY_NOT_FOUND|load library failed: libcuda\.so",
        "this Docker finds no NVIDIA driver on the node: the driver's libraries are not installed, or Docker runs in "
        "a virtual machine, as a snap or inside a container",
        CHECK_DRIVER + "Install the driver (apt), and use Docker Engine of the system, not Docker Desktop or snap.",
        source=f"{LIBNVIDIA}: src/driver.c",
    ),
    Cause(
        r"nvml error: (?:gpu is lost|unknown error|insufficient external power|irq issue|gpu requires reset)"
        r"|(?:detection|initialization) error: cuda error: (?:unknown error|uncorrectable ecc)|ERROR_GPU_IS_LOST",
        "the GPU does not answer: it fell off the bus, or its driver is in a failed state",
        CHECK_DRIVER + "Reboot the node, or cut its power.",
        source=f"{LIBNVIDIA}: src/driver.c, src/nvc_info.c",
    ),
    Cause(
        r"cuda error: no cuda-capable device is detected|nvml error: (?:not found|no such device)"
        r"|no NVIDIA GPU device is present"
        r"|no devices? found.{0,64}nvml|device error: .{0,128}unknown device",
        "the driver finds no such GPU on the node: the device in the request does not exist, or the GPU is not "
        "detected",
        CHECK_DRIVER
        + "Check `gpu` of the node in the inventory (gpu: runtime asks for all), then run `sparkops doctor`.",
        source=f"{LIBNVIDIA}: src/cli/common.c, src/nvc_info.c",
    ),
    Cause(
        r"driver rpc error: (?!.{0,64}timed out)(.{1,128})|initialization error: driver error: (?!.{0,64}timed"
        r" out)(.{1,128})",
        "the toolkit got no answer that it understands from the NVIDIA driver ({0}{1}): the driver failed, or "
        "toolkit and driver do not fit each other",
        CHECK_DRIVER + "Update nvidia-container-toolkit, or reboot the node if nvidia-smi fails too.",
        source=f"{LIBNVIDIA}: src/rpc.c",
    ),
    Cause(
        r"driver rpc error: .{0,64}timed out|(?:initialization|detection) error: .{0,64}timed out",
        "the NVIDIA driver does not answer the toolkit in time: the GPU hangs, or it is slow without persistence mode",
        CHECK_DRIVER + "Then: sudo nvidia-smi -pm 1; reboot the node if nvidia-smi hangs.",
        source=f"{LIBNVIDIA}: src/rpc.c",
    ),
    Cause(
        r"nvml error: insufficient permissions|cuda error: operation not permitted",
        "the toolkit may not open the GPU's device files: Docker runs rootless or confined, or /dev/nvidia* has "
        "other rights",
        "Use the Docker daemon of root on the node; `ls -l /dev/nvidia*` shows the rights. Or set `gpu: cdi` in the "
        "inventory.",
        source=f"{LIBNVIDIA}: src/driver.c",
    ),
    Cause(
        r"failed to add device rules|unable to find any existing device filters"
        r"|cgroup subsystem devices not found|failed to get device cgroup mount path"
        r"|open failed: /sys/fs/cgroup/devices/",
        "the NVIDIA toolkit is not allowed to change the device filter (BPF) of the container's cgroup: Docker is "
        "rootless or runs inside a container, the kernel refuses it, or the toolkit does not know this version of "
        "cgroups",
        "Use the Docker daemon of root on the node and a current toolkit (1.8 and later know cgroup v2), or set "
        "`gpu: cdi` in the inventory; last: no-cgroups = true in /etc/nvidia-container-runtime/config.toml.",
        source=f"{LIBNVIDIA}: src/nvcgo/internal/cgroup/v2.go, src/nvc_container.c",
    ),
    Cause(
        r"file creation failed: \S{0,512}/(lib(?:nvidia|cuda)[^\s:/]{1,128}): file exists"
        r"|file creation failed: \S{0,512}/(nvidia-smi): file exists",
        "the image has files of the NVIDIA driver itself ({0}{1}), where the toolkit mounts those of the node",
        "Remove the package that brings them (libnvidia-compute-*, nvidia-utils-*) from image.apt, or delete the "
        "files in a mod of image.mods, and build the image again; or take another image in image.use.",
        source=f"{LIBNVIDIA}: src/nvc_mount.c; BIOP/BIOP-desktop#2",
    ),
    Cause(
        r"mount error: (?:file creation|mount operation|stat|open) failed: (\S{0,512}nvidia-persistenced/socket)"
        r"|mount error: .{0,512}/merged/(?:var/)?run/.{0,256}(?:no such device|not a directory|file exists"
        r"|no such file)",
        "the container's /run or /var/run is a directory of the node, mounted over it, where the toolkit places the "
        "driver's sockets",
        "Mount only the files that the container needs (such as /var/run/docker.sock), not /run or /var/run.",
        source="NVIDIA/nvidia-docker#1690",
    ),
    Cause(
        r"mount error: (?:mount operation|stat|open|file lookup|path error).{0,32}(?:failed"
        r"|error): (/[^\s:]{1,256}): no such file",
        "the toolkit looks for a file of the NVIDIA driver that the node does not have ({}): the driver is installed "
        "in part, or was updated while its libraries were listed",
        f"On the node: sudo ldconfig; nvidia-smi; {RESTART}. If it stays, install the driver again (apt).",
        source=f"{LIBNVIDIA}: src/nvc_mount.c",
    ),
    Cause(
        r"mount error: .{0,512}(?:read-only file system|permission denied|operation not permitted)",
        "the toolkit cannot mount the driver into the container: its file system is read-only, or the mount is not "
        "permitted (rootless Docker, AppArmor)",
        "Remove a read-only root file system from the command, or set `gpu: cdi` in the inventory.",
        source=f"{LIBNVIDIA}: src/nvc_mount.c",
    ),
    Cause(
        r"ldcache error: .{0,256}ldconfig",
        "the toolkit could not run ldconfig in the container: the path in its configuration does not exist on this "
        "system, or ldconfig fails in the image",
        'Set ldconfig = "@/sbin/ldconfig" (Ubuntu: "@/sbin/ldconfig.real") on the node in '
        f"/etc/nvidia-container-runtime/config.toml; {RESTART}",
        source=f"{LIBNVIDIA}: src/nvc_ldcache.c",
    ),
    Cause(
        r"(?:permission|initialization) error: (?:capability change|privilege change|change root) failed"
        r"|initialization error: open failed: /proc/sys/kernel/overflow\w{1,8}: permission denied",
        "the toolkit lacks rights to set up the GPU: Docker runs rootless, as a snap, or inside another container",
        "Use the Docker daemon of root on the node (Docker Engine of the system), or set `gpu: cdi` in the inventory.",
        source=f"{LIBNVIDIA}: src/nvc.c",
    ),
    Cause(
        r"unsupported capabilities found in|unknown driver capability",
        "NVIDIA_DRIVER_CAPABILITIES names a capability that the toolkit does not allow",
        "Set it to compute,utility in serve.env, or remove it.",
        source=f"{NVIDIA}: cmd/nvidia-container-runtime-hook/container_config.go",
    ),
    Cause(
        r"could not load config|(?:couldn't open|error loading) (?:required )?config(?:uration file)?: "
        r"|invalid mode \"|unsupported CDI mode"
        r"|Invalid value for config option",
        "the configuration of the NVIDIA toolkit (/etc/nvidia-container-runtime/config.toml) is damaged or has a "
        "wrong value",
        "On the node: sudo nvidia-ctk config --output=/etc/nvidia-container-runtime/config.toml writes the default; "
        f"{RESTART}",
        source=f"{NVIDIA}: internal/config",
    ),
    Cause(
        r"no runtime binary found from candidate list",
        "the NVIDIA runtime finds no runc or crun on the node",
        f"On the node: sudo apt-get install --reinstall containerd.io; {RESTART}",
        source=f"{NVIDIA}: internal/oci/runtime_low_level.go",
    ),
    Cause(
        r"error gathering device information while adding custom device \"(/dev/infiniband[^\"]{0,128})\"",
        "the RDMA device {} does not exist on the node: its driver (mlx5_ib) is not loaded, or the device changed "
        "its number since the last boot",
        "Run `sparkops doctor`; on the node: rdma link; ls /dev/infiniband; sudo modprobe mlx5_ib ib_uverbs. Correct "
        "`fabric` of the node in the inventory.",
        source=f"{MOBY}: daemon/pkg/oci/devices_linux.go",
    ),
    Cause(
        r"error gathering device information while adding custom device \"(/dev/(?:nvidia|nvhost|dri"
        r"|nvmap)[^\"]{0,128})\"",
        "the device {} of the GPU does not exist on the node: the driver's module is not loaded, or gpu_devices "
        "names another device",
        "On the node: sudo nvidia-modprobe -u -c 0; nvidia-smi; ls /dev/nvidia*. Correct gpu_devices of the node in "
        "the inventory.",
        source=f"{MOBY}: daemon/pkg/oci/devices_linux.go",
    ),
    Cause(
        r"error gathering device information while adding custom device \"([^\"]{1,256})\": (?:not a device node)",
        "{} is no device, but a file or directory",
        "Correct gpu_devices of the node in the inventory, or mount it with gpu_mounts.",
        source=f"{MOBY}: daemon/pkg/oci/devices_linux.go",
    ),
    Cause(
        r"error gathering device information while adding custom device \"([^\"]{1,256})\"",
        "the device {} does not exist on the node",
        "Correct gpu_devices of the node in the inventory; `ls -l {}` on the node shows it.",
        source=f"{MOBY}: daemon/pkg/oci/devices_linux.go",
    ),
    Cause(
        r"failed to (?:generate CDI spec|create the automatic CDI modifier|construct CDI (?:library|modifier))"
        r"|failed to construct OCI spec modifier|failed to initialize NVML",
        "the NVIDIA runtime of the node could not generate its CDI specification: the driver is not loaded, does not "
        "match its libraries, or has no device",
        f"On the node `sudo nvidia-ctk cdi generate` prints why; `nvidia-smi` must work first. Then: {RESTART}\n"
        "`gpu: devices` in the inventory needs no specification.",
        source=f"{NVIDIA}: internal/modifier/cdi.go; {NVIDIA}#1537",
    ),
)
"""Of the NVIDIA Container Toolkit, CDI and devices."""

DAEMON: tuple[Cause, ...] = (
    Cause(
        r"failed to initialize logging driver|no log driver named|unknown log opt",
        "the log driver of the container cannot start: it is unknown to Docker, has a wrong option, or does not "
        "reach its server",
        f"Correct log-driver and log-opts in /etc/docker/daemon.json on the node; {RESTART}",
        source="moby/moby: daemon/logger",
    ),
    Cause(
        r"permission denied while trying to connect to the [Dd]ocker|docker\.sock: connect: permission denied",
        "the user on the node may not use Docker: it is not in the group docker",
        "On the node: sudo usermod -aG docker USER, then log in again; or correct `user` of the node in the inventory.",
        source=f"{MOBY}: client/request.go; NVIDIA/nvidia-docker#1138",
    ),
    Cause(
        r"Cannot connect to the Docker daemon|docker\.sock: connect: (?:connection refused|no such file)"
        r"|failed to connect to the docker API|error during connect: ",
        "the Docker daemon of the node does not run, or listens elsewhere",
        f"On the node: systemctl status docker; journalctl -u docker -n 50 shows why it ended; {RESTART}",
        source=f"{MOBY}: client/request.go, client/errors.go",
    ),
    Cause(
        r"client version [\d.]{1,16} is too (new|old)|Maximum supported API version|Minimum supported API version",
        "the docker command and the Docker daemon of the node have versions that do not match",
        "Update both on the node (apt: docker-ce, docker-ce-cli), or unset DOCKER_API_VERSION.",
        source=f"{MOBY}: daemon/server/middleware/version.go",
    ),
    Cause(
        r"containerd\.sock|dial unix \S{0,256}/containerd\S{0,128}|(?:ttrpc|grpc): (?:closed"
        r"|the client connection is closing)"
        r"|error reading server preface",
        "containerd, which Docker starts containers with, does not run on the node or ended while the container "
        "started",
        f"On the node: systemctl status containerd; sudo systemctl restart containerd; {RESTART}",
        source=CONTAINERD,
    ),
    Cause(
        r"API version.{0,128}500 Internal Server Error|request returned (?:500|502"
        r"|503) ?\w{0,64}.{0,64} for API route",
        "the Docker daemon of the node answers with an error of its own: it is starting, stopping or damaged",
        f"On the node: journalctl -u docker -n 50 shows why; {RESTART}",
        source=f"{MOBY}: client/request.go",
    ),
    Cause(
        r"(?:docker|docker\.io): (?:command )?not found|docker: not found|'docker' not found",
        "the node has no docker command",
        "Install Docker Engine on the node, then run `sparkops doctor`.",
        source="the shell",
    ),
)
"""Of the daemon and its socket."""

PULL: tuple[Cause, ...] = (
    Cause(
        r"Error response from daemon: ",
        "the image that was built for this release is missing on the node: it was never copied there, or was pruned",
        "Run `sparkops build RECIPE`, which brings the image to its nodes, and deploy again.",
        source=f"{MOBY}: daemon/images",
        beside=r"Unable to find image '(?:sparkops/|sha256:)",
    ),
    Cause(
        r"toomanyrequests|pull rate limit|429 Too Many Requests|too many requests",
        "the registry refuses more pulls from this address: its rate limit is reached (Docker Hub counts pulls "
        "without an account)",
        "Log in on the nodes: `sparkops node login docker.io`; or wait an hour, or use a mirror (build.parent_images).",
        source=f"{MOBY}: daemon/containerd/image_pull.go",
    ),
    Cause(
        r"no matching manifest for (\S{1,64})|does not match the specified platform"
        r"|does not provide the specified platform"
        r"|image operating system \"|no match for platform in manifest|no image found in (?:manifest list"
        r"|image index) for architecture",
        "the image has no variant for the platform of the node, linux/arm64: it was made for another architecture",
        "Set image.use or image.base to a tag with linux/arm64 (docker manifest inspect IMAGE lists them), or build "
        "it on a Spark: `sparkops build`.",
        source=f"{MOBY}: daemon/containerd/image_pull.go, daemon/images/image.go",
    ),
    Cause(
        r"does not match the detected host platform|exec format error",
        "the image or a program in it was built for another architecture (amd64) than the node's, arm64 (or a "
        "script in it does not begin with #! and its interpreter)",
        "Set image.use or image.base to a tag with linux/arm64 (docker image inspect IMAGE prints its Architecture), "
        "or build it on a Spark: `sparkops build`. If it is arm64: correct the first line of the script.",
        source=f"{MOBY}: daemon/create.go; mmartial/ComfyUI-Nvidia-Docker#96",
    ),
    Cause(
        r"x509: certificate has expired or is not yet valid|certificate is not valid yet"
        r"|current time .{1,64} is (?:before|after)",
        "the registry's certificate is not valid at the time of the node's clock: the clock is wrong, or the "
        "certificate expired",
        "On the node: timedatectl; sudo timedatectl set-ntp true. `sparkops doctor` compares the clocks.",
        source="golang crypto/x509",
    ),
    Cause(
        r"x509: certificate is valid for (.{1,256}?), not (\S{1,128})|x509: (?:certificate is not valid for an"
        r"y names, but wanted to match|cannot validate certificate for) (\S{1,128})|relies on legacy Common Na"
        r"me",
        "the certificate of the registry is for another name than the one that it is asked by ({1}{2})",
        "Use the name that the certificate has ({0}) in image.use or image.base, or give the registry a "
        "certificate for this name.",
        source="golang crypto/x509",
    ),
    Cause(
        r"x509: |certificate signed by unknown authority|tls: failed to verify certificate",
        "the node does not trust the certificate of the registry: it is signed by a private authority, or a proxy "
        "replaces it",
        "Put the authority's certificate into /etc/docker/certs.d/REGISTRY/ca.crt on the node (build.ca_certificates "
        "is for builds), or use a mirror.",
        source="golang crypto/x509",
    ),
    Cause(
        r"server gave HTTP response to HTTPS client",
        "the registry answers without TLS (http), and Docker expects https",
        "Add it to insecure-registries in /etc/docker/daemon.json on the node and restart Docker, or give it a "
        "certificate.",
        source="golang net/http",
    ),
    Cause(
        r"proxyconnect tcp|Proxy Authentication Required|407 Proxy",
        "the proxy that Docker uses on the node does not answer or refuses it",
        f"Correct HTTP_PROXY and HTTPS_PROXY of docker.service (systemctl show docker -p Environment), then: {RESTART}",
        source="golang net/http",
    ),
    Cause(
        r"lookup ([\w.-]{1,256})(?: on [^:\s]{1,64}:\d{1,5})?: (?:no such host|server misbehaving|i/o timeout)"
        r"|lookup ([\w.-]{1,256}).{0,128}(?:[Tt]emporary failure in name resolution|connection refused|no such host"
        r"|i/o timeout)",
        "the node cannot resolve the name of the registry ({0}{1}): it has no network or no working DNS, or the name "
        "is wrong",
        "On the node: resolvectl query REGISTRY; correct its DNS or the image's name. Without internet: "
        "docs/offline.md.",
        source="golang net",
    ),
    Cause(
        r"unauthorized: |authentication required|no basic auth credentials|(?:401 Unauthorized|403 Forbidden)"
        r"|incorrect username or password"
        r"|denied: (?:denied|Your |requested access|installation not allowed|permission|access forbidden)"
        r"|insufficient_scope: (?!.{0,64}does not exist)",
        "the registry refuses the image: the node is not logged in there, its login expired, or the account has no "
        "access",
        "Log in on the nodes: `sparkops node login REGISTRY` (nvcr.io: user $oauthtoken and an API key); check the "
        "image's name.",
        source=f"{CONTAINERD}: core/remotes/docker",
        unless=r"repository does not exist",
    ),
    Cause(
        r"pull access denied for (?:sparkops/\S{1,200}|sha256:\S{1,64})|No such image: (?:sparkops/\S{1,200}"
        r"|sha256:\S{1,64})",
        "the image that was built for this release is missing on the node: it was never copied there, or was pruned",
        "Run `sparkops build RECIPE`, which brings the image to its nodes, and deploy again.",
        source=f"{MOBY}: daemon/images/image.go; {CLI}: cli/command/container/create.go",
    ),
    Cause(
        r"pull access denied for (\S{1,256}), repository does not exist",
        "the image {} is not on the node, and the registry has none of this name or shows it only after a login",
        "An image that sparkops builds: run `sparkops build RECIPE`. " + REGISTRY,
        source=f"{MOBY}: daemon/internal/distribution/errors.go",
    ),
    Cause(
        r"manifest (?:for )?\S{0,256} ?(?:not found|unknown)|manifest unknown|failed to resolve (?:reference"
        r"|image).{0,256}not found"
        r"|(?:docker\.io|nvcr\.io|ghcr\.io|quay\.io)/\S{1,256}: not found|repository name not known to registry"
        r"|name unknown",
        "the registry has no image of this name and tag: the tag is misspelled, or was removed",
        REGISTRY + " Pin images by digest (`sparkops recipe lock`).",
        source=f"{MOBY}: daemon/internal/distribution/errors.go; {CONTAINERD}: core/remotes/docker/resolver.go",
        unless=r"snapshot|content digest|device",
    ),
    Cause(
        r"No such image: (\S{1,256})",
        "the image {0} is missing on the node",
        "Run `sparkops build RECIPE`, which brings the image to its nodes, and deploy again.",
        source=f"{MOBY}: daemon/images/image.go",
    ),
    Cause(
        r"invalid reference format|repository name .{0,64}must be lowercase|invalid tag format",
        "the name of the image is not valid: it has capital letters, spaces or a stray character",
        "Correct image.use or image.base of the recipe (name:tag or name@sha256:DIGEST).",
        source="distribution/reference",
    ),
    Cause(
        r"no space left on device|disk quota exceeded",
        "a disk of the node is full: Docker's directory (images, layers, containers) or /run has no space left",
        FREE_DISK + " Then deploy again.",
        source=f"{MOBY}: daemon/internal/distribution/xfer/download.go",
        unless=r"inotify|Increase the limit|key|shm",
    ),
    Cause(
        r"TLS handshake timeout|Client\.Timeout exceeded|context deadline exceeded.{0,64}headers"
        r"|request canceled while waiting for connection"
        r"|dial tcp [^\s]{1,128}: (?:i/o timeout|connect: (?:connection (?:refused|timed out)|no route to host"
        r"|network is unreachable))"
        r"|unexpected EOF|(?:read|write): connection reset by peer|httpReadSeeker|net/http: timeout"
        r"|transport connection broken|\"?: EOF$",
        "the node does not reach the registry, or the connection ended during the pull: network, firewall or proxy",
        RETRY_PULL,
        source=f"{MOBY}: daemon/containerd/image_pull.go",
        unless=r"containerd\.sock|archive/tar|/var/run/docker",
    ),
    Cause(
        r"unexpected (?:HTTP )?status.{0,256} ?5\d\d |(?:500 Internal Server Error|502 Bad Gateway"
        r"|503 Service Unavailable|504 Gateway Time-?out)|stream error: stream ID",
        "the registry has a fault of its own at this time",
        "Retry later; or use a mirror, or pull on one node and copy the image: `sparkops build`.",
        source="containerd/containerd: core/remotes/docker",
    ),
    Cause(
        r"(?:filesystem layer|manifest|image config) verification failed for digest|unexpected commit digest"
        r"|failed size validation"
        r"|invalid tar header|unpigz|layers from manifest don't match|archive/tar: |Error processing tar file"
        r"|could not verify layer data|gzip: invalid"
        r"|invalid checksum",
        "a layer of the image arrived damaged, or is damaged on the disk",
        NEW_IMAGE + ". If it happens again, check the disk (dmesg) and the proxy or mirror.",
        source=f"{MOBY}: daemon/internal/distribution/pull_v2.go",
    ),
    Cause(
        r"(?:media type|mediatype|manifest).{0,128}(?:no longer supported|unsupported|not supported|not implemented)"
        r"|unsupported media type"
        r"|manifest invalid|missing signature key",
        "this Docker does not know the format of the image: the image is too old (schema 1), or Docker is",
        "Update Docker on the node, or set image.use or image.base to a newer tag.",
        source=f"{MOBY}: daemon/internal/distribution",
    ),
)
"""Of images and registries."""

STORE: tuple[Cause, ...] = (
    Cause(
        r"layer does not exist|parent snapshot \S{1,128} does not exist|layer \S{1,128} was not found"
        r"|unable to find image config"
        r"|content digest \S{1,128}: not found|failed to get layer|snapshot \S{1,256} does not exist"
        r"|unrecognized image ID"
        r"|failed to get reader from content store|RW ?[Ll]ayer .{0,128}(?:unexpectedly nil|not found)"
        r"|rw layer snapshot not found"
        r"|missing parent .{0,64}bucket|snapshotter\.v1\.\w{1,32}/\S{0,256}: no such file"
        r"|target snapshot \S{1,256}: (?:not found|does not exist)"
        r"|no matching snapshot found",
        "the image on the node is incomplete: Docker lists it, but a layer or snapshot of it is missing in its store "
        "(an interrupted pull or prune, or another image store)",
        NEW_IMAGE + f"\nIf it stays listed: {RESTART}",
        source=f"{MOBY}: daemon/internal/layer/layer.go; {CONTAINERD}: core/metadata/snapshot.go",
    ),
    Cause(
        r"error creating overlay mount to|overlay2?/\S{0,256}: (?:no such file|too many levels)"
        r"|failed to mount \S{1,256}:.{0,256}overlay"
        r"|mount options is too long|invalid rootfs: |invalid argument.{0,64}overlay"
        r"|readlink /var/lib/docker/overlay2",
        "Docker cannot mount the layers of the image: its store (overlay2) is damaged, or its file system does not "
        "support it",
        f"On the node: sudo dmesg | tail; {RESTART}\n{NEW_IMAGE}",
        source=f"{MOBY}: daemon/graphdriver/overlay2/overlay.go",
    ),
    Cause(
        r"input/output error|structure needs cleaning",
        "the node's disk reports errors, or its file system is damaged",
        "On the node: sudo dmesg | grep -iE 'nvme|ext4|I/O error'; check the disk (smartctl -a), then pull or build "
        "again.",
        source="the kernel",
    ),
    Cause(
        r"failed to L?chown|lchown \S{1,256}: (?:invalid argument|operation not permitted)|remap.{0,64}failed",
        "a file of the image belongs to a user that this Docker cannot map (rootless, or userns-remap with few ids)",
        "Take userns-remap out of /etc/docker/daemon.json on the node, or widen /etc/subuid and /etc/subgid; restart "
        "Docker.",
        source=f"{MOBY}: pkg/archive",
    ),
)
"""Of Docker's store."""

MOUNTS: tuple[Cause, ...] = (
    Cause(
        r"bind source path does not exist: (\S{1,512})",
        "the directory {} does not exist on the node: the model was not pulled there, or its disk is not mounted",
        "Run `sparkops models pull RECIPE`, mount the disk, or correct model_dir of the node in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/validate.go",
    ),
    Cause(
        r"error while creating mount source path '([^']{1,512})': .{0,512}(?:read-only file system|permission denied"
        r"|operation not permitted)",
        "the directory {} does not exist on the node, and Docker may not create it: its file system is read-only, or "
        "Docker is a snap or rootless",
        "Mount its disk, or create the directory on the node (sudo mkdir -p), or correct model_dir in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/mounts.go",
    ),
    Cause(
        r"(?:error while creating mount source path '|error mounting \"|stat |lstat |failed to stat |mkdir "
        r"|open )([^'\"\s:]{0,512}).{0,512}"
        r"(?:[Ss]tale (?:NFS )?file handle|[Tt]ransport endpoint is not connected|host is down|no route to host)",
        "a network file system of the node does not answer ({})",
        "On the node: mount it again (sudo umount -l, sudo mount), or correct model_dir in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/mounts.go",
    ),
    Cause(
        r"error while creating mount source path '([^']{1,512})': .{0,512}(?:file exists|not a directory)",
        "{} or a part of its path is a file on the node, or a mount that no longer answers, where a directory is "
        "expected",
        "Check it on the node with `ls -ld`, and correct model_dir in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/mounts.go",
    ),
    Cause(
        r"[Mm]ounts denied|is not shared from the host",
        "Docker Desktop does not share the mounted directory with its virtual machine",
        "Use Docker Engine of the node, not Docker Desktop, or share the directory in its settings.",
        source="docker/for-mac",
    ),
    Cause(
        r"[Dd]uplicate mount point: (\S{1,256})",
        "two mounts of the container have the same place, {}",
        "Remove one: gpu_mounts of the node in the inventory, or the engine's own mount.",
        source=f"{MOBY}: daemon/volume/mounts",
    ),
    Cause(
        r"not a directory.{0,64}Are you trying to mount a directory onto a file|mount a directory onto a file"
        r"|error mounting \"([^\"]{1,512})\".{0,512}not a directory",
        "a mount joins a file and a directory: the source on the node is a directory where the image has a file, or "
        "the reverse (Docker creates a missing source as a directory)",
        "On the node: `ls -ld` of the source; create the file, or correct gpu_mounts or model_dir in the inventory.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go; {MOBY}: daemon/errors.go",
    ),
    Cause(
        r"mkdir (/[^\s:]{1,256}): read-only file system"
        r"|create mountpoint for (\S{1,256}) mount: .{0,512}read-only file system"
        r"|error mounting \"[^\"]{1,512}\" to rootfs at \"([^\"]{1,256})\".{0,512}read-only file system",
        "a mount lies below a directory that is mounted read-only, where its directory cannot be created ({0}{1}{2} "
        "is missing there)",
        READ_ONLY,
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"mkdir /run/\S{0,256}: file exists|container with given ID already exists|task \S{1,128}: already exists"
        r"|id already in use|already exists in containerd",
        "a rest of an earlier start of this container remains in containerd",
        "On the node: docker rm -f NAME; sudo systemctl restart containerd docker. Then deploy again.",
        source="containerd/containerd: core/runtime",
    ),
    Cause(
        r"mkdir (/[^\s:]{1,256}): (?:file exists|not a directory)",
        "a directory is expected at {}, but a file or a broken link is there",
        "Check it on the node with `ls -ld`, and remove it or correct model_dir in the inventory.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"chdir to cwd \(\"([^\"]{1,256})\"\) set in config\.json failed: permission denied",
        "the container's user may not enter its working directory {}: a mount over it belongs to another user (such "
        "as NFS with root squash), or its rights do not allow it",
        "Give every user access (chmod o+x on the node), mount it elsewhere, or take an image with another working "
        "directory.",
        source=f"{RUNC}: libcontainer/init_linux.go; triton-inference-server/server#6488",
    ),
    Cause(
        r"chdir to cwd \(\"([^\"]{1,256})\"\) set in config\.json failed: (?:no such file|not a directory)",
        "the working directory {} does not exist in the container: a mount hides it, or the image lacks it",
        "Mount the directory elsewhere, or correct WORKDIR of the image.",
        source=f"{RUNC}: libcontainer/init_linux.go",
    ),
    Cause(
        r"(?:error mounting|failed to fulfil mount request: open"
        r"|failed to request mountfd for|invalid mount config for type \"bind\": stat)"
        r" \"?([^\s\":]{1,512})\"?.{0,512}permission denied",
        "Docker may not open {}, which the container mounts: its rights, NFS with root squash, or AppArmor forbid it",
        "On the node: `sudo ls -ld` of the path and its parents; let root and others enter it, or correct model_dir "
        "in the inventory.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"(?:error mounting|failed to fulfil mount request: open"
        r"|failed to request mountfd for|invalid mount config for type \"bind\": stat)"
        r" \"?([^\s\":]{1,512})\"?.{0,512}"
        r"no such (?:file or directory|device)",
        "{}, which the container mounts, does not exist on the node: it was removed or renamed, or its disk is not "
        "mounted",
        "Create it or mount its disk on the node, or correct model_dir or gpu_mounts in the inventory.",
        source=f"{RUNC}: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"error mounting .{0,512}operation not permitted|mount through procfd: operation not permitted",
        "Docker is not permitted to mount into the container: it is rootless, or runs inside another container "
        "without privileges",
        "Use the Docker daemon of root on the node itself, or give the outer container nesting and privileges.",
        source="opencontainers/runc: libcontainer/rootfs_linux.go",
    ),
    Cause(
        r"is not a shared(?: or slave)? mount",
        "a mount asks for propagation (shared, slave) that the file system of the node does not have",
        "Remove the propagation from the mount, or on the node: sudo mount --make-rshared /",
        source=f"{MOBY}: daemon/oci_linux.go",
    ),
    Cause(
        r"(?:failed to mount local volume|error while mounting volume|failed to populate volume"
        r"|error evaluating symlinks|volume driver|"
        r"error while looking up volume|get \S{1,256}: .{0,32}no such volume)",
        "a volume of the container cannot be mounted: its directory or its network file system is missing on the node",
        "On the node: docker volume inspect NAME; docker volume rm NAME for a cache, which sparkops creates again.",
        source=f"{MOBY}: daemon/volume/local/local.go",
    ),
    Cause(
        r"invalid mount config for type|invalid volume specification|invalid mode: "
        r"|invalid mount path: '([^']{0,256})'|invalid bind mount spec"
        r"|includes invalid characters for a local volume name",
        "a mount is not written correctly, as the message says: both paths must be absolute and have no "
        "colon, and its mode must exist",
        "Correct model_dir and gpu_mounts of the node in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/linux_parser.go",
    ),
    Cause(
        r"source path must be a directory|mount (?:source|path) must be absolute",
        "the source of a mount is no absolute path to a directory on the node",
        "Correct model_dir and gpu_mounts of the node in the inventory.",
        source=f"{MOBY}: daemon/volume/mounts/linux_parser.go",
    ),
)
"""Of mounts and volumes."""

LIMITS: tuple[Cause, ...] = (
    Cause(
        r"failed to unshare remaining namespaces: No space left on device",
        "the kernel's limit on namespaces is used up or 0 (user.max_*_namespaces); the disk is not full",
        "On the node: sysctl user | grep namespaces; raise the one that is 0 or used up, then deploy again.",
        source="opencontainers/runc libcontainer/nsenter/nsexec.c",
    ),
    Cause(
        r"SHM size can not be less than 0|invalid argument \"?-\S{0,32} for \"--shm-size\"",
        "the size of the container's shared memory (/dev/shm) is negative",
        "Set serve.shm_gib to a positive number of GiB.",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"invalid (?:argument|size).{0,64}--shm-size|mounting shm tmpfs",
        "the size of the container's shared memory (/dev/shm) is invalid",
        "Correct serve.shm_gib (GiB).",
        source=f"{MOBY}: daemon/container_operations_unix.go",
    ),
    Cause(
        r"Minimum memory (?:limit|reservation) allowed is 6MB",
        "the memory limit of the container is too small, less than 6 MB: a value without its unit counts as bytes",
        "Correct the figures of `memory` in the recipe (memory.claim_gib is in GiB).",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"Minimum memory ?(?:swap )?limit (?:should be larger|can not be less)"
        r"|You should always set the Memory limit",
        "the container's limits of memory and swap contradict each other: swap must be at least the memory limit",
        "Correct the figures of `memory` in the recipe, or --memory and --memory-swap of the command.",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"container init was OOM-killed|possibly OOM-killed|init exited.{0,32}OOM|memory\.(?:max"
        r"|limit_in_bytes).{0,128}busy",
        "the memory limit of the container is too small even for its start, or the node has no memory left",
        "Raise memory.claim_gib in the recipe, or stop another service on the node (`sparkops stop`); `free -g` "
        "shows the rest.",
        source=f"{RUNC}: libcontainer/process_linux.go",
    ),
    Cause(
        r"read init-p: connection reset by peer|cannot start a stopped process|read parent: connection reset by peer",
        "the container's first process ended while it was set up: the node has no memory left and the kernel ended "
        "it, or runc does not fit the kernel",
        f"On the node: sudo dmesg | tail; free -g; sudo apt-get install --reinstall containerd.io; {RESTART}",
        source=f"{RUNC}: libcontainer/process_linux.go",
    ),
    Cause(
        r"ulimit soft limit must be less than or equal to hard limit: (\S{1,24}) > (\S{1,24})",
        "the soft limit of a ulimit, {0}, is above its hard limit, {1}",
        "Correct --ulimit NAME=SOFT:HARD of the command, or default-ulimits in /etc/docker/daemon.json: soft must "
        "not exceed hard.",
        source="docker/go-units: ulimit.go",
    ),
    Cause(
        r"invalid (?:argument|ulimit).{0,64}(?:--ulimit|ulimit type)|too many limit value arguments",
        "a ulimit of the command has no valid name or value",
        "Correct --ulimit NAME=SOFT:HARD, such as memlock=-1:-1.",
        source="docker/go-units: ulimit.go",
    ),
    Cause(
        r"error setting rlimit(?:s for ready process)?(?: type (\d{1,2}))?.{0,128}operation not permitted",
        "Docker may not set a ulimit of the container: its hard limit is above that of the Docker daemon, which is "
        "rootless or limited itself",
        "On the node: LimitNOFILE=infinity and LimitMEMLOCK=infinity in docker.service (systemctl edit docker), then "
        "restart Docker; or lower the ulimit.",
        source=f"{RUNC}: libcontainer/init_linux.go",
    ),
    Cause(
        r"range of CPUs is from [\d.]{1,8} to ([\d.]{1,8})"
        r"|Requested CPUs are not available.{0,64}available: ([\d,-]{1,64})",
        "the container asks for more CPUs than the node has ({0}{1})",
        "Correct --cpus or --cpuset-cpus of the command.",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"fork/exec \S{1,256}: (?:resource temporarily unavailable|cannot allocate memory)|newosproc"
        r"|can't fork|cannot fork"
        r"|failed to create new OS thread|clone(?:3)?: resource temporarily unavailable",
        "the node cannot start more processes: the limit of processes (pids, TasksMax) is reached, or its memory is "
        "used up",
        "On the node: free -g; systemctl show docker containerd -p TasksMax; cat /proc/sys/kernel/pid_max. Stop "
        "another service (`sparkops stop`) or raise the limit.",
        source=f"{RUNC}: libcontainer/process_linux.go",
    ),
    Cause(
        r"\boom_score_adj\b",
        "Docker may not set the container's priority for the kernel's OOM killer: it is rootless or runs inside "
        "another container",
        "Use the Docker daemon of root on the node itself.",
        source="opencontainers/runc: libcontainer",
    ),
    Cause(
        r"(?:storage-opt|Storage [Oo]ption overlay2\.size) .{0,32}(?:supported|not)",
        "--storage-opt size needs a file system (xfs with pquota) that Docker's directory on the node does not have",
        "Remove --storage-opt from the command, or storage-opts from /etc/docker/daemon.json.",
        source="moby/moby: daemon/graphdriver/overlay2",
    ),
    Cause(
        r"sysctl \"?[\w./]{1,128}\"? (?:is )?not (?:allowed|in a separate)"
        r"|open sysctl \S{1,128} file: .{0,64}no such file",
        "a sysctl of the container (--sysctl) is not allowed with the node's network, or the kernel does not have it",
        "Remove --sysctl from the command, and set it on the node: sudo sysctl -w",
        source="opencontainers/runc: libcontainer/configs/validate",
    ),
    Cause(
        r"session key(?:ring)?: .{0,64}disk quota exceeded|unable to (?:create|join) session key",
        "the kernel's limit of keys is reached: each container takes one",
        "On the node: sudo sysctl kernel.keys.maxkeys=20000 kernel.keys.maxbytes=400000; remove stopped containers "
        "(`sparkops prune`).",
        source=f"{RUNC}: libcontainer/keys/keyctl.go",
    ),
    Cause(
        r"too many open files|inotify.{0,64}no space left|inotify_init",
        "the limit of open files or of inotify watches of the node or of Docker is reached",
        "On the node: sudo sysctl fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=1048576; systemctl "
        "show docker -p LimitNOFILE; then restart Docker.",
        source="the kernel",
    ),
    Cause(
        r"privileged mode is incompatible with user namespaces",
        "Docker of the node maps users (userns-remap in /etc/docker/daemon.json), which a privileged container does "
        "not allow",
        f"Take userns-remap out of /etc/docker/daemon.json on the node, or --privileged out of the command; {RESTART}",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"cannot share the host(?:'s network| PID) namespace when user namespaces are enabled"
        r"|WritableCgroups conflicts with user namespaces",
        "Docker of the node maps users (userns-remap in /etc/docker/daemon.json), and the container uses the node's "
        "network or processes, which user namespaces do not allow",
        f"Take userns-remap out of /etc/docker/daemon.json on the node; {RESTART}",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
    Cause(
        r"apparmor failed to apply profile|unable to apply apparmor profile"
        r"|docker-default profile could not be loaded"
        r"|AppArmor enabled on system but|apparmor_parser",
        "the AppArmor profile of the container (docker-default) is not loaded in the kernel: AppArmor was reloaded, "
        "or its tools are missing on the node",
        f"Docker loads it at its start: {RESTART}; without aa-status: sudo apt-get install apparmor",
        source=f"{RUNC}: libcontainer/apparmor/apparmor_linux.go",
    ),
    Cause(
        r"seccomp profile|error (?:loading|creating|adding).{0,32}seccomp|loading seccomp filter"
        r"|seccomp is not (?:enabled|supported)",
        "the seccomp profile of the container cannot be loaded: its file is missing or invalid, or the kernel does "
        "not support it",
        "Correct --security-opt seccomp= or seccomp-profile in /etc/docker/daemon.json; update docker-ce and "
        "containerd.io.",
        source=f"{RUNC}: libcontainer/seccomp; {MOBY}: daemon/seccomp_linux.go",
    ),
    Cause(
        r"net\.ipv4\.ip_unprivileged_port_start.{0,32}permission denied|open /proc/sys/\S{1,128}: permission denied"
        r"|reopen fd \d{1,4}: permission denied",
        "runc of the node may not write to /proc: Docker runs inside another container (LXC) whose AppArmor profile "
        "forbids it",
        "Run Docker on the node itself, or set the outer container's profile to unconfined; a newer containerd.io "
        "may help.",
        source=f"{RUNC}: libcontainer/standard_init_linux.go",
    ),
    Cause(
        r"Unit docker-\S{1,128}\.scope (?:was already loaded|already exists|not found)|unable to start unit"
        r"|/run/systemd/private"
        r"|Timeout waiting for systemd|dbus(?: connection failed|:)|Interactive authentication required"
        r"|systemd not running",
        "systemd of the node did not create the container's cgroup: it is busy, restarts, or a rest of an earlier "
        "container remains",
        "On the node: sudo systemctl reset-failed; sudo systemctl daemon-reexec; then deploy again.",
        source="opencontainers/cgroups: systemd",
    ),
    Cause(
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\)|BPF_PROG_(?:ATTACH|DETACH)",
        "the kernel refuses the device filter (BPF) of the container's cgroup: Docker is rootless or runs inside "
        "another container, or the kernel was built without it",
        "Use the Docker daemon of root on the node itself, and the kernel of DGX OS.",
        source="opencontainers/cgroups: devices",
    ),
    Cause(
        r"cgroup mountpoint does not exist|no cgroup mount found|cgroups?: .{0,128}(?:no such file|not supported"
        r"|read-only)|in threaded mode"
        r"|it is in (?:an invalid state|\w{1,32} mode)|(?:apply|setting) cgroup config"
        r"|unable to apply cgroup configuration"
        r"|cgroup-parent for systemd|failed to write \S{1,64}: .{0,32}/sys/fs/cgroup",
        "the cgroups of the node cannot be set up for the container: their mount or a controller is missing, or "
        "Docker runs inside another container",
        f"On the node: mount | grep cgroup; docker info --format '{{{{.CgroupDriver}}}} {{{{.CgroupVersion}}}}'; "
        f"{RESTART}",
        source="opencontainers/cgroups",
    ),
    Cause(
        r"invalid CapAdd|unknown capability|capability not supported|unable to apply caps|can't apply capabilities",
        "the command asks for a capability that the kernel or Docker does not have",
        "Correct --cap-add of the command.",
        source=f"{MOBY}: daemon/pkg/oci/caps",
    ),
    Cause(
        r"invalid --security-opt|unsupported .{0,32}security-opt",
        "an option of --security-opt is unknown to Docker",
        "Correct --security-opt of the command.",
        source=f"{MOBY}: daemon/daemon_unix.go",
    ),
)
"""Of limits, rights and cgroups."""

PORTS: tuple[Cause, ...] = (
    Cause(
        r"Bind for \S{1,64}?:(\d{1,5}) failed: port is already allocated",
        "another container on the node already publishes port {}",
        "Stop it (`docker ps --filter publish={}` on the node shows it), or choose another serve.port.",
        source=f"{MOBY}: daemon/libnetwork/portallocator/portallocator.go",
    ),
    Cause(
        r"(?:failed to bind host port (?:for )?\S{0,64}?:(\d{1,5})|listen (?:tcp|udp)[46]? \S{0,64}?:(\d{1,5}): bind"
        r"|exposing port TCP \S{0,64}?:(\d{1,5}) )"
        r".{0,128}address already in use",
        "a process of the node already listens on port {0}{1}{2}",
        "Find it with `sudo ss -ltnp 'sport = :{0}{1}{2}'` on the node and stop it, or choose another serve.port.",
        source=f"{MOBY}: daemon/libnetwork/drivers/bridge/port_mapping_linux.go",
    ),
    Cause(
        r"address already in use",
        "a port that the container publishes is already in use on the node",
        "Find its user with `sudo ss -ltnp` on the node, or choose another serve.port.",
        source=f"{MOBY}: daemon/libnetwork/drivers/bridge",
    ),
    Cause(
        r"cannot assign requested address",
        "the address that the container publishes its port on is not one of the node's",
        "Correct the address in --publish; `ip -br address` on the node lists them.",
        source=f"{MOBY}: daemon/libnetwork/drivers/bridge",
    ),
    Cause(
        r"(?:listen (?:tcp|udp)|[Bb]ind for |bind host port |exposing port ).{0,128}permission denied"
        r"|cannot expose privileged port",
        "Docker may not open this port: ports below 1024 need root, and Docker is rootless",
        "Choose a serve.port from 1024 on.",
        source=f"{MOBY}: daemon/libnetwork/drivers/bridge",
    ),
    Cause(
        r"(?:iptables|ip6tables|nft|nftables).{0,512}(?:No chain/target/match|does not exist|failed|Permission denied"
        r"|exit status)"
        r"|failed to (?:program FILTER chain|set up DOCKER)|DOCKER-ISOLATION|br_netfilter",
        "Docker's rules in the node's firewall are missing or cannot be written: the firewall was reloaded "
        "(ufw, firewalld, nftables), a kernel module is missing, or another program holds its lock",
        f"Docker writes them at its start: {RESTART}",
        source=f"{MOBY}: daemon/libnetwork/iptables",
    ),
    Cause(
        r"failed to add the host \(?\w{0,32}\)?.{0,128}pair interfaces: operation not supported"
        r"|veth.{0,128}operation not supported",
        "the running kernel has no module for the container's network (veth): the kernel was updated, and its "
        "modules removed",
        "Reboot the node into the installed kernel; or sudo modprobe veth.",
        source=f"{MOBY}: daemon/libnetwork/drivers/bridge/bridge_linux.go",
    ),
    Cause(
        r"Pool overlaps",
        "the subnet that was asked for a Docker network overlaps that of another network of the node",
        "Choose another subnet, or remove the other network (docker network ls; docker network rm NAME).",
        source=f"{MOBY}: daemon/libnetwork/ipam",
    ),
    Cause(
        r"all predefined address pools have been fully subnetted|could not find an available, non-overlapping "
        r"IPv4",
        "Docker of the node has no free subnet for another network",
        "On the node: docker network prune; or add default-address-pools to /etc/docker/daemon.json.",
        source=f"{MOBY}: daemon/libnetwork/ipam",
    ),
    Cause(
        r"network (\S{1,128}) not found|could not find a network matching|[Nn]o such network",
        "the network {} of the container does not exist on the node: it was never created there, or was "
        "removed (docker network prune)",
        "Create it on the node (docker network create NAME), or remove --network from the command and deploy "
        "again; docker network ls shows those that exist.",
        source=f"{MOBY}: daemon/container_operations.go",
    ),
    Cause(
        r"cannot join network (?:namespace )?of (?:a non running )?container|joining network namespace of container",
        "the container shares the network of another one, which does not run",
        "Start that container first, or remove --network container:NAME.",
        source=f"{MOBY}: daemon/container_operations.go",
    ),
)
"""Of the network."""

PROGRAM: tuple[Cause, ...] = (
    Cause(
        r"exec: \"?(?:/usr/(?:local/)?s?bin/)?(?:runc|crun|docker-init|docker-proxy"
        r"|containerd-shim\S{0,32}?)\"?: (?:executable file not found|no such file|stat)|fork/exec /\S{0,128}/(?:runc"
        r"|crun|docker-init|docker-proxy|containerd-shim[\w-]{0,32}): no such file|binary not installed",
        "a program of Docker itself (runc, containerd-shim, docker-init or docker-proxy) is missing on the node",
        f"On the node: sudo apt-get install --reinstall containerd.io docker-ce; {RESTART}",
        source="containerd/containerd: core/runtime/v2; moby/moby: daemon",
    ),
    Cause(
        r"exec: \"([^\"]{1,256})\": (?:executable file not found|stat [^:]{1,256}: no such file)"
        r"|exec ([^\s:]{1,256}): no such file or directory"
        r"|exec: \"([^\"]{1,256})\": no such file",
        "the image has no program {0}{1}{2}: it is another image than the recipe expects, or the interpreter of a "
        "script is missing",
        "Correct image.use or image.base; `docker run --rm --entrypoint ls IMAGE /usr/local/bin` shows its programs. "
        "A finished image must have the server in its PATH.",
        source=f"{RUNC}: libcontainer/standard_init_linux.go",
    ),
    Cause(
        r"exec: \"([^\"]{1,256})\": (?:permission denied|is a directory)|exec ([^\s:]{1,256}): permission denied",
        "the program {0}{1} in the image cannot be run: it is not executable, or it is a directory",
        "Correct its rights in the image (chmod +x), and build it again: `sparkops build`.",
        source=f"{RUNC}: libcontainer/standard_init_linux.go",
    ),
    Cause(
        r"working directory '([^']{0,256})' is invalid",
        "the image's working directory {} is no absolute path",
        "Correct WORKDIR of the image, or -w of the command.",
        source="moby/moby: daemon/container.go",
    ),
    Cause(
        r"[Nn]o command specified|args must not be empty",
        "the image has no command to start",
        "Correct image.use or image.base: the image must have the server of the recipe's engine.",
        source=f"{MOBY}: daemon/create.go",
    ),
    Cause(
        r"unable to find (user|group) (\S{1,128}): no matching entries|no matching entries in (passwd|group) file",
        "the image has no {0}{2} {1}, which the container is to run as",
        "Correct USER of the image or --user of the command (a number needs no entry).",
        source="moby/sys: user",
    ),
    Cause(
        r"Conflict\. The container name \"/?([^\"]{1,256})\" is already in use by container",
        "a container named {} already exists on the node",
        "Remove it: `sparkops prune`, or on the node: docker rm {}",
        source=f"{MOBY}: daemon/names.go",
    ),
    Cause(
        r"container is marked for removal and cannot be started"
        r"|removal of container \S{1,128} is already in progress",
        "the container is being removed, and its removal did not end",
        f"On the node: docker rm -f NAME; if it stays: {RESTART}. Then deploy again.",
        source=f"{MOBY}: daemon/start.go",
    ),
    Cause(
        r"cannot start a paused container",
        "the container is paused",
        "On the node: docker unpause NAME; then deploy again.",
        source=f"{MOBY}: daemon/start.go",
    ),
    Cause(
        r"unknown (?:shorthand )?flag: '?(\S{1,64})|unknown shorthand flag: '(\w)'"
        r"|flag needs an argument: (\S{1,64})",
        "this docker command does not know the option {0}{1}, or the option has no value{2}",
        "Update Docker on the node (`sparkops doctor`: DOCKER_OLD), or correct the command.",
        source=f"{CLI}: spf13/pflag",
    ),
    Cause(
        r"invalid argument \"([^\"]{0,256})\" for \"([^\"]{1,64})\" flag",
        "Docker refuses the value {0} of its option {1}",
        "Correct the key of the recipe or inventory that this value comes from.",
        source=f"{CLI}: spf13/pflag",
    ),
    Cause(
        r"invalid environment variable|invalid (?:label|hostname|container name)|Invalid container name"
        r"|hostname .{0,256}is too long",
        "a name in the command (container, host, label or environment variable) has a character or length that "
        "Docker refuses",
        "Correct serve.env of the recipe, env of the node in the inventory, or the name of the recipe.",
        source=f"{MOBY}: daemon/names.go, daemon/container.go",
    ),
    Cause(
        r"hook #?\d{0,3}:? ?.{0,64}(?:ran past specified timeout|signal: killed|context deadline exceeded)",
        "a program that prepares the GPU for the container (a hook of the NVIDIA toolkit) did not end in time: the "
        "driver hangs, or the node has no memory left",
        CHECK_DRIVER + "`free -g` shows the memory. Reboot the node if nvidia-smi hangs.",
        source=f"{RUNC}: libcontainer/configs/config.go",
    ),
    Cause(
        r"(runc|crun|nvidia-container-runtime) did not terminate successfully: (?:exit status|signal)"
        r"|unable to retrieve OCI runtime error",
        "the program that starts containers on the node ended without a report: it is damaged, does not fit the "
        "system, or its disk (/run) or memory is full",
        f"On the node: runc --version; df -h /run; sudo apt-get install --reinstall containerd.io; {RESTART}",
        source=f"{CONTAINERD}: core/runtime/v2; go-runc",
    ),
    Cause(
        r"context canceled|context deadline exceeded",
        "Docker of the node did not finish in time: its disk or the daemon is overloaded, or the command was "
        "interrupted",
        f"On the node: uptime; free -g; journalctl -u docker -n 50. Then deploy again; if it stays: {RESTART}",
        source="golang context",
    ),
    Cause(
        r"cannot allocate memory",
        "the node has no memory left for the container's start",
        "Stop another service (`sparkops stop SERVICE`), and check `free -g` on the node.",
        source="the kernel",
    ),
    Cause(
        r"Error response from daemon: .{0,512}read-only file system",
        "a file system of the node is read-only: it was mounted so, or the kernel made it so after an error of the "
        "disk",
        "On the node: sudo dmesg | grep -iE 'nvme|ext4|remount'; check the disk, mount it writable, and reboot.",
        source="the kernel",
    ),
)
"""Of the program in the container, the command, and what is left."""

CAUSES: tuple[Cause, ...] = (*GPU, *LIMITS, *DAEMON, *MOUNTS, *STORE, *PULL, *PORTS, *PROGRAM)
