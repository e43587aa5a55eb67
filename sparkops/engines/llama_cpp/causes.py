"""Known causes of a failed start of llama-server, with the next step, in the words of old builds and of new ones."""

from __future__ import annotations

from sparkops.engines.causes import Cause

ARG = "llama.cpp: common/arg.cpp"
COMMON = "llama.cpp: common/common.cpp"
SERVER = "llama.cpp: tools/server"
HTTP = "llama.cpp: tools/server/server-http.cpp"
GGUF = "llama.cpp: ggml/src/gguf.cpp"
LOADER = "llama.cpp: src/llama-model-loader.cpp"
MODEL = "llama.cpp: src/llama-model.cpp"
CONTEXT = "llama.cpp: src/llama-context.cpp"
VOCAB = "llama.cpp: src/llama-vocab.cpp"
MTMD = "llama.cpp: tools/mtmd"
SPECULATIVE = "llama.cpp: common/speculative.cpp"
CHAT = "llama.cpp: common/chat.cpp"
GRAMMAR = "llama.cpp: src/llama-grammar.cpp, common/sampling.cpp"
CUDA = "llama.cpp: ggml/src/ggml-cuda/ggml-cuda.cu"
LIBRARIES = "glibc: elf/dl-load.c"

SMALLER = (
    "Lower ctx-size or parallel in serve.args, set cache-type-k and cache-type-v to q8_0, take a smaller "
    "quantization, or stop another engine on the node (`sparkops stop`; nvidia-smi and free -g show its memory)."
)
LESS_BATCH = (
    "Lower ubatch-size, batch-size or ctx-size in serve.args, or stop another engine on the node (`sparkops stop`)."
)
LESS_WEIGHTS = (
    "Take a smaller quantization (model.file), stop another engine on the node (`sparkops stop`), or drop the page "
    "cache, which counts as used (`sparkops doctor --fix`)."
)
ARGUMENTS = "Correct serve.args of the recipe; `llama-server --help` in its image lists the arguments."
NEWER = (
    "Take an image with a newer llama.cpp (image.use, or the template llama-cpp, which pins it), or remove it from "
    "serve.args."
)
AGAIN = "Remove it on the node, then download or copy it again: sparkops models pull, sparkops models copy"
NEWER_IMAGE = (
    "Use a newer llama.cpp (image.use, or the template llama-cpp, which pins it), or another GGUF file of the model."
)
CHECK_GPU = (
    "Check `nvidia-smi` on the node and `gpu` of the node in the inventory (runtime, cdi or devices), then run "
    "`sparkops doctor`."
)
REBUILD = (
    "Rebuild the image with the template llama-cpp, which compiles for the Spark's GPU "
    "(CMAKE_CUDA_ARCHITECTURES=121), or take an image that has it (image.use)."
)
DRIVER = (
    "Take an image built for the CUDA version that `nvidia-smi` prints on the node (image.use or image.base), or "
    "update the driver of the node (apt) and reboot."
)
TEMPLATE = "Correct the template, or name another one: chat-template-file or chat-template in serve.args."
DRAFT = (
    "Correct model.draft of the recipe and model-draft in serve.args; `sparkops models verify` shows what a node has."
)


def cuda(error: str) -> str:
    """Return the pattern of an error of CUDA as llama.cpp reports it, while it begins or later."""
    place = r"(?: \d{1,4} at [^:]{1,256}:\d{1,9})?"
    return rf"(?:CUDA error{place}|failed to initialize CUDA|cudaMalloc failed|cudaMemGetInfo failed): ?\(?(?:{error})"


ARGUMENT: tuple[Cause, ...] = (
    Cause(
        r"error: (?:invalid|unknown) argument: (\S{1,256})",
        "llama-server has no argument {}",
        "Correct it in serve.args; if the name is right, the image's llama.cpp is too old for it or has removed it: "
        "`llama-server --help` in the image lists the arguments, image.use names the image.",
        source=ARG,
    ),
    Cause(
        r"(?:error while handling argument \"([^\"]{1,128})\": )?invalid device: (\S{1,128})",
        "llama.cpp has no device {1}: it sees no GPU of this name",
        CHECK_GPU + " Or remove device from serve.args.",
        source=ARG,
    ),
    Cause(
        r"unknown (?:speculative type|spec type"
        r"|speculative decoding type)(?: without draft model)?: '?([^\s']{1,128})",
        "this llama.cpp does not know the value {} of spec-type: it is older, or the value is misspelled",
        NEWER,
        source=f"{SPECULATIVE}; noonghunna/club-3090#173",
    ),
    Cause(
        r"Unsupported cache type: (\S{1,64})",
        "llama.cpp has no type {} for the KV cache",
        "Set cache-type-k and cache-type-v in serve.args to f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl.",
        source=ARG,
    ),
    Cause(
        r"error while handling argument \"([^\"]{1,128})\": the argument has been removed",
        "the argument {} was removed from this llama.cpp",
        "Remove it from serve.args; `llama-server --help` in the image lists its successors.",
        source=ARG,
    ),
    Cause(
        r"error while handling argument \"([^\"]{1,128})\": (?:error: )?(?:failed to open file"
        r"|error opening)[: ]{0,2}'?([^']{1,512})'",
        "the file {1}, which {0} names, is missing in the container or cannot be read",
        "Correct the path in serve.args: below /models, where the container sees model_dir of the node, or a "
        "template of image.mods.",
        source=ARG,
    ),
    Cause(
        r"error while handling argument \"([^\"]{1,128})\": (?:not a directory: |error: ')([^']{1,512})",
        "{0} names a directory that does not exist in the container: {1}",
        "Correct the path in serve.args; the container sees model_dir of the node as /models.",
        source=ARG,
    ),
    Cause(
        r"error while handling argument \"([^\"]{1,128})\": (?:expected value for argument|missing value)",
        "{} in serve.args has no value",
        ARGUMENTS,
        source=ARG,
    ),
    Cause(
        r"error while handling environment variable \"([^\"]{1,128})\": (.{1,256})",
        "llama-server refuses the value of the environment variable {0}: {1}",
        "Correct it in serve.env of the recipe, or in env of the node in the inventory.",
        source=ARG,
    ),
    Cause(
        r'error while handling argument "(\S{1,256})": (.{1,256})',
        "llama-server refuses the value of {0}: {1}",
        ARGUMENTS,
        source=ARG,
    ),
    Cause(
        r"invalid parameter for argument: (\S{1,128})",
        "llama-server refuses the value of {}",
        ARGUMENTS,
        source=ARG,
    ),
    Cause(
        r"^Unknown command: (\S{1,64})",
        "the image is llama.cpp's full one, whose entrypoint (tools.sh) takes a command before the arguments "
        "and got {}",
        "Take the image with the server alone (image.use with a tag such as server-cuda), or put --server "
        "before the arguments.",
        source="llama.cpp: .devops/tools.sh",
        beside=r"--server \(-s\)",
    ),
    Cause(
        r"error: --model is required|error: .{0,64}no model (?:path|specified)",
        "llama-server was started without a model",
        "Set model.file of the recipe.",
        source=ARG,
    ),
    Cause(
        r"error: unknown value for (--\S{1,64}): '([^']{0,256})'",
        "llama-server refuses the value {1} of {0}",
        ARGUMENTS,
        source=ARG,
    ),
    Cause(
        r"synthetic acceptance|penalty_(?:freq|present|repeat) must be|ngram (?:size|n-max|n-min"
        r"|min hits).{0,64}must be",
        "an argument of serve.args has a value outside its range",
        ARGUMENTS,
        source=ARG,
    ),
)

LISTEN: tuple[Cause, ...] = (
    Cause(
        r"couldn't bind (?:HTTP server socket, hostname: "
        r"|to server socket: hostname=)\S{1,256},? port[:=] ?(\d{1,9})",
        "another program uses port {}",
        "Find it with `ss -ltnp` on the node and stop it, or change serve.port.",
        source=HTTP,
    ),
    Cause(
        r"couldn't (?:bind|start).{0,64}(?:socket|listener)",
        "another program uses the server's port, or its address is not one of the node's",
        "Find it with `ss -ltnp` on the node and stop it, or change serve.port or host in serve.args.",
        source=HTTP,
    ),
    Cause(
        r"the server is built without SSL support",
        "this llama-server was built without TLS, which ssl-key-file asks for",
        "Remove ssl-key-file and ssl-cert-file from serve.args (gateway.tls_certificate gives clients https), or "
        "take another image.",
        source=HTTP,
    ),
    Cause(
        r"static assets path not found: (\S{1,512})",
        "the directory {}, which path in serve.args names, is missing in the container",
        "Correct or remove path in serve.args.",
        source=HTTP,
    ),
)

BACKENDS: tuple[Cause, ...] = (
    Cause(
        r"error while loading shared libraries: (libcuda\.so\.\d{1,3}|libnvidia-\S{1,64}?): ",
        "the container has no NVIDIA driver: {} belongs to the driver of the node, and was not mounted",
        CHECK_GPU,
        source=f"{LIBRARIES}; ggml-org/llama.cpp#7822",
    ),
    Cause(
        r"error while loading shared libraries: (lib(?:llama|ggml|mtmd|common)[\w.+-]{0,64}): ",
        "llama-server does not find its own library {}: it is missing in the image, or LD_LIBRARY_PATH does not name "
        "its directory",
        "Set LD_LIBRARY_PATH in serve.env to the directory with the library (/app in the official images), or take "
        "another tag in image.use.",
        source=f"{LIBRARIES}; ggml-org/llama.cpp#23522",
    ),
    Cause(
        r"error while loading shared libraries: (lib(?:cublas|cudart|cublasLt|cufft|nccl|nvrtc)[\w.+-]{0,64}): ",
        "llama-server was built with a CUDA library that the image lacks: {} is missing (the image has another CUDA, "
        "or none)",
        "Take an image.base with the CUDA version that the library's name ends with, build for the CUDA of the "
        "image, or install the library with image.apt.",
        source=f"{LIBRARIES}; ggml-org/llama.cpp#23522",
    ),
    Cause(
        r"error while loading shared libraries: (lib(?:gomp|curl|ssl|crypto|stdc\+\+|numa|ibverbs"
        r"|vulkan)[\w.+-]{0,64}): ",
        "the image lacks the library {}, which llama-server needs",
        "Install its package with image.apt (libgomp1, libcurl4, libssl3, libstdc++6), or take another image "
        "(image.use).",
        source=LIBRARIES,
    ),
    Cause(
        r"failed to load \S{0,256}libggml-cuda\S{0,32}: (?:\S{0,256}: )?(.{1,256})",
        "llama.cpp could not load its CUDA backend, and computes on the CPU: {}",
        CHECK_GPU + " A missing library of CUDA: take an image.base with this CUDA version.",
        source="llama.cpp: ggml/src/ggml-backend-reg.cpp",
        quiet=True,
    ),
    Cause(
        r"no CPU backend found|failed to initialize CPU backend|no backends are loaded",
        "llama.cpp finds none of its backends (libggml-cpu*.so, libggml-cuda.so): they are missing beside "
        "llama-server, or were built for another release or CPU",
        "Start llama-server from the directory of its libraries, or take another image (image.use), or build it with "
        "the template llama-cpp.",
        source=f"{LOADER}; {MODEL}",
    ),
    Cause(
        r"Illegal instruction",
        "a program in the image was compiled for another CPU, whose instructions the cores of the GB10 lack "
        "(GGML_NATIVE on another machine)",
        "Build it on a Spark with the template llama-cpp, with GGML_NATIVE=OFF or GGML_CPU_ALL_VARIANTS=ON, or take "
        "the official image (image.use).",
        source="llama.cpp: ggml/src/ggml-cpu/CMakeLists.txt",
    ),
    Cause(
        r"no usable GPU found|[Nn]ot compiled with GPU (?:offload )?support"
        r"|compiled without (?:support for GPU offload|GPU support)"
        r"|built without GPU support|main README\.md for information on enabling GPU",
        "llama.cpp computes on the CPU: its image was built without CUDA, or the container has no GPU",
        "Take an image of llama.cpp built with CUDA (image.use with a tag such as server-cuda, or the template "
        "llama-cpp with "
        "image.backend). " + CHECK_GPU,
        source=ARG,
        quiet=True,
    ),
    Cause(
        r"no devices with dedicated memory",
        "llama.cpp found no GPU to place the model on, and computes on the CPU",
        CHECK_GPU,
        source="llama.cpp: common/fit.cpp",
        quiet=True,
    ),
)

GPU: tuple[Cause, ...] = (
    Cause(
        cuda(r"CUDA driver version is insufficient|the provided PTX was compiled with an unsupported toolchain")
        + r"|provided PTX was compiled with an unsupported toolchain",
        "the image's CUDA is newer than the NVIDIA driver of the node supports: the driver is too old",
        DRIVER,
        source=f"{CUDA}; ggml-org/llama.cpp#24418, abetlen/llama-cpp-python#763",
        quiet=True,
    ),
    Cause(
        cuda(
            r"system has unsupported display driver|forward compatibility was attempted"
            r"|API call is not supported in the installed"
            r"|CUDA driver is a stub library"
        ),
        "the CUDA library in the container (libcuda) does not fit the node's NVIDIA driver: libraries of "
        "/usr/local/cuda/compat, a stub or another driver come before the node's",
        "Remove /usr/local/cuda/compat and stubs from LD_LIBRARY_PATH (serve.env), or "
        + DRIVER[0].lower()
        + DRIVER[1:]
        + " If the driver was updated, reboot the node.",
        source=f"{CUDA}; gpustack/gpustack#2704",
        quiet=True,
    ),
    Cause(
        cuda(r"no CUDA-capable device is detected|invalid device ordinal|\(null\)"),
        "CUDA finds no GPU in the container, or none of the number that was asked for, and llama.cpp continues on the "
        "CPU or stops",
        CHECK_GPU,
        source=f"{CUDA}; ggml-org/llama.cpp#1866",
        quiet=True,
    ),
    Cause(
        cuda(r"unknown error|initialization error|OS call failed|system not yet initialized|driver shutting down"),
        "CUDA cannot be initialized: the module nvidia_uvm is not loaded, /dev/nvidia-uvm is missing in the "
        "container, or the driver is in a failed state",
        "On the node: sudo nvidia-modprobe -u -c 0 (or modprobe nvidia_uvm); nvidia-smi; sudo dmesg | grep -i nvrm; "
        "restart Docker or reboot. With gpu: devices list /dev/nvidia-uvm in gpu_devices.",
        source=f"{CUDA}; ggml-org/llama.cpp#7218",
        quiet=True,
    ),
    Cause(
        cuda(r"(?:all )?CUDA-capable device\(s\) is/are busy"),
        "another process holds the GPU exclusively, or the driver does not give it out",
        "On the node: nvidia-smi shows processes and compute mode; sudo nvidia-smi -c DEFAULT; stop the other process.",
        source=CUDA,
    ),
    Cause(
        cuda(
            r"no kernel image is available|device kernel image is invalid|named symbol not found"
            r"|invalid device function"
        )
        + r"|has no device code compatible with (?:CUDA|HIP) arch"
        r"|ggml-cuda was compiled without support for the current GPU",
        "the CUDA backend has no code for this GPU: llama.cpp in the image was not built for the architecture of the "
        "GB10, 12.1 (sm_121)",
        REBUILD,
        source=f"{CUDA}; ZengboJamesWang/Qwen3.5-35B-A3B-openclaw-dgx-spark#3",
    ),
    Cause(
        r"allocating ([\d.]{1,20}) MiB on device \d{1,9}: cudaMalloc failed: out of memory",
        "the memory is too small for the KV cache or context: an allocation of {} MiB on the GPU failed",
        SMALLER,
        source=CUDA,
        beside=r"failed to allocate buffer for (?:kv|rs) cache|llama_kv_cache_init\(\) failed"
        r"|failed to create context.{0,64}kv",
    ),
    Cause(
        r"allocating ([\d.]{1,20}) MiB on device \d{1,9}: cudaMalloc failed: out of memory",
        "the memory is too small for the compute buffers beside weights and KV cache: an allocation of {} MiB on the "
        "GPU failed",
        LESS_BATCH,
        source=f"{CUDA}; ikawrakow/ik_llama.cpp#749",
        beside=r"failed to allocate compute (?:pp |tg )?buffers|graph_reserve: failed to allocate"
        r"|failed to reserve graph",
    ),
    Cause(
        r"allocating ([\d.]{1,20}) MiB on device \d{1,9}: cudaMalloc failed: out of memory",
        "the weights do not fit into the free memory of the GPU: an allocation of {} MiB failed",
        LESS_WEIGHTS,
        source=f"{CUDA}; ggml-org/llama.cpp#20431",
        beside=r"unable to allocate \S{1,64} buffer|error loading model: .{0,64}allocate",
    ),
    Cause(
        r"allocating ([\d.]{1,20}) MiB on device \d{1,9}: cudaMalloc failed: out of memory",
        "an allocation of {} MiB on the GPU failed: its memory is full",
        SMALLER,
        source=CUDA,
    ),
    Cause(
        r"unable to allocate (\S{1,64}) buffer",
        "the weights do not fit into the free memory: the buffer {} cannot be allocated",
        LESS_WEIGHTS,
        source=f"{MODEL}; ggml-org/llama.cpp#20431",
    ),
    Cause(
        r"failed to allocate buffer for (?:kv|rs) cache|llama_kv_cache_init\(\) failed",
        "the memory is too small for the KV cache",
        SMALLER,
        source="llama.cpp: src/llama-kv-cache.cpp",
    ),
    Cause(
        r"failed to allocate compute (?:pp |tg )?buffers",
        "the memory is too small for the compute buffers beside weights and KV cache",
        LESS_BATCH,
        source=CONTEXT,
    ),
    Cause(
        cuda("out of memory|CUBLAS_STATUS_ALLOC_FAILED")
        + r"|CUBLAS_STATUS_ALLOC_FAILED|the resource allocation failed",
        "the memory of the GPU is full",
        SMALLER,
        source=CUDA,
        unless=r"pinned memory|fall(?:ing)? ?back",
    ),
    Cause(
        r"failed to allocate (\S{1,64}) buffer of size (\d{1,20})",
        "the memory is too small for a buffer of {1} bytes on {0}",
        SMALLER,
        source="llama.cpp: ggml/src/ggml-alloc.c",
        unless=r"CUDA_Host|pinned",
    ),
    Cause(
        r"std::bad_alloc|insufficient memory \(attempted to allocate|posix_memalign failed"
        r"|mmap failed: Cannot allocate memory"
        r"|failed to allocate +[\d.]{1,20} MB$|failed to create ggml context",
        "the node or the container has no memory left for the model, or a size in a damaged file is absurd",
        SMALLER,
        source="llama.cpp: ggml/src/ggml.c, src/llama-mmap.cpp",
    ),
    Cause(
        r"CUDA error: unhandled (?:system|cuda) error"
        r"|CUDA error: (?:internal error - please report this issue to the NCCL|remote process exited)",
        "NCCL, which llama.cpp uses between GPUs, failed: often because the container's shared memory (/dev/shm) is "
        "too small; NCCL prints the reason with NCCL_DEBUG: WARN in serve.env",
        "Raise serve.shm_gib, or set split-mode to layer in serve.args.",
        source=f"{CUDA}; ggml-org/llama.cpp#23523",
    ),
    Cause(
        cuda(
            r"an illegal memory access|unspecified launch failure|misaligned address|an illegal instruction"
            r"|device-side assert"
            r"|the launch timed out|warp illegal|uncorrectable ECC"
        ),
        "a kernel of llama.cpp failed on the GPU: a fault of this build or of the driver, or of the GPU",
        'Try flash-attn: off or GGML_CUDA_DISABLE_GRAPHS: "1" (serve.env), or another image (image.use); '
        "`sudo dmesg | grep -i xid` on the node shows faults of the GPU.",
        source=CUDA,
    ),
    Cause(
        cuda(r"operation (?:not permitted when stream is capturing|failed due to a previous error during capture)"),
        "llama.cpp failed while it captured a CUDA graph",
        'Set GGML_CUDA_DISABLE_GRAPHS: "1" in serve.env, or take another image (image.use).',
        source=CUDA,
    ),
    Cause(
        cuda(
            r"the (?:library was not initialized|requested functionality is not supported)"
            r"|an internal operation failed"
            r"|the function failed to launch"
        )
        + r"|CUBLAS_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR|EXECUTION_FAILED|ARCH_MISMATCH|NOT_SUPPORTED)",
        "cuBLAS failed: it has too little memory of the GPU, or the image's cuBLAS does not fit the driver or the GPU",
        "Lower ctx-size or ubatch-size in serve.args, stop another engine on the node, or take an image with another "
        "CUDA (image.base, image.use).",
        source=CUDA,
    ),
    Cause(
        r"RPC server version mismatch|RPC server .{0,64}mismatch",
        "the rpc-server of the other node is of another build of llama.cpp than this server",
        "Run one image on both nodes: sparkops build, then start rpc-server again.",
        source="llama.cpp: ggml/src/ggml-rpc/ggml-rpc.cpp",
    ),
    Cause(
        r"Remote RPC server crashed|[Ff]ailed to connect to (\S{1,128}:\d{1,5})|RPC server .{0,64}(?:mismatch"
        r"|version)",
        "the RPC server that rpc in serve.args names ended or does not answer",
        "Start rpc-server there with the same llama.cpp; its log tells why it ended.",
        source="llama.cpp: ggml/src/ggml-rpc/ggml-rpc.cpp",
        of_others=True,
    ),
    Cause(
        r"invalid value for main_gpu: (-?\d{1,4}) \(available devices: (\d{1,4})\)",
        "main-gpu {0} does not exist: llama.cpp sees {1} GPUs",
        "Remove main-gpu from serve.args (a Spark has one GPU), or check `gpu` of the node in the inventory.",
        source="llama.cpp: src/llama.cpp",
    ),
    Cause(
        r"SPLIT_MODE_TENSOR (?:not implemented for architecture|needs|requires)|does not support split buffers",
        "split-mode tensor or row does not work with this model, with this device, or without flash attention",
        "Set split-mode: layer in serve.args, or remove it (a Spark has one GPU).",
        source=f"{MODEL}, {CONTEXT}",
    ),
)

FILES: tuple[Cause, ...] = (
    Cause(
        r"failed to open (?:GGUF file )?'([^']{1,512})' ?:? ?[('](?:No such file or directory)",
        "the file {} is missing",
        "Correct model.path and model.file of the recipe; `sparkops models verify` shows what a node has, `sparkops "
        "models pull` downloads it.",
        source=f"{GGUF}; ggml-org/llama.cpp#5264",
    ),
    Cause(
        r"failed to open (?:GGUF file )?'?([^'\s:]{1,512})'? ?:? ?[(']?No such file or directory",
        "the file {} is missing in the container",
        "Correct model.path and model.file of the recipe; `sparkops models verify` shows what a node has, `sparkops "
        "models pull` downloads it.",
        source="llama.cpp: src/llama-mmap.cpp",
    ),
    Cause(
        r"failed to open (?:GGUF file )?'?([^'\s:]{1,512})'? ?:? ?[(']?Permission denied",
        "the file {} cannot be read: Permission denied",
        "Let every user read it: `sudo chmod a+rX` on the node.",
        source=GGUF,
    ),
    Cause(
        r"failed to open GGUF file '([^']{1,512})'$",
        "the file {} is missing or cannot be read",
        "Correct model.path and model.file of the recipe; `sparkops models verify` shows what a node has.",
        source=GGUF,
    ),
    Cause(
        r"failed to open GGUF file '([^']{1,512})' \((.{1,256})\)",
        "the file {0} cannot be read: {1}",
        "Let every user read it: `sudo chmod a+rX` on the node; check its disk (dmesg) or network file system.",
        source=GGUF,
    ),
    Cause(
        r"failed to load GGUF split from (\S{1,512})",
        "a part of the model is missing or damaged: {}",
        "Download the model again, or copy it from a node that has all parts: sparkops models copy",
        source=LOADER,
    ),
    Cause(
        r"illegal split file idx: (\d{1,5}) \(file: ([^)]{1,512})\)",
        "model.file names part {0} of the model, {1}, and not its first part",
        "Set model.file to the first part, NAME-00001-of-0000N.gguf.",
        source=LOADER,
    ),
    Cause(
        r"invalid split file(?: name)?: |invalid split (?:count|file idx)|missing key \S{1,64} in GGUF split ",
        "the parts of the model do not belong together, or were renamed",
        "Keep the names NAME-00001-of-0000N.gguf of the publisher, and download all parts again: sparkops models pull",
        source=LOADER,
    ),
    Cause(
        r"corrupted model: (\d{1,9}) tensors expected(?: but (\d{1,9}) found)?",
        "the model is incomplete: it has {1} of {0} tensors, since one of its parts is missing or truncated",
        f"{AGAIN}; `sparkops models verify` shows what a node has.",
        source=LOADER,
    ),
    Cause(
        r"data is not within the file bounds|unexpectedly reached end of file",
        "the GGUF file is truncated",
        AGAIN + "; `df -h` on the node shows whether its disk is full.",
        source=f"{LOADER}; ollama/ollama#6228",
    ),
    Cause(
        r"invalid magic characters:? '?(vers|<!DO|<htm|<HTM|Acce|Inva|Entr|\{\"er)",
        "the file is no GGUF file but a text ({}): a Git LFS pointer, or an error page that was saved as the model",
        "Remove it on the node, and download the model: sparkops models pull",
        source=GGUF,
    ),
    Cause(
        r"invalid magic characters:? '?(lmgg|tjgg|fmgg|ggjt|ggml|ggla|algg)",
        "the file is in the format of an early llama.cpp ({}), which is no longer read",
        "Set model.file to a GGUF file of the model.",
        source=GGUF,
    ),
    Cause(
        r"invalid magic characters:? '(.{1,4})'",
        "the file begins with {}: it is no GGUF file",
        "Correct model.file of the recipe, or download the model again.",
        source=GGUF,
    ),
    Cause(
        r"failed to read magic",
        "the GGUF file is empty or a directory, or its disk cannot be read",
        "Correct model.file of the recipe; `sparkops models verify` checks the file, `sparkops models pull` "
        "downloads it again.",
        source=GGUF,
    ),
    Cause(
        r"failed to read (?:header|key-value pairs|tensor info|tensor data|tensor data binary blob)"
        r"|failed to seek to beginning of data"
        r"|string length \d{1,24} exceeds|number of (?:tensors|key value pairs) is -?\d{1,24} but must be"
        r"|encountered (?:bad_alloc|length_error)"
        r"|duplicate(?:d)? (?:key|tensor name)|has invalid GGUF type|tensor '[^']{1,128}' is duplicated"
        r"|is not a power of 2",
        "the header of the GGUF file is damaged or truncated, or was written by another program",
        AGAIN + "; `sparkops models verify` compares sizes.",
        source=GGUF,
    ),
    Cause(
        r"invalid ggml type (\d{1,5})",
        "the GGUF file has a quantization (type {}) that this llama.cpp does not know: it is newer, or of a fork",
        NEWER_IMAGE,
        source=GGUF,
    ),
    Cause(
        r"GGUFv1 is no longer supported|bad GGUF version|this GGUF file is version (\d{1,10}) but"
        r"|is there a mismatch between the host and model endianness",
        "the GGUF file has a version that this llama.cpp does not read: it is too old, too new, or for big-endian "
        "machines",
        NEWER_IMAGE,
        source=GGUF,
    ),
    Cause(
        r"tensor '[^']{1,128}' (?:of type \d{1,5} \([^)]{1,32}\) has|has offset \d{1,24}, expected"
        r"|has invalid number of|dimension \d)",
        "a tensor in the GGUF file has a shape or place that is not possible: the file is damaged, or was quantized "
        "incorrectly",
        AGAIN + "; or take another GGUF file of the model.",
        source=GGUF,
    ),
    Cause(
        r"(?:found tensors with invalid data|tensor '[^']{1,128}' has invalid data)",
        "the weights in the GGUF file contain invalid values: the file is damaged",
        AGAIN,
        source=LOADER,
    ),
    Cause(
        r"(?:error loading model: |what\(\): {1,4})(?:read|seek|lseek|ftell) error: (.{1,128})",
        "the model's file cannot be read from the disk: {}",
        "On the node: sudo dmesg | tail shows errors of the disk or of the network file system; then download the "
        "model again.",
        source="llama.cpp: src/llama-mmap.cpp",
    ),
    Cause(
        r"mmap failed: (.{1,64})|(GGUF data section at file offset)",
        "the model's file cannot be mapped into memory: its file system does not support mmap, or the file is "
        "not aligned ({0}{1})",
        "Set no-mmap: true in serve.args (new builds: load-mode: none).",
        source="llama.cpp: src/llama-mmap.cpp",
        unless=r"Cannot allocate memory",
    ),
)

MODELS: tuple[Cause, ...] = (
    Cause(
        r"unknown (?:model )?architecture: '?([^'\s]{1,256})|unsupported model architecture: '([^']{1,256})",
        "this build of llama.cpp has no models of the architecture {0}{1}",
        "Use a model that it has, or a newer llama.cpp: templates/llama-cpp.Dockerfile.j2 pins it.",
        source="llama.cpp: src/llama-model-loader.cpp, src/llama-model.cpp",
    ),
    Cause(
        r"unknown pre-tokenizer type: '([^']{1,128})'|unknown tokenizer: '([^']{1,128})'",
        "this llama.cpp does not know the tokenizer {0}{1} of the GGUF file: it is newer, or the file was converted "
        "incorrectly",
        NEWER_IMAGE,
        source=VOCAB,
    ),
    Cause(
        r"CLIP cannot be used as main model",
        "model.file is the mmproj (vision encoder) of a model, not the model",
        "Set model.file to the model's GGUF file, and mmproj in serve.args to this one.",
        source=MODEL,
    ),
    Cause(
        r"cannot find tokenizer (?:vocab|merges)|error loading model vocabulary: (.{1,256})"
        r"|Index out of array bounds for (?:scores|toktypes)"
        r"|Byte token for|wstring_convert",
        "the GGUF file has no complete tokenizer, or one that this llama.cpp does not read: it was converted by "
        "another release or tool",
        NEWER_IMAGE,
        source=VOCAB,
    ),
    Cause(
        r"key not found in model: (\S{1,128})|key (\S{1,128}) has wrong (?:array length|type)",
        "the key {0}{1} in the metadata of the GGUF file does not fit this llama.cpp: the file was made for an older "
        "or newer release, or for a fork",
        NEWER_IMAGE,
        source=LOADER,
    ),
    Cause(
        r"invalid n_rot: |error loading model hyperparameters: |wrong array element type"
        r"|(?:expected scalar, found array"
        r"|is not a string/float32)",
        "the metadata of the GGUF file do not fit this llama.cpp: the file was made for an older or newer release, "
        "or for a fork",
        NEWER_IMAGE,
        source=LOADER,
    ),
    Cause(
        r"missing tensor '([^']{1,128})'|tensor '([^']{1,128})' (?:not found|has wrong shape)"
        r"|missing tensor info mapping for (\S{1,128})",
        "this llama.cpp expects the tensor {0}{1}{2} in another form or place: the GGUF file was made for another "
        "release or a fork, or a part of it is missing",
        NEWER_IMAGE + " `sparkops models verify` checks the file.",
        source=LOADER,
    ),
    Cause(
        r"wrong number of tensors; expected|too many tensors created",
        "the GGUF file has more or fewer tensors than this llama.cpp expects of the model: it was made for another "
        "release or a fork",
        NEWER_IMAGE + " `sparkops models verify` checks the file.",
        source=LOADER,
    ),
    Cause(
        r"failed to find a compatible buffer type for tensor|no suitable buffer type found",
        "no backend of this llama.cpp can hold a tensor of the model in its quantization",
        NEWER_IMAGE,
        source=MODEL,
    ),
    Cause(
        r"Unsupported attempt to override|malformed KV override|Invalid type for KV override|invalid (?:type"
        r"|boolean value) for KV override",
        "override-kv in serve.args is not KEY=TYPE:VALUE, or its type is not the key's",
        "Correct override-kv in serve.args (types: int, float, bool, str).",
        source=f"{COMMON}; {LOADER}",
    ),
)

CONTEXTS: tuple[Cause, ...] = (
    Cause(
        r"(?:V cache quantization|quantized V cache)(?: was requested, but this)? requires [Ff]lash.?[Aa]tt",
        "a quantized V cache (cache-type-v) needs flash attention, which is off or not supported for this model",
        "Set flash-attn: on in serve.args, or remove cache-type-v.",
        source=CONTEXT,
    ),
    Cause(
        r"([KV]) cache type (\S{1,32}) with block size (\d{1,5}) does not divide",
        "the type {1} of the {0} cache does not fit the size of the model's heads",
        "Set cache-type-k and cache-type-v in serve.args to f16 or another type.",
        source=CONTEXT,
    ),
    Cause(
        r"model does not support different K \((\S{1,32})\) and V \((\S{1,32})\) cache types",
        "this model needs one type for K and V cache; cache-type-k is {0} and cache-type-v {1}",
        "Set both to the same type in serve.args.",
        source=CONTEXT,
    ),
    Cause(
        r"n_seq_max must be <= (\d{1,9})|n_parallel.{0,64}(?:too large|must be)|invalid value for n_parallel",
        "parallel in serve.args is more than llama.cpp allows",
        "Lower parallel in serve.args.",
        source=CONTEXT,
    ),
    Cause(
        r"n_batch and n_ubatch cannot both be zero|n_ctx_seq == 0|n_ctx and .{0,64}cannot both be zero",
        "ctx-size, batch-size or ubatch-size leaves no token for a slot",
        "Raise ctx-size in serve.args (it is shared by the slots of parallel), or set batch-size.",
        source=CONTEXT,
    ),
    Cause(
        r"was unable to fit model into system memory by reducing context",
        "the model does not fit into the memory, even with a shorter context",
        LESS_WEIGHTS,
        source="llama.cpp: common/fit.cpp",
        quiet=True,
    ),
    Cause(
        r"pre-allocated tensor \(([^)]{1,128})\) in a buffer \(([^)]{1,64})\) that cannot run the operation",
        "the tensor {0} lies on a device ({1}) that cannot compute with it",
        "Remove override-tensor, split-mode and cache types from serve.args, or take another image (image.use).",
        source="llama.cpp: ggml/src/ggml-backend.cpp",
    ),
)

OTHER_FILES: tuple[Cause, ...] = (
    Cause(
        r"mismatch between text model \(n_embd = (\d{1,9})\) and (?:gen-audio )?mmproj \(n_embd = (\d{1,9})\)",
        "the mmproj belongs to another model: its vectors have {1} values, those of the model {0}",
        "Set mmproj in serve.args to the file from the same repository as the model, below model_dir of the node.",
        source=f"{MTMD}/mtmd.cpp",
    ),
    Cause(
        r"unknown (?:vision |audio )?projector type|unexpected (?:vision|audio) projector type"
        r"|unsupported minicpmv version",
        "this llama.cpp does not know the vision or audio encoder in the mmproj: it is newer",
        "Use a newer llama.cpp (image.use, or the template llama-cpp), or remove mmproj from serve.args.",
        source=f"{MTMD}/clip.cpp",
    ),
    Cause(
        r"failed to load CLIP model from ([^\s?]{1,512}?)\.? Does this file exist",
        "the mmproj {} is missing or cannot be read",
        "Correct mmproj in serve.args: below /models, where the container sees model_dir of the node.",
        source=MTMD,
    ),
    Cause(
        r"failed to load CLIP model from ([^\s?]{1,512})",
        "the mmproj {} cannot be loaded: it is missing, damaged, of another model, or newer than this "
        "llama.cpp; a line above says which",
        "Correct mmproj in serve.args: below /models, where the container sees model_dir of the node, from "
        "the model's repository; or take a newer llama.cpp (image.use).",
        source=f"{MTMD}/clip.cpp",
    ),
    Cause(
        r"(?:clip_model_loader|clip_init|get_tensor|load_tensors|load_hparams).{0,64}(?:unable"
        r"|failed) to find tensor (\S{1,128})",
        "the mmproj lacks the tensor {}: it was made for another release of llama.cpp, or is not the mmproj of this "
        "model",
        "Take the mmproj from the model's repository, and a newer llama.cpp (image.use).",
        source=f"{MTMD}/clip.cpp",
    ),
    Cause(
        r"failed to load (?:multimodal model|CLIP model|mmproj)[ ,:]{0,3}'?([^'\s]{1,512})",
        "the mmproj {} cannot be loaded: it is missing, damaged, of another model, or newer than this "
        "llama.cpp; a line above says which",
        "Correct mmproj in serve.args: the file from the model's repository; or take a newer llama.cpp "
        "(image.use), or remove mmproj.",
        source=f"{SERVER}/server-context.cpp",
    ),
    Cause(
        r"draft model vocab (?:type )?must match target|draft model '[^']{1,512}' is not compatible",
        "the draft model has another vocabulary than the model: it belongs to another family or version",
        DRAFT,
        source=SPECULATIVE,
        unless=r"to use speculation but|translated",
    ),
    Cause(
        r"draft model is not eagle3|DSpark draft has no confidence head|expected \d extract layers",
        "the draft model is not of the kind that spec-type in serve.args asks for",
        "Correct spec-type, spec-draft-p-min and model-draft in serve.args.",
        source=SPECULATIVE,
    ),
    Cause(
        r"failed to create MTP context|doesn't contain MTP layers|MTP requires the NextN block",
        "the GGUF file has no MTP layers (it was converted without them), which spec-type in serve.args asks for",
        "Take a GGUF file with MTP layers, or remove spec-type from serve.args.",
        source=SPECULATIVE,
    ),
    Cause(
        r"failed to load draft model,? '([^']{1,512})'",
        "the draft model {} cannot be loaded: it is missing, damaged, or unknown to this llama.cpp",
        DRAFT,
        source=f"{SERVER}/server-context.cpp",
    ),
    Cause(
        r"failed to initialize speculative decoding context: (.{1,256})",
        "speculative decoding cannot be set up with this model and these arguments: {}",
        "Correct spec-type, model-draft and parallel in serve.args, or remove them.",
        source=f"{SERVER}/server-context.cpp",
    ),
    Cause(
        r"model arch and LoRA arch mismatch|hint: maybe wrong base model|LoRA tensor '[^']{1,128}'"
        r"|adapter\.type to be 'lora'|general\.type to be 'adapter'",
        "the LoRA adapter belongs to another base model, or is no adapter in GGUF",
        "Correct lora in serve.args: the adapter must be made for this model.",
        source="llama.cpp: src/llama-adapter.cpp",
    ),
    Cause(
        r"failed to load lora adapter(?: from)? '?([^'\s]{1,512})",
        "the LoRA adapter {} is missing, damaged, or not one of this model; a line above says which",
        "Correct lora in serve.args.",
        source=COMMON,
    ),
    Cause(
        r"(?:failed to load )?control vector.{0,64}(?:from|does not match|do not match)|direction tensor (?:in|shape"
        r"|type|layer)",
        "the control vector is missing, or was made for another model",
        "Correct or remove control-vector in serve.args.",
        source=COMMON,
    ),
)

TEMPLATES: tuple[Cause, ...] = (
    Cause(
        r"common_chat_templates_init: error: (.{1,256})|chat template parsing error: (.{1,256})"
        r"|(failed to initialize chat template)",
        "the chat template has an error in its Jinja, or uses what this llama.cpp does not support: {0}{1}{2}",
        TEMPLATE,
        source=CHAT,
    ),
    Cause(
        r"supplied chat template is not supported|this custom template is not supported|failed to apply chat template"
        r"|Unable to generate parser for this template|chat template .{0,64}(?:not supported|not found)",
        "this llama.cpp does not support the chat template: it is unknown to it without Jinja, or has a form that it "
        "cannot parse",
        "Set jinja: true in serve.args, or name another template with chat-template or chat-template-file.",
        source=ARG,
    ),
    Cause(
        r"error parsing grammar: (.{1,256})|(failed to parse grammar|grammar does not contain a '[^']{1,64}' symbol"
        r"|references undefined rule|left recursion detected|error initializing grammar)",
        "the grammar of serve.args (grammar or grammar-file) is not valid GBNF: {0}{1}",
        "Correct it (GBNF has no \\d or \\w: write [0-9]), or remove grammar and grammar-file from serve.args.",
        source=GRAMMAR,
    ),
    Cause(
        r"JSON schema conversion failed|failed to parse server config file|failed to parse UI config"
        r"",
        "a JSON text or file that serve.args names is not valid",
        "Correct it in serve.args (json-schema, chat-template-kwargs or the file).",
        source="llama.cpp: common/json-schema-to-grammar.cpp",
    ),
)

DOWNLOADS: tuple[Cause, ...] = (
    Cause(
        r"built without (?:CURL|libcurl|SSL)|HTTPS (?:is not supported|requested but)|CPPHTTPLIB_OPENSSL_SUPPORT",
        "llama-server is to download the model itself, and was built without TLS (OpenSSL), so without https",
        "Set model.file, so that `sparkops models pull` downloads it, and remove hf-repo, hf-file and "
        "model-url from serve.args; or take an image whose llama.cpp was built with OpenSSL (LLAMA_OPENSSL).",
        source="llama.cpp: common/download.cpp",
    ),
    Cause(
        r"no GGUF files found in repository|not found in repository|invalid HF repo format|error from HF API",
        "llama-server is to download the model itself, and the repository has no such GGUF file or refuses it",
        "Set model.id and model.file, so that `sparkops models pull` downloads it, and remove hf-repo and hf-file "
        "from serve.args.",
        source="llama.cpp: common/download.cpp",
    ),
    Cause(
        r"download failed after|failed to download model|Download '[^']{1,512}' failed|HTTPLIB failed"
        r"|cannot make GET request|GET failed \("
        r"|required file is not available in cache|failed to download",
        "llama-server is to download the model itself (hf-repo or model-url), and the download failed: the "
        "hub is not reached or refuses it, or the file cannot be written",
        "Set model.id and model.file, so that `sparkops models pull` downloads it, and remove hf-repo and model-url "
        "from serve.args.",
        source="llama.cpp: common/download.cpp",
        unless=r"retrying",
    ),
    Cause(
        r"failed to create cache directory: |Failed to (?:determine HF cache|find \$HOME) directory"
        r"|error opening local file for writing: ",
        "llama-server cannot write its download: the directory is read-only, or HOME is not set",
        "Set model.file, so that `sparkops models pull` downloads it; or LLAMA_CACHE in serve.env to a directory "
        "that is writable.",
        source="llama.cpp: common/common.cpp",
    ),
)

LAST: tuple[Cause, ...] = (
    Cause(
        r"GGML_ASSERT\((.{1,256})\) failed",
        "a check in llama.cpp's own code failed ({}): a fault of this build, or the model and arguments do not fit "
        "together",
        "Remove unusual arguments from serve.args (split-mode, override-tensor, cache types, spec-type), or take "
        "another image (image.use).",
        source="llama.cpp: ggml/src/ggml.c",
    ),
    Cause(
        r"op not supported \S{1,128} ?\(|missing test for op"
        r"|unsupported tensor type for dequantization",
        "a backend of this llama.cpp cannot compute an operation of the model",
        NEWER_IMAGE,
        source=CUDA,
    ),
)

CAUSES: tuple[Cause, ...] = (
    *ARGUMENT,
    *LISTEN,
    *BACKENDS,
    *GPU,
    *FILES,
    *MODELS,
    *CONTEXTS,
    *OTHER_FILES,
    *TEMPLATES,
    *DOWNLOADS,
    *LAST,
)
