"""Known causes of failed starts: NCCL and RDMA. Texts of NCCL 2.18 to 2.30 and of torch's ProcessGroupNCCL."""

from __future__ import annotations

import re

from sparkops.engines.causes import Advice, Cause

FABRIC = "Run `sparkops doctor`, which tests the links, and correct `fabric` of the node in the inventory."
OPEN = "Open all ports between the nodes of the fabric (ufw, nft on the node), then run `sparkops doctor`."
OTHER = "Read the log of the other rank: `sparkops logs SERVICE --node NODE`."
SAME_IMAGE = "Bring the same image to all nodes: `sparkops recipe lock`, `sparkops build`, then deploy again."
INTERFACE = (
    "Remove NCCL_SOCKET_IFNAME from serve.env and from `env` of the node, or give it an interface that `ip -br addr` "
    "shows as UP there; `fabric` in the inventory names the interface, and `sparkops doctor` checks it."
)
SHM = "Raise serve.shm_gib, which sets the size of /dev/shm, and deploy again."
MEMLOCK = (
    "Check memlock with `sparkops doctor`: a rank with an RDMA device in `fabric` gets the ulimit memlock=-1. If "
    "Docker on the node refuses it, raise LimitMEMLOCK of its service or memlock in default-ulimits of its daemon.json."
)
LESS_MEMORY = "Free memory on the node, or lower the share of memory in serve.args and memory.claim_gib."
PROCESSES = (
    "Stop other containers on the node; check the ulimit nproc (default-ulimits of Docker's daemon.json) and the pids "
    "limit there."
)
DEVICES = (
    "Check that /dev/infiniband exists on the node and that `ibv_devices` lists the device; then run `sparkops doctor` "
    "and compare `fabric` of the node in the inventory, and NCCL_IB_HCA in serve.env, with it."
)

NO_MEMORY = r"(?:error )?(?:Cannot allocate memory|12 Cannot)"
DEVICE = r"(?:, on dev (\S{1,64}), )?"
GIDS = re.compile(r"local GID (\S{1,64}), remote GID (\S{1,64})")


def _unreachable_port(match: re.Match[str], _: str) -> Advice:
    device = match[1] or "a node"
    gids = GIDS.search(match.string)
    between = f" ({gids[1]}, and {gids[2]} on the other node)" if gids else ""
    cause = (
        f"the RDMA port {device} does not reach the port of the other node that NCCL paired it with{between}: "
        "they are not connected by one cable or subnet, or a link is down"
    )
    step = (
        "Run `sparkops doctor`, then describe the cables in `fabric` of each node, so that both ends of a cable have "
        "addresses of one subnet; NCCL_IB_HCA in serve.env must not name other ports."
    )
    return Advice(cause, step)


CAUSES: tuple[Cause, ...] = (
    # RDMA: queue pairs, memory, devices
    Cause(
        r"Call to ibv_modify_qp failed with (?:22 |error )?Invalid argument(?: errno 22)?"
        r", on dev (\S{1,64}), [^\n]{0,128}local GID index (\d{1,9}), local GID ::,",
        "row {1} of the GID table of {0} is empty, and NCCL_IB_GID_INDEX selects it",
        "Remove NCCL_IB_GID_INDEX from serve.env and from `env` of the node: NCCL then chooses the row for RoCE v2. "
        "`gid_index` in `fabric` of the inventory sets it; `sparkops doctor` lists the rows.",
        source="nccl src/misc/ibvwrap.cc, NVIDIA/nccl#1657",
    ),
    Cause(
        r"Call to ibv_modify_qp failed with (?:22 |error )?Invalid argument",
        "the two RDMA ports cannot be connected with these GIDs: NCCL_IB_GID_INDEX selects a row without an address "
        "of RoCE v2, or rows of different kinds on the two nodes",
        "Remove NCCL_IB_GID_INDEX from serve.env and from `env` of the nodes, or set `gid_index` in `fabric`; "
        "`sparkops doctor` lists the rows.",
        source="nccl src/misc/ibvwrap.cc",
        unless=r"retrying \d",
    ),
    Cause(
        r"Call to ibv_modify_qp failed with (?:\d{1,4} |error )?(?:Connection timed out|No route to host|"
        rf"Network is unreachable|No data available|Host is down)(?: errno \d{{1,4}})?{DEVICE}",
        source="nccl src/misc/ibvwrap.cc",
        unless=r"retrying \d",
        explain=_unreachable_port,
    ),
    Cause(
        r"Call to ibv_modify_qp failed with ([^,\n]{1,128})",
        "an RDMA port could not be connected with the port of the other node: {}",
        FABRIC,
        source="nccl src/misc/ibvwrap.cc",
        unless=r"retrying \d",
    ),
    Cause(
        rf"Call to (ibv_(?:create_cq|create_qp|reg_mr\w{{0,16}}|reg_dmabuf_mr|alloc_pd|create_comp_channel))\w{{0,16}} "
        rf"failed with {NO_MEMORY}",
        "{} failed for want of memory: most likely the container may lock too little memory for RDMA (limit memlock)",
        MEMLOCK,
        source="nccl src/misc/ibvwrap.cc, eugr/spark-vllm-docker#389",
    ),
    Cause(
        r"Call to (ibv_reg_(?:dmabuf_)?mr\w{0,16}) failed with error (Bad address|Operation not supported|"
        r"Invalid argument|Protocol not supported|Unknown error \d{1,5})",
        "the RDMA device cannot register this memory directly ({1}): GPUDirect RDMA does not work here",
        "Set NCCL_NET_GDR_LEVEL=LOC and NCCL_DMABUF_ENABLE=0 in serve.env, and deploy again.",
        source="nccl src/misc/ibvwrap.cc, src/transport/net_ib.cc",
    ),
    Cause(
        r"Call to (?:ibv_open_device|ibv_get_device_list) failed|NET/IB : Unable to open device",
        "the container cannot open the RDMA device: /dev/infiniband is not passed to it, or it may not use it",
        DEVICES,
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"NET/IB : Unable to query (?:device|port_num)|Call to ibv_query_(?:port|device|gid)\w{0,8} failed",
        "the RDMA device does not answer: its firmware or driver has failed, or it was removed",
        "Look for mlx5 in `sudo dmesg` on the node, restart the node, then run `sparkops doctor`.",
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"Call to (ibv_\w{1,64}) failed with (?:error )?Permission denied",
        "the container may not use the RDMA device: {} was refused",
        DEVICES,
        source="nccl src/misc/ibvwrap.cc",
    ),
    Cause(
        r"Call to (ibv_\w{1,64}) failed((?: with [^\n]{1,128})?)",
        "the RDMA device or its driver did not do what NCCL asked for: {0} failed{1}",
        f"Look for mlx5 in `sudo dmesg` on the node. {FABRIC}",
        source="nccl src/misc/ibvwrap.cc",
        unless=r"retrying \d|not supported$|skipped",
    ),
    Cause(
        r"NET/IB ?: ?Got completion (?:from peer \S{1,128} )?with (?:status=(?:IBV_WC_RETRY_EXC_ERR\()?"
        r"|error )12\b",
        "an RDMA port of this node lost its link (port error) while it was used, so that what was sent was "
        "not acknowledged: its cable or module is loose or damaged, or the port of the other node went down",
        "Reseat or replace the cable, check `ip -br link`, ethtool and `sudo dmesg` (mlx5) on both nodes, run "
        "`sparkops doctor`, then deploy again.",
        source="NCCL: src/transport/net_ib/common.cc",
        beside=r"NET/IB ?: ?\S{1,64}:\d{1,9} Got non.?fatal async event: port error",
        told_beside=True,
    ),
    Cause(
        r"NET/IB ?: ?Got completion (?:from peer \S{1,128} )?with (?:status=(?:IBV_WC_RETRY_EXC_ERR\()?|error )12\b",
        "the other rank did not acknowledge what was sent over RDMA: its process has ended, or the link loses "
        "packets (cable, MTU, GID)",
        f"{OTHER} If no rank has an error of its own, run `sparkops doctor`: it compares MTU and GIDs of the links.",
        source="nccl src/transport/net_ib.cc",
        of_others=True,
    ),
    Cause(
        r"NET/IB ?: ?Got completion (?:from peer \S{1,128} )?with (?:status=(?:IBV_WC_\w{1,32}\()?|error )(?:5|13)\b",
        "the connection over RDMA to the other rank was ended from there",
        OTHER,
        source="nccl src/transport/net_ib.cc",
        of_others=True,
    ),
    Cause(
        r"NET/IB ?: ?Got completion (?:from peer \S{1,128} )?with "
        r"(?:status=(?:IBV_WC_\w{1,32}\()?|error )(?:4|10|11)\b",
        "the RDMA device of a rank may not access the memory of the transfer (protection error): GPUDirect RDMA or "
        "the driver of the device does not work here",
        "Set NCCL_NET_GDR_LEVEL=LOC and NCCL_DMABUF_ENABLE=0 in serve.env; else update the node and restart it.",
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"NET/IB ?: ?(\S{1,64}:\d{1,9}) async fatal event[^:\n]{0,256}: ([^\n]{1,128})",
        "the RDMA port {0} failed while it was used: {1}",
        "Check cable and `ip -br link` on the node, look for mlx5 in `sudo dmesg`, then run `sparkops doctor`.",
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"NET/IB ?: (?:Attempted to (?:connect|merge) incompatible devices|Remote \S{1,64} device is incompatible)",
        "the RDMA ports of the ranks are of two kinds, InfiniBand and Ethernet (RoCE), which cannot be connected",
        "Name ports of one kind in `fabric` of each node in the inventory (NCCL_IB_HCA in serve.env must not name "
        "others); set the others to Ethernet with mlxconfig.",
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"NET/IB ?: Trying to use non-existent virtual device|NET/IB ?: Can't make virtual NIC with 0 devices",
        "NCCL found no RDMA device that it may use: no port of NCCL_IB_HCA is up on this node",
        DEVICES,
        source="nccl src/transport/net_ib.cc",
    ),
    Cause(
        r"Failed to initialize any NET plugin|Error: network (?:\S{1,64} )?not found|"
        r"NCCL_NET=\S{1,64}[^\n]{0,64}not found|Failed to initialize NET plugin IB",
        "NCCL cannot use the network that NCCL_NET demands: the container has no RDMA driver (libibverbs)",
        "Add libibverbs1 and ibverbs-providers to image.apt and build again; without `device` in `fabric` the "
        "ranks use TCP.",
        source="nccl src/plugin/net.cc, src/misc/ibvsymbols.cc",
        beside=r"(?:Count not open|Could not open|Failed to open) libibverbs|"
        r"libibverbs: Warning: (?:couldn't load driver|no userspace device-specific driver)",
    ),
    Cause(
        r"Failed to initialize any NET plugin|Error: network (?:\S{1,64} )?not found|"
        r"NCCL_NET=\S{1,64}[^\n]{0,64}not found|Failed to initialize NET plugin IB",
        "NCCL found no device for the network that NCCL_NET demands: no RDMA port of NCCL_IB_HCA is up, or the "
        "container has no /dev/infiniband",
        DEVICES,
        source="nccl src/plugin/net.cc",
    ),
    # Interfaces and addresses
    Cause(
        r"Bootstrap ?: no socket interface found|NET/Socket ?: [Nn]o (?:usable listening )?interface found|"
        r"NET/IB ?: No IP interface found|no socket interface found",
        "NCCL_SOCKET_IFNAME names no interface that this node has, and that is up with an address",
        INTERFACE,
        source="nccl src/bootstrap.cc, src/transport/net_socket.cc",
        beside=r"NCCL_SOCKET_IFNAME",
    ),
    Cause(
        r"Bootstrap ?: no socket interface found|NET/Socket ?: [Nn]o (?:usable listening )?interface found|"
        r"NET/IB ?: No IP interface found|no socket interface found",
        "NCCL finds no network interface that is up with an address: NCCL_SOCKET_IFNAME names one that this node does "
        "not have, or its link is down",
        INTERFACE,
        source="nccl src/bootstrap.cc, src/transport/net_socket.cc",
    ),
    Cause(
        r"Invalid NCCL_COMM_ID|ncclCommGetUniqueId should not be called when NCCL_COMM_ID|"
        r"Net : (?:No valid <IPv4_or_hostname>:<port> pair|error encountered when getting address info)",
        "NCCL_COMM_ID is set and holds no address with a port that can be resolved",
        "Remove NCCL_COMM_ID from serve.env and from `env` of the node: the engine passes the address itself.",
        source="nccl src/bootstrap.cc, src/misc/socket.cc",
    ),
    Cause(
        r"Call to (?:bind|socketStartListen)[^\n]{0,128} failed ?: Cannot assign requested address",
        "the address that NCCL is to listen on does not belong to this node",
        INTERFACE,
        source="nccl src/misc/socket.cc",
    ),
    # The connection of the ranks
    Cause(
        r"(?:[Cc]onnect to|Connect to) (?:address )?(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1|localhost)\S{0,16} "
        r"(?:returned|failed)",
        "the other rank gave {} as its address, which is the loopback of each node: its interface was not chosen",
        INTERFACE,
        source="nccl src/misc/socket.cc",
        unless=r"retrying",
    ),
    Cause(
        r"connect to (\S{1,128}) (?:returned|failed ?:) Connection refused",
        "the other rank no longer listens at {}: it has ended, or the address is of another machine",
        f"{OTHER} {FABRIC}",
        source="nccl src/misc/socket.cc",
        unless=r"retrying",
        of_others=True,
    ),
    Cause(
        r"[Cc]onnect to (\S{1,128}) (?:returned|failed ?:) (?:No route to host|Network is unreachable|"
        r"Software caused connection abort)",
        "no route leads to the address of the other rank, {}: it is on another network, a link is down, or a firewall "
        "rejects it",
        f"{FABRIC} {OPEN}",
        source="nccl src/misc/socket.cc",
        unless=r"retrying",
    ),
    Cause(
        r"(?:[Cc]onnect to|PollConnect to) (\S{1,128}) (?:returned|failed ?:|failed with error) "
        r"(?:Connection timed out|Operation timed out)",
        "the port that NCCL opened on the other node, {}, does not answer: a firewall drops the packets, or that "
        "address is on a network that does not reach this node",
        f"{OPEN} Compare `fabric` in the inventory.",
        source="nccl src/misc/socket.cc",
        unless=r"retrying",
    ),
    Cause(
        r"[Cc]onnect to (\S{1,128}) (?:returned|failed ?:|failed with error) ([^,\n]{1,128})",
        "NCCL cannot connect to the other rank at {0}: {1}",
        f"{FABRIC} {OPEN}",
        source="nccl src/misc/socket.cc",
        unless=r"retrying|Connection reset",
    ),
    Cause(
        r"(?:socketTryAccept|ncclOsSocketTryAccept): (?:exceeded error retry count|Accept failed)|"
        r"Call to accept failed",
        "NCCL could not accept the connection of another rank: the process has too many open files, or the "
        "connection was cut",
        f"Check the ulimit nofile of Docker on the node. {OTHER}",
        source="nccl src/misc/socket.cc",
    ),
    Cause(
        r"socketFinalizeAccept from (\S{1,128}): wrong (?:type|magic|socket type)|"
        r"Message truncated : received \S{1,32} bytes instead of|invalid magic",
        "what connected to NCCL is no rank of this start: a rank of an earlier start, a port scanner, or a rank with "
        "another release of NCCL",
        f"Run `sparkops stop` for what is left of earlier starts. {SAME_IMAGE}",
        source="nccl src/misc/socket.cc, src/bootstrap.cc",
        unless="NET/Socket",
    ),
    Cause(
        r"Bootstrap Root ?: rank (\d{1,9}) of (\d{1,9}) ranks has already checked in",
        "two processes joined as rank {0} of {1}: two containers have the same rank, or one of an earlier start "
        "is left",
        "Run `sparkops stop` for what is left, leave node-rank, nnodes and master-addr (dist-init-addr) out of "
        "serve.args, and deploy again.",
        source="nccl src/bootstrap.cc",
    ),
    Cause(
        r"Bootstrap Root ?: mismatch in info from procs|Bootstrap Root ?: mismatch in rank count",
        "the ranks were started with different numbers of ranks",
        "`sparkops deploy` starts all ranks of a release anew, with the same numbers.",
        source="nccl src/bootstrap.cc",
    ),
    Cause(
        r"Mismatched NCCL version detected : rank (\d{1,9}) version (\d{1,9}) rank (\d{1,9}) version (\d{1,9})",
        "the ranks use different releases of NCCL: rank {0} has {1}, rank {2} has {3}",
        SAME_IMAGE,
        source="nccl src/init.cc",
    ),
    Cause(
        r"Duplicate GPU detected : rank \d{1,9} and rank \d{1,9} both on|"
        r"Multiple Ranks are using the same GPU/Partition",
        "two ranks were started on the same GPU: a Spark has one, and takes one rank",
        "Set serve.tensor_parallel x serve.pipeline_parallel to the number of nodes, and leave data-parallel-size out "
        "of serve.args.",
        source="nccl src/init.cc",
    ),
    Cause(
        r"No transport found for rank (\d{1,9})\[\w{1,32}\] -> rank (\d{1,9})\[",
        "NCCL has no way from rank {0} to rank {1}: its settings (NCCL_NET, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE) "
        "rule out all networks between them",
        "Remove the NCCL_ variables from serve.env and from `env` of the nodes, then run `sparkops doctor`.",
        source="nccl src/transport.cc",
    ),
    # Memory, files and processes of the container
    Cause(
        r"(?:failed to extend|creating shared memory segment|Call to (?:posix_)?fallocate|shmSetup|"
        r"create shared memory)[^\n]{0,256}(?:No space left on device|Cannot allocate memory|\((?:28|12)\))",
        "the container's shared memory (/dev/shm) is too small for NCCL",
        SHM,
        source="nccl src/misc/shmutils.cc, NVIDIA/nccl#290",
    ),
    Cause(
        r"Error: failed to (?:create|extend) (?:shared memory file )?/dev/shm|unable to allocate shared memory|"
        r"Error while (?:creating|attaching to) shared memory segment|Error: Could not map /dev/shm",
        "NCCL cannot make its file in the container's shared memory (/dev/shm), which is full or may not be written",
        SHM,
        source="nccl src/misc/shmutils.cc",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(?:out of memory|memory allocation)'|"
        r"Failed to CUDA (?:host alloc|malloc|calloc(?: async)?) (?:async )?\d{1,20} bytes",
        "the node has too little free memory for the buffers of NCCL",
        LESS_MEMORY,
        source="nccl src/include/checks.h, src/include/alloc.h",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(no kernel image is available[^']{0,64}|the provided PTX was "
        r"compiled[^']{0,64}|invalid device function|named symbol not found)'|"
        r"cudaArch (\d{1,5}) (?:ncclMaxSharedMem|dynamic smem) (\d{1,9}) exceeds|"
        r"no kernel image is available for execution on the device[^\n]{0,64}nccl",
        "the NCCL of the image has no code that runs on this GPU (sm_121)",
        "Use an image (image.base or image.use) with NCCL 2.28 or newer for CUDA 13, or name it in "
        "image.override, then build and deploy again.",
        source="nccl src/include/checks.h, src/enqueue.cc",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(CUDA driver version is insufficient[^']{0,64}"
        r"|forward compatibility[^']{0,128}|system has unsupported display driver[^']{0,64})'",
        "the driver of the node does not fit the CUDA of the image: {}",
        "Update the driver of the node (`nvidia-smi` shows it), or use an image for an older CUDA (image.base).",
        source="nccl src/include/checks.h",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:802 )?'system not yet initialized'",
        "CUDA is not ready on this node: the GPU's driver (with NVSwitch the fabric manager) has not started",
        "Run `nvidia-smi` on the node, start nvidia-fabricmanager if it has NVSwitch, or restart the node.",
        source="nccl src/include/checks.h, NVIDIA/nccl#1231",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(no CUDA-capable device is detected|invalid device ordinal|"
        r"initialization error|operation not permitted|CUDA-capable device[^']{0,64})'",
        "NCCL cannot use the GPU in this container: {}",
        "Check `gpu` of the node in the inventory (runtime, cdi or devices) and `nvidia-smi` on it, then run "
        "`sparkops doctor`.",
        source="nccl src/include/checks.h",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(an illegal memory access[^']{0,64}|unspecified launch failure|"
        r"misaligned address|device-side assert[^']{0,32}|an illegal instruction[^']{0,64})'",
        "a kernel that ran before failed on the GPU ({}); NCCL only met the error",
        "Set CUDA_LAUNCH_BLOCKING=1 in serve.env to see which kernel it was; try enforce-eager, or another attention "
        "backend, in serve.args.",
        source="nccl src/include/checks.h",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'(operation not supported|not supported|invalid argument|"
        r"invalid resource handle|peer access[^']{0,64})'|cudaIpcGetMemHandle failed|failed to peer with device",
        "NCCL used a function of CUDA that this GPU or driver does not have",
        "Set NCCL_CUMEM_ENABLE=0, NCCL_CUMEM_HOST_ENABLE=0 and NCCL_P2P_DISABLE=1 in serve.env, or use an image with a "
        "newer NCCL.",
        source="nccl src/include/checks.h, src/transport/p2p.cc",
    ),
    Cause(
        r"(?:NCCL WARN |^)Cuda failure (?:\d{1,5} )?'([^']{1,128})'",
        "CUDA refused a call of NCCL: {}",
        "Run `nvidia-smi` and look for NVRM and Xid in `sudo dmesg` on the node; set NCCL_DEBUG=INFO in serve.env.",
        source="nccl src/include/checks.h",
    ),
    Cause(
        r"NCCL WARN Failed to open libnvidia-ml|NCCL WARN nvml\w{1,64}\(\S{0,64}\) failed: ",
        "NCCL cannot ask the GPU's driver in this container (NVML): the container has no GPU, or the driver failed",
        "Check `nvidia-smi` on the node, and `gpu` of the node in the inventory (runtime, cdi or devices).",
        source="nccl src/misc/nvmlwrap.cc",
    ),
    Cause(
        r"[Nn]o algorithm/protocol available for function (\w{1,64}) with datatype (\w{1,64})",
        "NCCL_ALGO or NCCL_PROTO leave no algorithm for {0} with {1}",
        "Remove NCCL_ALGO and NCCL_PROTO from serve.env and from `env` of the nodes.",
        source="nccl src/enqueue.cc",
    ),
    Cause(
        r"NET/Socket ?: peer (\S{1,128}) message truncated : receiving|posted incorrect receive info",
        "the ranks exchange blocks of different sizes: their images, arguments or NCCL_ settings differ",
        f"{SAME_IMAGE} NCCL_PROTO and NCCL_ALGO must be the same for all ranks (serve.env, `env` of the nodes).",
        source="nccl src/transport/net_socket.cc, src/transport/net_ib.cc",
    ),
    # The library itself
    Cause(
        r"libtorch_cuda\.so: undefined symbol: (nccl\w{1,64})",
        "torch finds another, older libnccl than it was built with: it lacks {}",
        "Remove VLLM_NCCL_SO_PATH, LD_PRELOAD and LD_LIBRARY_PATH from serve.env, and pin the nvidia-nccl-cu13 that "
        "torch requires in image.override; then build and deploy again.",
        source="torch (libtorch_cuda.so)",
    ),
    Cause(
        r"libnccl\S{0,64}: undefined symbol: (nccl\w{1,64})|undefined symbol: (nccl\w{1,64})",
        "the libnccl of the image is older than the engine needs: it lacks {0}{1}",
        "Pin a newer nvidia-nccl-cu13 in image.override (remove VLLM_NCCL_SO_PATH from serve.env), then build.",
        source="vllm/distributed/device_communicators/pynccl_wrapper.py",
    ),
    Cause(
        r"libnccl\S{0,64}: cannot open shared object file|Failed to load NCCL library from ",
        "the library of NCCL (libnccl) is missing in the image, or is not built for it",
        "Remove VLLM_NCCL_SO_PATH (SGLANG_NCCL_SO_PATH) from serve.env, or add nvidia-nccl-cu13 to image.packages, "
        "then build and deploy again.",
        source="vllm/distributed/device_communicators/pynccl_wrapper.py",
    ),
    Cause(
        r"^Fatal Python error: (?:Segmentation fault|Aborted)|^Segmentation fault|Segfault encountered|"
        r"double free or corruption|SIGSEGV received|Signal: Segmentation fault",
        "the NCCL library crashed while the ranks met: the libnccl that is loaded does not fit torch or the driver, or "
        "differs between the ranks",
        f"Pin nvidia-nccl-cu13 in image.override to the version that torch requires. {SAME_IMAGE}",
        source="sgl-project/sglang#3451, vllm-project/vllm#15687",
        beside=r"\bncclCommInitRank \(|in ncclCommInitRank\b|in ncclGetUniqueId|libnccl\.so\.2\(|nccl::\w|"
        r"pynccl_wrapper\.py\S{0,4} line \d{1,5} in nccl",
    ),
    # Reports about other ranks
    Cause(
        r"Connection closed by remote peer (\S{1,128})",
        "the other rank {} has ended while NCCL connected",
        OTHER,
        source="nccl src/misc/socket.cc",
        of_others=True,
    ),
    Cause(
        r"Call to (?:recv from|send to) (\S{1,128}) failed ?: (?:Connection reset by peer|Broken pipe)",
        "the other rank {} has ended while NCCL exchanged data",
        OTHER,
        source="nccl src/misc/socket.cc",
        of_others=True,
    ),
    Cause(
        r"Call to (?:recv from|send to) (\S{1,128}) failed ?: ([^\n]{1,128})",
        "the connection of NCCL to the other rank {0} broke: {1}",
        f"{OTHER} {FABRIC}",
        source="nccl src/misc/socket.cc",
    ),
    Cause(
        r"Watchdog caught collective operation timeout: WorkNCCL\([^\n]{0,256}OpType=(\w{1,64})",
        "a rank did not take part in {} in time: it has ended, hangs, or its data do not arrive",
        f"{OTHER} If all ranks only wait, open the ports between the nodes and run `sparkops doctor`.",
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        of_others=True,
    ),
    Cause(
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out|"
        r"heartbeat monitor timed out|Heartbeat monitor timed out|"
        r"Received a (?:timeout|dump|global) signal from|Observed flight recorder dump signal from another rank",
        "another rank has ended or does not answer",
        OTHER,
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        of_others=True,
    ),
    Cause(
        r"retrieving ncclUniqueId from \[\d{1,9}\] via c10d key-value store|broadcastUniqueNCCLID|"
        r"checking the \"should dump\" flag on TCPStore|Failed to check the \"should dump\" flag on TCPStore",
        "the rendezvous of the ranks no longer answers: rank 0 has ended, or waits for something else",
        OTHER,
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        of_others=True,
    ),
    Cause(
        r"Detected mismatch between collectives on ranks",
        "the ranks run different programs: their images, models or arguments differ",
        SAME_IMAGE,
        source="torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
    ),
    Cause(
        r"remote process exited or there was a network error|ncclRemoteError",
        "the connection of NCCL to another rank broke: that rank has ended, or the network between the nodes failed",
        f"{OTHER} If it has no error of its own, run `sparkops doctor`.",
        source="nccl src/init.cc (ncclRemoteError)",
        of_others=True,
    ),
    Cause(
        r"NCCL error[^\n]{0,256}unhandled (?:cuda|system) error",
        "the node has too little free memory for the buffers of NCCL",
        LESS_MEMORY,
        source="torch/csrc/distributed/c10d/NCCLUtils.cpp",
        beside=r"Cuda failure (?:\d{1,5} )?'out of memory'|Failed to CUDA (?:host alloc|malloc|calloc)",
    ),
    Cause(
        r"NCCL error[^\n]{0,256}unhandled system error",
        "the container's shared memory (/dev/shm) is too small for NCCL, or may not be written",
        SHM,
        source="torch/csrc/distributed/c10d/NCCLUtils.cpp, sgl-project/sgl-project.github.io#5",
        beside=r"dev/shm/nccl|creating shared memory segment|Call to (?:posix_)?fallocate failed",
    ),
    Cause(
        r"NCCL error[^\n]{0,256}invalid usage",
        "two ranks were started on the same GPU: a Spark has one, and takes one rank",
        "Set serve.tensor_parallel x serve.pipeline_parallel to the number of nodes, and leave data-parallel-size out "
        "of serve.args.",
        source="torch/csrc/distributed/c10d/NCCLUtils.cpp",
        beside=r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
    ),
    Cause(
        r"NCCL error[^\n]{0,256}unhandled cuda error|ncclUnhandledCudaError: Call to CUDA",
        "CUDA refused a call of NCCL: the memory of the node is full, or the GPU or its driver failed",
        "Set NCCL_DEBUG=INFO in serve.env, deploy again and read the line `NCCL WARN`; check `nvidia-smi` on the node.",
        source="nccl src/init.cc (ncclUnhandledCudaError)",
        of_others=True,  # it says little: the log of another rank may say more
    ),
    Cause(
        r"NCCL error[^\n]{0,256}unhandled system error|ncclSystemError: System call",
        "a system call of NCCL failed: network, RDMA device or shared memory",
        "Set NCCL_DEBUG=INFO in serve.env, deploy again and read the line `NCCL WARN`; run `sparkops doctor`.",
        source="nccl src/init.cc (ncclSystemError)",
        of_others=True,  # it says little: the log of another rank may say more
    ),
    Cause(
        r"NCCL error[^\n]{0,256}(?:invalid usage|invalid argument)|ncclInvalid(?:Usage|Argument):",
        "NCCL refuses how the ranks were started: two on one GPU, different releases, or a wrong NCCL_ variable",
        "Remove the NCCL_ variables from serve.env, set NCCL_DEBUG=INFO there, deploy again and read `NCCL WARN`.",
        source="nccl src/init.cc (ncclInvalidUsage)",
        of_others=True,  # it says little: the log of another rank may say more
    ),
    Cause(
        r"NCCL error[^\n]{0,256}internal error|ncclInternalError:",
        "NCCL failed internally: most likely its release differs between the ranks, or has a fault",
        f"{SAME_IMAGE} Set NCCL_DEBUG=INFO in serve.env and read the line `NCCL WARN`.",
        source="nccl src/init.cc (ncclInternalError)",
        of_others=True,  # it says little: the log of another rank may say more
    ),
    Cause(
        r"NCCL WARN (?:\[(?:Proxy )?[Ss]ervice(?: thread)?[^\]\n]{0,16}\]|ncclProxyC\w{1,32} call|"
        r"Socket recv failed while polling|commReclaim|commDestroySync|ncclAsyncJobComplete|comm \S{1,32} has already)",
        "a connection of NCCL broke while the ranks met: another rank has ended, or a line before this one says why",
        OTHER,
        source="nccl src/proxy.cc, src/init.cc",
        of_others=True,
    ),
    # What a start waits for
    Cause(
        r"connect to (\S{1,128}) returned (?:Connection timed out|No route to host|Network is unreachable|"
        r"Connection refused), retrying",
        "NCCL tries to reach the other rank at {}, which does not answer: a firewall drops the packets, or that "
        "address is on another network",
        f"{OPEN} Compare `fabric` in the inventory.",
        source="nccl src/misc/socket.cc",
        quiet=True,
    ),
    Cause(
        r"Call to ibv_modify_qp failed with \d{1,4} (?:Connection timed out|No route to host|Network is unreachable|"
        rf"No data available){DEVICE}[^\n]{{0,256}}retrying \d",
        source="nccl src/misc/ibvwrap.cc",
        explain=_unreachable_port,
        quiet=True,
    ),
)
