"""Known causes of failed starts: Triton."""

from __future__ import annotations

from sparkops.engines.causes import Cause

CACHE = r"(?:[^'\s:]{0,256}/)?(?<!\w)(?<!-packages/)\.?triton(?:/[^'\s:]{0,256}|_[^'\s:/]{0,64}|-cache[^'\s:]{0,256})?"
"""A path in Triton's cache: /root/.triton/cache, TRITON_CACHE_DIR of sparkops, or that of vLLM or Inductor."""
EMPTY_CACHE = (
    "Stop the service, remove the cache of compiled kernels on the node (docker volume ls, then docker volume rm "
    "sparkops-cache-...; or the directory that is mounted for it), and deploy again."
)
OTHER_KERNEL = (
    "Choose another backend for this part in serve.args (attention-backend; moe-backend of vLLM, moe-runner-backend "
    "of SGLang; linear-backend), or take a release whose Triton kernels support sm_121 (image.vllm, image.use)."
)
ONE_RELEASE = (
    "Take triton and triton-kernels out of image.packages and image.override, so that Triton is the release that "
    "torch requires, or pin that release; then build and deploy again."
)
PTXAS = (
    "Set TRITON_PTXAS_PATH (and TRITON_PTXAS_BLACKWELL_PATH) in serve.env to the ptxas of CUDA 13 in the image, such "
    "as /usr/local/cuda/bin/ptxas, with its name in serve.allow; or take a newer release (image.vllm, image.use)."
)
HEADERS = "Add python3-dev (of the image's Python, such as python3.12-dev) to image.apt, then build and deploy again."
DRIVER = (
    "Set `gpu` of the node in the inventory to runtime or cdi (renew the CDI file with nvidia-ctk cdi generate), run "
    "`sparkops doctor`, or set TRITON_LIBCUDA_PATH in serve.env to the directory of libcuda.so.1."
)
COMPILER = "triton/backends/nvidia/compiler.py"
CACHES = "triton/runtime/cache.py"

CAUSES: tuple[Cause, ...] = (
    Cause(
        r"(?:Value '(sm_\w{1,8})' is not defined for option 'gpu-name'|Unsupported gpu architecture '(sm_\w{1,8})')",
        "the ptxas that Triton uses is older than CUDA 13 and does not know the GPU of the node ({0}{1})",
        PTXAS,
        source=COMPILER + " (message of ptxas)",
    ),
    Cause(
        r"Unsupported \.version (\d{1,3}\.\d{1,3}); current version is '(\d{1,3}\.\d{1,3})'",
        "ptxas is older than the code that it gets: it reads PTX up to version {1}, and the kernel is in version {0}",
        PTXAS,
        source=COMPILER + " (message of ptxas)",
    ),
    Cause(
        r"(?:Instruction|Feature|Modifier|[Oo]perand) '([^']{1,128})'[^']{0,64} not supported on "
        r"\.target '?(sm_\w{1,8})|Feature '([^']{1,128})' requires \.target '?(sm_\w{1,8})",
        "a kernel uses an instruction ({0}{2}) that its target {1}{3} does not have: it is written for another GPU "
        "architecture, or was compiled without the suffix of this one (sm_121a)",
        OTHER_KERNEL,
        source=COMPILER + " (message of ptxas)",
    ),
    Cause(
        r"`ptxas` failed with error code (?:-9|137)\b|ptxas[^\n]{0,64}Memory allocation failure",
        "the node's memory was full while ptxas assembled a Triton kernel, so that ptxas was killed or got no memory",
        "Lower MAX_JOBS in serve.env and the memory that the engine reserves (gpu-memory-utilization, "
        "mem-fraction-static in serve.args), or free memory on the node.",
        source=COMPILER,
    ),
    Cause(
        r"`ptxas` raised SIGSEGV|`ptxas` failed with error code (?:-11|139)\b"
        r"|ptxas[^\n]{0,64}Internal (?:compiler )?error",
        "ptxas crashed while it assembled a Triton kernel: a fault of this release of ptxas with this kernel",
        PTXAS,
        source=COMPILER,
    ),
    Cause(
        r"Cannot find (ptxas[\w-]{0,32}|cuobjdump|nvdisasm)",
        "Triton finds no {} that runs: the triton package of the image is incomplete or for another architecture, or "
        "TRITON_PTXAS_PATH names a wrong file",
        "Remove TRITON_PTXAS_PATH from serve.env or name an existing file there; else install Triton for aarch64 "
        "(take triton out of image.packages and image.override), then build and deploy again.",
        source="triton/knobs.py",
    ),
    Cause(
        r"Triton only support CUDA 10\.0 or higher, but got CUDA version: ([\d.]{1,16})",
        "this release of Triton is older than CUDA {}, whose ptxas it uses, and cannot read its version",
        "Take a newer release of the engine with a newer Triton (image.vllm, image.use), or remove TRITON_PTXAS_PATH "
        "from serve.env.",
        source=COMPILER,
    ),
    Cause(
        r"Failed to find C(\+\+)? compiler",
        "the image has no C{} compiler (gcc or clang), with which Triton compiles its launcher at a start",
        "Add gcc and g++ (build-essential) to image.apt, then build and deploy again.",
        source="triton/runtime/build.py",
    ),
    Cause(
        r"Python\.h: No such file|cannot open source file \"Python\.h\"",
        "the image has no header files of its Python (Python.h, python3-dev), which a compilation at the start needs",
        HEADERS,
        source="triton/runtime/build.py (message of gcc)",
    ),
    Cause(
        r"libcuda\.so cannot found!|cannot find -l:?(?:lib)?cuda(?:\.so[.\d]{0,8})?(?: |:|$)",
        "the driver's libcuda.so is not found in the container: it is missing, or not in the linker's cache (ldconfig)",
        DRIVER,
        source="triton/backends/nvidia/driver.py",
    ),
    Cause(
        r"No such file or directory: '/sbin/ldconfig'",
        "the image has no /sbin/ldconfig, with which Triton looks for the driver's libcuda.so",
        "Set TRITON_LIBCUDA_PATH in serve.env to the directory of libcuda.so.1, or add libc-bin to image.apt; then "
        "build and "
        "deploy again.",
        source="triton/backends/nvidia/driver.py",
    ),
    Cause(
        r"(?<!\d)0 active drivers \(\[\]\)",
        "Triton finds no GPU driver: the container has no GPU, or torch or Triton of the image cannot load libcuda.so",
        "Check `gpu` of the node in the inventory (runtime, cdi or devices), then run `sparkops doctor`.",
        source="triton/runtime/driver.py",
    ),
    Cause(
        r"LLVM ERROR: Cannot select:[^\n]{0,64}llvm\.nvvm\.(tcgen05|wgmma|[\w.]{1,64})",
        "a Triton kernel was compiled with instructions ({}) that the GB10 (sm_121) does not have, so that LLVM "
        "aborted",
        OTHER_KERNEL,
        source="LLVM in libtriton.so",
    ),
    Cause(
        r"LLVM ERROR: ([^\n]{1,200})|PassManager::run failed|failed to translate module to LLVM IR"
        r"|failed to legalize operation '((?:tt|ttg|ttng|nvgpu|triton\w{0,16})\.[^']{1,64})'",
        "Triton's compiler cannot compile a kernel for this GPU (sm_121): {0}{1}",
        OTHER_KERNEL,
        source="triton/compiler/compiler.py",
        unless=r"[Aa]utotun|fall(?:ing)? ?back",
    ),
    Cause(
        r"type fp8e4nv not supported in this architecture",
        "this Triton takes the GPU for one without FP8, because its release is too old for the GB10 (sm_121)",
        "Take a newer release of the engine (image.vllm, image.use), or leave FP8 out of serve.args (kv-cache-dtype).",
        source="triton/language/semantic.py",
    ),
    Cause(
        r"out of resource: (shared memory|tensor memory|threads|registers), Required: (\d{1,12}), "
        r"Hardware limit: (\d{1,12})",
        "a Triton kernel needs more {0} than the GPU has: {1} of {2}; its block sizes are tuned for another GPU",
        OTHER_KERNEL,
        source="triton/runtime/errors.py",
        unless=r"^(?:Runtime error|No valid triton configs)|[Aa]utotun|fall(?:ing)? ?back|[Ss]kipp",
    ),
    Cause(
        rf"({CACHE}\.so): (?:file too short|invalid ELF header|ELF file's phentsize|ELF load command|wrong ELF)",
        "a compiled file in Triton's cache is cut off or damaged ({}): an earlier start ended while it was written",
        EMPTY_CACHE,
        source="triton/runtime/build.py (message of glibc)",
    ),
    Cause(
        rf"({CACHE}\.so): (?:undefined symbol|cannot open shared object file)|version `[\w.]{{1,32}}' not found "
        rf"\(required by ({CACHE}\.so)\)",
        "a compiled file in Triton's cache was made by another image, with another Python or system: {0}{1}",
        EMPTY_CACHE,
        source="triton/runtime/build.py (message of glibc)",
    ),
    Cause(
        r"failed to map segment from shared object",
        "a compiled library cannot be loaded, because the file system of its cache is mounted with noexec, or the "
        "container's memory limit is reached",
        "Mount the cache without noexec, or set TRITON_CACHE_DIR in serve.env to a directory that allows execution.",
        source="glibc elf/dl-load.c",
    ),
    Cause(
        r"JSONDecodeError: ",
        "a file in the cache of compiled Triton kernels is empty or cut off: an earlier start ended while it was "
        "written",
        EMPTY_CACHE,
        source=CACHES,
        beside=r"triton/(?:runtime/(?:cache|jit|autotuner)|compiler/compiler)\.py\", line \d{1,6}, in "
        r"(?:get_group|compile|__init__|check_disk_cache)|torch/_inductor/runtime/triton_heuristics\.py\"",
    ),
    Cause(
        rf"Permission denied: '({CACHE})'",
        "the engine may not write the cache of Triton kernels: {} belongs to another user",
        "Set TRITON_CACHE_DIR in serve.env to a writable directory, or correct the owner of the mounted cache (chown; "
        "docker volume rm removes the volume), and deploy again.",
        source=CACHES,
    ),
    Cause(
        rf"Read-only file system: '({CACHE})'",
        "the cache of Triton kernels is on a read-only file system: {}",
        "Mount a writable volume there, or set TRITON_CACHE_DIR in serve.env to a writable directory.",
        source=CACHES,
    ),
    Cause(
        rf"No space left on device: '({CACHE})'|Disk quota exceeded: '({CACHE})'",
        "the disk of the node with Triton's cache of compiled kernels is full: {0}{1}",
        "Free space on the node (df -h, sparkops prune, docker system df), then deploy again.",
        source=CACHES,
    ),
    Cause(
        rf"(?:Stale file handle|Device or resource busy|No such file or directory|Directory not empty): '({CACHE})'",
        "a file of Triton's cache vanished or changed while it was used: several engines share the cache, or it is on "
        "a network file system, or it was emptied during the start ({})",
        "Set TRITON_CACHE_DIR in serve.env to a local directory of this service, and deploy again.",
        source=CACHES,
    ),
    Cause(
        r"Cannot find a working triton installation|No module named 'triton'",
        "the image has no Triton that works: the package is missing, too old for torch, or for another architecture",
        ONE_RELEASE,
        source="torch/_inductor/exc.py",
        unless=r"[Ff]ailed to import [Tt]riton kernels|[Ii]gnor",
    ),
    Cause(
        r"cannot import name '(\w{1,128})' from '(triton[\w.]{0,128})'|No module named '(triton\.[\w.]{1,128})'"
        r"|module '(triton[\w.]{0,128})' has no attribute '(\w{1,128})'",
        "Triton of the image is of another release than torch or the engine needs: it has no {0}{2}{4} ({1}{2}{3})",
        ONE_RELEASE,
        source="Python",
        unless=r"[Ff]ailed to import [Tt]riton kernels|[Ii]gnor",
    ),
    Cause(
        r"Triton Error \[CUDA\]: device kernel image is invalid",
        "a compiled Triton kernel does not fit this GPU or driver: it was made for another GPU, or by a newer CUDA "
        "than the driver's",
        "Remove the cache volume of the release (docker volume rm) and deploy again; else update the driver of the "
        "node, or take an image for its CUDA version.",
        source="triton/backends/nvidia/driver.c",
    ),
    Cause(
        r"Triton Error \[CUDA\]: the provided PTX was compiled with an unsupported toolchain",
        "the node's driver is older than the CUDA version that Triton compiles for",
        "Update the driver of the node, or take an image for its CUDA version (nvidia-smi shows it).",
        source="triton/backends/nvidia/driver.c",
    ),
    Cause(
        r"Triton Error \[CUDA\]: out of memory",
        "the node's memory had no room for a Triton kernel",
        "Lower the memory that the engine reserves (gpu-memory-utilization, mem-fraction-static in serve.args), or "
        "free memory on the node.",
        source="triton/backends/nvidia/driver.c",
        unless=r"[Aa]utotun|fall(?:ing)? ?back",
    ),
    Cause(
        r"triton\.compiler\.errors\.(?:CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct)",
        "Triton cannot compile a kernel of the engine: its release does not fit the engine, or the kernel does not "
        "support these data types or sizes on the GPU",
        ONE_RELEASE + " Or choose another backend in serve.args (attention-backend, moe-backend).",
        source="triton/compiler/errors.py",
        unless=r"[Aa]utotun|fall(?:ing)? ?back",
    ),
)
