"""Known causes of failed starts: DeepGEMM, ninja, nvcc, Inductor and other compilers at a start."""

from __future__ import annotations

from sparkops.engines.causes import Cause

HARMLESS = r"[Aa]utotun|[Ff]all(?:ing)? ?back|[Ww]arning:|Ignor"
REBUILD = "then build and deploy again."
TOOLKIT = "Take a base with the development files of CUDA 13 (image.base, such as nvidia/cuda:...-devel-ubuntu24.04)"
FEWER_JOBS = (
    "Lower MAX_JOBS (and TORCHINDUCTOR_COMPILE_THREADS) in serve.env and the memory that the engine reserves "
    "(gpu-memory-utilization, mem-fraction-static in serve.args), or free memory on the node."
)
NO_DEEP_GEMM = (
    "Set VLLM_USE_DEEP_GEMM=0 (vLLM) or SGLANG_ENABLE_JIT_DEEPGEMM=0 (SGLang) in serve.env, or take a release whose "
    "DeepGEMM supports sm_121 (image.vllm, image.use)."
)
EMPTY_CACHE = (
    "Stop the service, remove the cache of compiled code on the node (docker volume ls, then docker volume rm "
    "sparkops-cache-...; or torch_compile_cache in the directory that is mounted for it), and deploy again."
)
EAGER = (
    "Set enforce-eager: true (vLLM) or leave enable-torch-compile out (SGLang) in serve.args to start without "
    "torch.compile; take a mod that changed this code out of image.mods, or take another release (image.vllm, "
    "image.use)."
)
OTHER_BACKEND = (
    "Choose another backend in serve.args (attention-backend; moe-backend of vLLM, moe-runner-backend of SGLang; "
    "linear-backend), or take a release that supports sm_121 (image.vllm, image.use)."
)
NVCC = "nvcc"
INDUCTOR = "torch/_inductor/codecache.py"
COMPILED = (
    r"(?:torchinductor|torch_compile_cache|inductor_cache|torch_aot_compile|\.cache/(?:vllm|tvm-ffi|tilelang|cute-dsl)"
    r"|\.tilelang|\.deep_gemm)"
)
FRAMES = (
    r"torch/_inductor/(?:codecache|remote_cache|standalone_compile|triton_bundler)\.py\""
    r"|vllm/compilation/\w{1,64}\.py\""
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        r"InvalidCxxCompiler|No working C\+\+ compiler found",
        "the image has no C++ compiler, and the engine compiles code when it starts",
        f"Add g++ to image.apt, {REBUILD}",
        source="torch/_inductor/exc.py",
    ),
    Cause(
        r"(?:No such file or directory:? '?|/bin/sh: \d{1,3}: |Permission denied: ')(:[^'\s]{0,256}nvcc)",
        "CUDA_HOME is not one directory, but a list with a colon, so that nvcc is not found: {}",
        "Set CUDA_HOME in serve.env to one directory, such as /usr/local/cuda, and deploy again.",
        source="vllm-project/vllm#36077",
    ),
    Cause(
        r"nvcc: (?:not found|command not found|No such file)|No such file or directory: '[^']{0,256}nvcc'"
        r"|CUDA_HOME environment variable is not set|Cannot find (?:CUDA|cuda) path|[Cc]annot find any available NVCC"
        r"|exists\(nvcc_path\)|not cuda_home\.empty\(\)|Could not find CUDA installation|Failed to find nvcc"
        r"|nvcc'[^\n]{0,64}returned non-zero exit status 12[67]",
        "the engine compiles kernels when it starts, and the image has no CUDA compiler (nvcc), or CUDA_HOME names "
        "another directory",
        f"{TOOLKIT}, or set CUDA_HOME in serve.env to the CUDA of the image, {REBUILD}",
        source="torch/utils/cpp_extension.py; DeepGEMM csrc/jit/compiler.hpp",
        unless=HARMLESS,
    ),
    Cause(
        r"No such file or directory: 'ninja'|ninja: (?:not found|command not found)|Ninja is required to load",
        "the image has no ninja, with which the engine (FlashInfer, torch) compiles its kernels at a start",
        f"Add ninja to image.packages (or ninja-build to image.apt), {REBUILD} "
        "If it is installed, its directory is missing in PATH.",
        source="flashinfer/jit/cpp_ext.py; torch/utils/cpp_extension.py",
        unless=HARMLESS,
    ),
    Cause(
        r"nvcc fatal {0,4}: Unsupported gpu architecture '(\w{1,32})'"
        r"|nvcc fatal {0,4}: Value '(\w{1,32})' is not defined"
        r"|(?:invalid value for|nvrtc: error:[^\n]{0,64}) --gpu-architecture|NVRTC_ERROR_INVALID_OPTION",
        "the CUDA compiler of the image is too old for the GPU of the node ({0}{1}); the GB10 (sm_121) needs CUDA "
        "12.9 or newer",
        f"{TOOLKIT}, or set CUDA_HOME in serve.env to a newer CUDA in the image, {REBUILD}",
        source=NVCC,
    ),
    Cause(
        r"nvcc fatal {0,4}: Unknown option '([^']{1,64})'",
        "the CUDA compiler of the image is of another release than the kernels need: it does not know the option {}",
        f"{TOOLKIT} in the version that the engine requires, and remove NVCC flags from serve.env, {REBUILD}",
        source=NVCC,
    ),
    Cause(
        r"'?\"?(\w[\w+]{1,16})\"?'? died due to signal (?:9|KILL)|Killed signal terminated program (\w[\w+]{1,16})"
        r"|virtual memory exhausted|cc1plus: out of memory|FAILED: \[code=137\]|Killed {1,40}[^\n]{0,200}(nvcc|cicc"
        r"|cc1plus|ptxas|cudafe)",
        "the node's memory was full while several compilers ran at once, and the kernel killed one ({0}{1}{2})",
        FEWER_JOBS,
        source="nvcc, gcc (Linux out-of-memory killer)",
    ),
    Cause(
        r"'?\"?(\w[\w+]{1,16})\"?'? died due to signal \d{1,3}|internal compiler error"
        r"|nvcc error {0,4}: [^\n]{0,64}core dumped",
        "the compiler crashed at a kernel of the engine ({}): a fault of this release of the compiler, or of the "
        "memory",
        "Deploy again; if it crashes at the same place, take another release of CUDA (image.base, image.use), "
        f"{REBUILD}",
        source="nvcc, gcc",
    ),
    Cause(
        r"unsupported GNU version! gcc versions later than (\d{1,3})|unsupported clang version",
        "the C++ compiler of the image is newer than its CUDA compiler (nvcc) supports: gcc up to {}",
        "Add an older g++ to image.apt (and name it as NVCC_CCBIN or CXX in serve.env), or take a newer CUDA, "
        f"{REBUILD}",
        source="cuda/include/crt/host_config.h",
    ),
    Cause(
        r"Failed to preprocess host compiler properties|(?<![\w+-])(gcc|g\+\+|c\+\+|cc): (?:not found"
        r"|command not found)"
        r"|^(?:gcc|g\+\+|c\+\+|cc): No such file|No such file or directory: '(gcc|g\+\+|c\+\+|cc)'"
        r"|nvcc fatal {0,4}: (?:No|Cannot find) [^\n]{0,32}compiler"
        r"|cannot execute .{0,2}cc1plus|error trying to exec .{0,2}cc1(?:plus)?",
        "the image has no C++ compiler (g++) that works, which is needed to compile kernels when the engine starts",
        f"Add g++ (build-essential) to image.apt, {REBUILD}",
        source="nvcc; torch/utils/cpp_extension.py",
    ),
    Cause(
        r"(?:fatal error: '?|cannot open source file \")((?:cu(?:rand|blas|sparse|solver|fft|dnn|pti|da|file)|nvrtc"
        r"|nvtx|"
        r"nvToolsExt|nvml|crt/|cooperative_groups|driver_types|vector_types|fatbinary|nvJitLink|library_types|"
        r"cub/|thrust/|cuda/|nv/)[\w./]{0,128})",
        "the image has no header files of CUDA for {}, which a kernel that is compiled at the start needs",
        f"{TOOLKIT}, or add the development package of that CUDA library to image.apt (such as libcurand-dev-13-0, "
        f"libcublas-dev-13-0, cuda-nvrtc-dev-13-0), {REBUILD}",
        source="gcc, nvcc",
    ),
    Cause(
        r"(?:fatal error: |cannot open source file \""
        r"|could not open source file \"|Failed to open: )([\w./-]{0,128}deep_gemm[\w./-]{0,128})",
        "the DeepGEMM of the image has no kernel source for this GPU (sm_121): {}",
        NO_DEEP_GEMM,
        source="spark-arena/sparkrun#220",
    ),
    Cause(
        r"(?:fatal error: |cannot open source file \")((?:cutlass|cute|flashinfer|tensorrt_llm|spdlog|tvm|dlpack|fmt|"
        r"tl_templates|tilelang|sgl_kernel|nvshmem)[\w./-]{1,128})",
        "a package with kernels is incomplete in the image, or its cache is of another version: the header {} is "
        "missing",
        "Install the package (flashinfer-python, apache-tvm-ffi, tilelang) in the version that the engine requires "
        f"(image.packages, image.override), {REBUILD} If that does not help, remove the cache volume (docker volume "
        "rm).",
        source="flashinfer-ai/flashinfer#2203",
    ),
    Cause(
        r"fatal error: ((?:std\w{2,8}|string|limits|dlfcn|errno|math|bits/[\w./+-]{1,64}|sys/\w{1,32}|features"
        r"|unistd)\.h)"
        r"|cannot find (?:Scrt1|crt1|crti|crtbegin\w?)\.o|cannot find -l(?:c|m|pthread|dl)(?: |:|$)",
        "the image has a compiler but not the development files of the C library ({})",
        f"Add libc6-dev (build-essential) to image.apt, {REBUILD}",
        source="gcc, ld",
    ),
    Cause(
        r"fatal error: ([a-z_]{3,32}): No such file or directory|cannot find -lstdc\+\+|fatal error: (omp\.h): No such",
        "the image has a compiler but not the development files of its C++ library ({0}{1})",
        f"Add g++ and libstdc++-dev of the same version (build-essential) to image.apt, {REBUILD}",
        source="gcc, ld",
    ),
    Cause(
        r"cannot find (-l(?:cudart|nvrtc|cublas|cublasLt|curand|cusparse|cusolver|cufft|cudnn|nvJitLink|cudadevrt"
        r"|nccl)\S{0,32})",
        "the linker finds no library of CUDA in the image: {}",
        f"{TOOLKIT}, or add the development package of that library to image.apt, {REBUILD}",
        source="ld",
    ),
    Cause(
        r"cannot find (?:'ld'|-l:?([\w.+-]{1,64}))|collect2: fatal error: cannot find|(?<![\w-])ld: not found",
        "the linker or a library for it is missing in the image: {}",
        f"Add binutils and the development package of the library to image.apt, {REBUILD}",
        source="gcc, ld",
    ),
    Cause(
        r"CUDA compiler and CUDA toolkit headers are incompatible",
        "nvcc and the header files of CUDA in the image are of two versions",
        "Pin the nvidia-cuda-* packages of the image to the CUDA version of torch (image.override), or set CUDA_HOME "
        "in "
        f"serve.env to one complete CUDA, {REBUILD}",
        source="cuda/include/cuda/std; vllm-project/vllm#44305",
    ),
    Cause(
        r"exception specification is incompatible with that of previous function",
        "the C library of the image is newer than its CUDA supports, so that their header files contradict each other",
        f"Take a base of Ubuntu 24.04 with CUDA 13 (image.base), {REBUILD}",
        source="cuda/include/crt/math_functions.h",
    ),
    Cause(
        r"NV(?:CC|RTC) version should be >= (12\.\d)|DeepGEMM[^\n]{0,64}(?:nvcc|NVCC|CUDA) {0,4}(?:>=|version|1\d)",
        "the CUDA compiler that DeepGEMM found in the image is too old; it needs {} or newer",
        f"{TOOLKIT} or set CUDA_HOME in serve.env to it, {REBUILD} " + NO_DEEP_GEMM,
        source="DeepGEMM csrc/jit/compiler.hpp",
        unless=HARMLESS,
    ),
    Cause(
        r"Assertion error \([^)]{0,256}\): (?:Unsupported (?:arch|device|SM)|Unknown (?:arch|device|SM))"
        r"|deep_?gemm[^\n]{0,64}(?i:unsupported arch)|Unsupported architecture or scaling factor types",
        "DeepGEMM has no kernel for the GB10 (sm_121): its kernels are for Hopper and data-centre Blackwell",
        NO_DEEP_GEMM,
        source="DeepGEMM csrc/apis",
    ),
    Cause(
        r"DeepGEMM (?:backend )?is not available",
        "the model's kernels need DeepGEMM, which is missing in the image, too old, or switched off",
        "Add deep-gemm to image.packages, or choose another backend in serve.args (moe-backend, linear-backend, "
        "fp8-gemm-backend), " + REBUILD,
        source="vllm/utils/deep_gemm.py; sglang/srt/layers/quantization/fp8_utils.py",
    ),
    Cause(
        r"Corrupted JIT cache directory",
        "a folder in DeepGEMM's cache of compiled kernels is incomplete: a compilation was interrupted, or "
        "two processes wrote to it",
        "Stop the service, remove the cache of compiled code on the node (docker volume ls, then docker "
        "volume rm sparkops-cache-...; or .deep_gemm in the directory that is mounted), and deploy again.",
        source="DeepGEMM: csrc/jit/kernel_runtime.hpp",
    ),
    Cause(
        r"Assertion error \([^)]{0,256}(?:deep_?gemm|csrc)/[^)]{0,128}\): Unknown (\w{1,32}[^\n]{0,64})",
        "DeepGEMM has no kernel for these weights or their scales on this GPU (Unknown {}): its kernels are "
        "for Hopper and data-centre Blackwell",
        NO_DEEP_GEMM,
        source="DeepGEMM: csrc/apis",
    ),
    Cause(
        r"NV(?:CC|RTC)(?: PTX)? compilation failed|Assertion error \([^)]{0,256}(?:deep_?gemm"
        r"|csrc)/[^)]{0,128}\)(?:: ([^\n]{1,160}))?",
        "a kernel of DeepGEMM failed ({}): its release does not support the GB10 (sm_121) or these sizes, "
        "does not fit the CUDA of the image, or its cache is damaged",
        NO_DEEP_GEMM,
        source="DeepGEMM csrc/jit/compiler.hpp",
    ),
    Cause(
        r"Unexpected instruction types specified for '([\w.]{1,64})'",
        "the ptxas of the CUTLASS DSL in the image does not know the types of the instruction {} that a "
        "kernel uses (such as FP4 on sm_121a): nvidia-cutlass-dsl is the one for CUDA 12, or too old",
        "Set nvidia-cutlass-dsl[cu13] in image.packages and remove its other packages (image.remove), take a "
        "newer image, or choose another moe-backend or linear-backend in serve.args.",
        source="ptxas",
        beside=r"nvidia_cutlass_dsl|NVVM Compilation Error",
    ),
    Cause(
        r"Unexpected instruction types specified for '([\w.]{1,64})'",
        "ptxas does not know the types of the instruction {} that a kernel uses: it is of an older CUDA than "
        "the kernel needs, or the kernel is for another GPU",
        "Take an image whose CUDA is newer (image.base, image.use), or choose another attention-backend, "
        "moe-backend or linear-backend in serve.args.",
        source="ptxas",
    ),
    Cause(
        r"OpError: (?:OpError: )?expects arch to be one of|expects arch to be[^\n]{0,256}but got (?:Arch\.)?sm_12\w",
        "the chosen kernel (CuTe DSL, such as FlashAttention 4) uses tensor-core instructions of data-centre "
        "Blackwell, which the GB10 (sm_121) does not have",
        OTHER_BACKEND + " Take settings of FlashAttention 4 out.",
        source="cutlass/cute/nvgpu/tcgen05/mma.py",
    ),
    Cause(
        r"DSL\w{0,16}Error: |DSL\w{0,16}Error$|NVVM [Cc]ompilation [Ee]rror",
        "a CuTe DSL kernel does not compile or run on the GB10 (sm_121), or nvidia-cutlass-dsl is of another release "
        "than the kernel needs",
        OTHER_BACKEND,
        source="nvidia-cutlass-dsl cutlass/base_dsl",
        unless=HARMLESS,
    ),
    Cause(
        r"TypeAttr `\w{1,64}` is already registered|(?:Global [Ff]unction|[Tt]ype) \S{1,64} (?:is )?already registered",
        "two copies of TVM are loaded at once: tilelang and apache-tvm-ffi of the image do not fit each other",
        f"Pin tilelang and apache-tvm-ffi to the versions that the engine requires (image.override), {REBUILD}",
        source="sgl-project/sglang#34858",
    ),
    Cause(
        r"^(?:tvm|tilelang)[\w.]{0,64}Error: ",
        "a TileLang kernel does not compile or run: tilelang of the image does not fit the engine, or not the GB10 "
        "(sm_121)",
        f"Pin tilelang and apache-tvm-ffi to the versions that the engine requires (image.override), {REBUILD} "
        "Or choose another backend in serve.args (attention-backend).",
        source="tilelang",
    ),
    Cause(
        r"torch\._dynamo\.exc\.(?:Unsupported|UserError|UncapturedHigherOrderOpError|FailOnRecompileLimitHit)",
        "torch.compile cannot trace the model's code into one graph: a mod or patch calls a function that it does not "
        "support, or torch is of another release than the engine needs",
        EAGER,
        source="torch/_dynamo/exc.py",
    ),
    Cause(
        r"failed, leading to a corrupted compilation artifact|vLLM failed to compile the model",
        "the cache of compiled code has no artifact that can be used: an earlier compilation failed or broke "
        "off, and the cache hides its error",
        f"{EMPTY_CACHE} A compilation that fails again then shows its own error.",
        source="vllm/compilation/compiler_interface.py",
    ),
    Cause(
        r"Inductor cache lookup failed|Expected tensors only, but got: <class|Bytes object is corrupted, check"
        r"sum does not match",
        "the cache of compiled code is damaged or of another version: an earlier start ended while it was written",
        EMPTY_CACHE,
        source="vllm/compilation/compiler_interface.py",
    ),
    Cause(
        r"EOFError: Ran out of input|UnpicklingError|pickle data was truncated|JSONDecodeError: "
        r"|Bad magic number for central"
        r"|unexpected EOF, expected \d{1,12} more bytes",
        "a file in the cache of compiled code is empty or cut off: an earlier start ended while it was written",
        EMPTY_CACHE,
        source=INDUCTOR,
        beside=FRAMES,
    ),
    Cause(
        rf"({COMPILED}[^'\s:/]{{0,64}}/[^'\s:]{{0,256}}\.so): (?:file too short|invalid ELF header|undefined symbol"
        r"|cannot open shared)",
        "a compiled file in the cache is damaged, or was made by another image: {}",
        EMPTY_CACHE,
        source="glibc elf/dl-load.c",
    ),
    Cause(
        rf"Permission denied: '([^']{{0,256}}{COMPILED}[^']{{0,256}})'",
        "the engine may not write the cache of compiled code: {} belongs to another user",
        "Correct the owner of the mounted cache (chown; docker volume rm removes a volume), or set VLLM_CACHE_ROOT "
        "and TORCHINDUCTOR_CACHE_DIR in serve.env to writable directories.",
        source=INDUCTOR,
    ),
    Cause(
        rf"Read-only file system: '([^']{{0,256}}{COMPILED}[^']{{0,256}})'",
        "the cache of compiled code is on a read-only file system: {}",
        "Mount a writable volume there, or set VLLM_CACHE_ROOT and TORCHINDUCTOR_CACHE_DIR in serve.env to writable "
        "directories.",
        source=INDUCTOR,
    ),
    Cause(
        rf"No space left on device: '([^']{{0,256}}{COMPILED}[^']{{0,256}})'",
        "the disk of the node that holds the cache of compiled code is full: {}",
        "Free space on the node (df -h, sparkops prune, docker system df), then deploy again.",
        source=INDUCTOR,
    ),
    Cause(
        r"getpwuid\(\): uid not found: (\d{1,12})|No username set in the environment",
        "the user of the container has no name in the image (uid {}), and torch names its compile cache after the user",
        "Set TORCHINDUCTOR_CACHE_DIR and USER in serve.env, or add the user to the image, and deploy again.",
        source="torch/_inductor/runtime/cache_dir_utils.py",
    ),
    Cause(
        r"A child process terminated abruptly, the process pool is not usable|BrokenProcessPool|SubprocException",
        "a process that compiles for torch ended without a word, most likely because the node's memory was full",
        FEWER_JOBS,
        source="torch/_inductor/compile_worker/subproc_pool.py",
        unless=HARMLESS,
    ),
    Cause(
        r"C\+\+ compile error|CppCompileError",
        "the C++ compiler of the image cannot compile the code that torch.compile wrote: compiler and torch do not "
        "fit, or its development files are missing",
        f"Add build-essential and python3-dev to image.apt, {REBUILD} " + EAGER,
        source="torch/_inductor/exc.py",
    ),
    Cause(
        r"(?:InductorError|BackendCompilerFailed|LoweringException|InternalTorchDynamoError|TorchRuntimeError): "
        r"([^\n]{1,200})",
        "torch.compile fails at this model: torch or Triton of the image does not fit the engine, or the kernels not "
        "the GPU ({})",
        EAGER,
        source="torch/_inductor/exc.py",
        unless=r"No space left|Errno|[Oo]ut ?[Oo]f ?[Mm]emory|" + HARMLESS,
    ),
    Cause(
        r"\.(?:cuh?|hpp|h|cc|cpp|inl)[(:]\d{1,6}(?::\d{1,6}"
        r"|\)): (?:catastrophic )?error(?: #[\w-]{1,16})?: ([^\n]{1,160})",
        "the source of a kernel does not compile: its package and the CUDA compiler of the image do not fit each "
        "other ({})",
        "Take kernels and CUDA of one release (image.vllm, image.use, image.base with the CUDA that the engine "
        "requires), and remove old caches of compiled kernels (docker volume rm), then build and deploy again.",
        source="nvcc, gcc",
    ),
    Cause(
        r"Command '\[?'[^'\s]{0,128}(?:gcc|clang|cc)'",
        "the C compiler failed while a launcher of Triton or another extension was built: development files "
        "in the image are missing or do not fit",
        "Read the compiler's messages (sparkops logs SERVICE); add build-essential and python3-dev to image.apt, "
        "" + REBUILD,
        source="triton/runtime/build.py",
    ),
    Cause(
        r"[Tt]he file lock '([^']{1,256})' could not be acquired",
        "another process holds the lock {}, or one that was killed on a network file system left it",
        "Stop other engines that share the cache on the node, delete the lock file, and deploy again.",
        source="filelock",
    ),
    Cause(
        r"Entering DeepGEMM JIT Pre-Compile|DeepGEMM (?:JIT )?warmup[^%]{0,64}(?<!\d)\d{1,2}%",
        "DeepGEMM still compiled its kernels when the start was ended: the first start of an image takes many minutes",
        "Raise probe.startup.compile_stall_s and probe.startup.max_s, or set SGLANG_JIT_DEEPGEMM_PRECOMPILE=0 "
        "(SGLang) or VLLM_DEEP_GEMM_WARMUP=skip (vLLM) in serve.env.",
        source="sglang/srt/layers/deep_gemm_wrapper/compile_utils.py; vllm/model_executor/warmup/deep_gemm_warmup.py",
        quiet=True,
    ),
)
