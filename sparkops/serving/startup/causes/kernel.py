"""Known causes of failed starts: the kernel: memory, signals, files."""

from __future__ import annotations

from sparkops.engines.causes import Cause

LESS_MEMORY = (
    "Check dmesg of the node for the OOM killer. Stop other servers on the node (sparkops stop), let the engine take "
    "less (gpu-memory-utilization, mem-fraction-static or ctx-size in serve.args), or use a smaller model or more "
    "nodes."
)
LIMITS = "in `default-ulimits` of /etc/docker/daemon.json on the node, then restart Docker and deploy again."
CRASHED = (
    "Set PYTHONFAULTHANDLER=1 in serve.env to see where; packages of image.packages, image.override and image.mods "
    "must "
    "fit the engine. Otherwise use another release of the image."
)
CODE = r"(?:exit ?code|exitcode|exit status|returncode|status)[:= ]{0,3}\(?"
ENDED = r"Failed core proc\(s\): \{[^}]{0,256}: "

SIGNALS: tuple[Cause, ...] = (
    Cause(
        r"Out of memory: Killed process \d{1,9} \(([^)]{1,64})\)|Memory cgroup out of memory|oom-kill:constraint=",
        "the kernel killed a process because the memory was exhausted: {}",
        LESS_MEMORY,
        source="linux: mm/oom_kill.c",
    ),
    Cause(
        rf"{ENDED}-9\b|{CODE}-9\b|with code 137\b|code: 137\b|<Signals\.SIGKILL: 9>|Signal 9 \(SIGKILL\) received"
        r"|^Killed$|: {1,4}(?:\d{1,9} )?Killed\b",
        "the engine's process was killed (signal 9), most likely by the kernel because the node's memory, which CPU "
        "and "
        "GPU share, or the container's limit was exhausted",
        LESS_MEMORY,
        source="signal(7); vllm/v1/engine/utils.py; LMCache/LMCache#4759",
    ),
    Cause(
        rf"^Bus error|Fatal Python error: Bus error|: {{1,4}}(?:\d{{1,9}} )?Bus error|{ENDED}-7\b|{CODE}-7\b"
        r"|\*{3} SIGBUS|Unexpected bus error encountered in worker|Signal 7 \(SIGBUS\)"
        r"|insufficient shared memory \(shm\)",
        "a process used memory that has no page behind it (bus error): the container's shared memory (/dev/shm) is "
        "full, "
        "or a file that it maps, such as the weights, was truncated or cannot be read from the disk",
        "Raise serve.shm_gib in the recipe; then run `sparkops models verify`, and check dmesg and df of the node.",
        source="signal(7); torch/csrc/DataLoader.cpp",
    ),
    Cause(
        rf"Illegal instruction|{ENDED}-4\b|{CODE}-4\b|\*{{3}} SIGILL|Signal 4 \(SIGILL\)",
        "a program was compiled for another CPU: it has an instruction that the cores of this node do not have",
        "Build it on a Spark or without the builder's CPU (llama.cpp: GGML_NATIVE=OFF), or use the official image "
        "(image.use).",
        source="signal(7)",
    ),
    Cause(
        rf"^Segmentation fault|Fatal Python error: Segmentation fault|: {{1,4}}(?:\d{{1,9}} )?Segmentation fault"
        rf"|{ENDED}-11\b|{CODE}-11\b|\*{{3}} SIGSEGV|!!!!!!! Segfault encountered|Signal 11 \(SIGSEGV\)|code 139\b",
        "a compiled part of the engine crashed (segmentation fault): packages of the image do not fit each other, or "
        "it "
        "is a fault of this release",
        CRASHED,
        source="signal(7)",
    ),
    Cause(
        r"Worker proc \S{1,64} died unexpectedly|Subprocess \S{1,64} \(pid=\d{1,9}\) crashed",
        "a process of the engine ended without a message: the kernel killed it for its memory, or it crashed",
        LESS_MEMORY,
        source="vllm/v1/executor/multiproc_executor.py",
        of_others=True,
    ),
)
"""Of processes that a signal ended, and of programs that do not start."""

SHARED: tuple[Cause, ...] = (
    Cause(
        r"Insufficient space in /dev/shm|/dev/shm.{0,256}No space left on device|No space left on device.{0,64}/dev/shm"
        r"|unable to (?:write to|allocate shared memory\(shm\) for) file </\w{1,64}>.{0,32}No space left"
        r"|/(?:psm_|torch_|nccl-|sem\.)\w{1,64}.{0,64}No space left on device",
        "the container's shared memory (/dev/shm) is too small",
        "Raise serve.shm_gib in the recipe.",
        source="torch (aten/src/ATen/MapAllocator.cpp), NCCL (src/misc/shmutils.cc)",
    ),
    Cause(
        r"unable to (?:open|mmap|resize|allocate) (?:shared memory|\d{1,20} bytes from file </)",
        "a file in the container's shared memory (/dev/shm) could not be used: it is full, or the process that made "
        "the "
        "file has ended",
        "Raise serve.shm_gib in the recipe; another error in the log may say what ended the other process.",
        source="torch (aten/src/ATen/MapAllocator.cpp)",
        unless=r"Too many open files",
    ),
)
"""Of shared memory."""

RESOURCES: tuple[Cause, ...] = (
    Cause(
        r"pthread_create failed|can't start new thread|Thread creation failed|[Cc]annot fork\b|fork: retry"
        r"|fork: Resource temporarily unavailable|\[Errno 11\] Resource temporarily unavailable|blas_thread_init"
        r"|(?:std::system_error|what\(\)): {1,4}Resource temporarily unavailable|failed to create thread",
        "the container could not start another thread or process: its limit of processes (pids, nproc) is "
        "reached, or no memory is left for its stack",
        "Raise the limit: `docker inspect` prints PidsLimit; on the node set TasksMax of docker.service and "
        "default-pids-limit, or nproc " + LIMITS,
        source="pthread_create(3): EAGAIN; OpenBLAS driver/others/blas_server.c",
        unless=r"zmq|[Ss]ocket|recv",
    ),
    Cause(
        r"^PermissionError: \[Errno 13\] Permission denied$",
        "the user of the container may not create a semaphore in its shared memory (/dev/shm)",
        "Make /dev/shm writable for that user: remove a mount over /dev/shm and --user from the command "
        "(serve.shm_gib makes one of mode 1777), or correct USER of the image.",
        source="CPython: Modules/_multiprocessing/semaphore.c",
        beside=r"SemLock|multiprocessing/synchronize\.py",
    ),
    Cause(
        r"is longer than 10\d characters \(sizeof\(sockaddr_un|AF_UNIX path too long",
        "the path of the socket between the processes of the engine is too long for a Unix socket (107 "
        "characters): TMPDIR or the like is a long path",
        "Remove TMPDIR and VLLM_RPC_BASE_PATH from serve.env, or set them to a short directory such as /tmp.",
        source="libzmq: src/ipc_address.cpp; CPython: Modules/socketmodule.c",
    ),
    Cause(
        r"Too many open files|\[Errno 24\]",
        "the container may not open more files: its limit (nofile) is too small",
        "Raise nofile " + LIMITS,
        source="strerror(EMFILE)",
    ),
    Cause(
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d{1,20}) b"
        r"ytes(?:.{0,64}Cannot allocate memory)?|Unable to allocate ([\d.]{1,20} \w{1,8}) for an array"
        r"|DefaultCPUAllocator: not enough memory",
        "the node's memory is full: an allocation on the CPU side failed (bytes: {}{})",
        LESS_MEMORY,
        source="torch (c10/core/impl/alloc_cpu.cpp), numpy",
    ),
    Cause(
        r"^(?:what\(\): {1,4})?std::bad_alloc|  what\(\): {1,4}std::bad_alloc|^MemoryError\b|\[Errno 12\]"
        r"|[Cc]annot allocate memory|Memory allocation still failed|mmap failed: Cannot allocate",
        "the node's memory or the container's limit of memory is exhausted",
        LESS_MEMORY,
        source="strerror(ENOMEM)",
        unless=r"mlock|ibv_|verbs|memory region|reg_mr|create_cq|static TLS",
    ),
    Cause(
        r"Unsupported system page size",
        "a library of the image (jemalloc) was compiled for another page size than the node's kernel has",
        "Use an image for aarch64 with this page size (image.use), or boot the node's 4K kernel.",
        source="jemalloc: src/pages.c",
    ),
)
"""Of limits and memory of the CPU side."""

FILES: tuple[Cause, ...] = (
    Cause(
        r"Disk quota exceeded",
        "a quota of the node's disk or share is used up",
        "Free space in the directory that the message names, or raise the quota (quota, repquota on the node "
        "or the file server).",
        source="the kernel: EDQUOT",
        unless=r"dev/shm",
    ),
    Cause(
        r"No space left on device|disk is full|database or disk is full",
        "the node's disk is full",
        "Free space on the node: sparkops prune; docker system df",
        source="strerror(ENOSPC)",
        unless=r"dev/shm",
    ),
    Cause(
        r"^(?:OSError|PermissionError): \[Errno 30\] Read-only file system: '([^']{1,256})'",
        "the engine writes to {}, which is read-only in the container",
        "Set the variable of that cache or folder in serve.env to one that the container may write, such as /tmp.",
        source="strerror(EROFS)",
    ),
    Cause(
        r"^(?:OSError|PermissionError): \[Errno 13\] Permission denied: '([^']{1,256})'",
        "the container's user may not read or write {}",
        "Correct its owner or rights on the node (ls -l; sudo chmod -R a+rX for models), or set another folder in "
        "serve.env.",
        source="strerror(EACCES)",
    ),
    Cause(
        r"\[Errno 5\]|Input/output error|os error 5\b|Structure needs cleaning|Remote I/O error",
        "the disk of the node, or the network file system, fails to read or write",
        "Check dmesg of the node and `sudo smartctl -a` of the disk; then run `sparkops models verify`.",
        source="strerror(EIO)",
    ),
)
"""Of files and disks."""

CAUSES: tuple[Cause, ...] = (*SIGNALS, *SHARED, *RESOURCES, *FILES)
