"""Known causes of failed starts: FlashInfer."""

from __future__ import annotations

from sparkops.engines.causes import Cause

IGNORED = r"Ignoring incompatible|[Ff]all(?:ing)? ?back|[Tt]rying another|[Aa]utotun|Skipping"
TOOLKIT = "Take a base with the development files of CUDA 13 (image.base, such as nvidia/cuda:...-devel-ubuntu24.04)"
OTHER_BACKEND = (
    "Choose another backend in serve.args (attention-backend TRITON_ATTN or triton; moe-backend of vLLM, "
    "moe-runner-backend of SGLang; linear-backend or fp4-gemm-backend), or take a release with kernels for sm_121 "
    "(image.vllm, image.use)."
)
ONE_RELEASE = (
    "Install flashinfer-python, flashinfer-cubin and flashinfer-jit-cache in one version (image.packages, "
    "image.override; or take the other two out with image.remove), then build and deploy again."
)
EMPTY_CACHE = (
    "Stop the service, remove the cache of compiled kernels on the node (docker volume ls, then docker volume rm "
    "sparkops-cache-...; or .cache/flashinfer in the directory that is mounted for it), and deploy again."
)
CUBINS = (
    "Add flashinfer-cubin in the version of flashinfer-python to image.packages and build again, or give the "
    "container a way to the internet for this start."
)
CORE = "flashinfer/jit/core.py"
CPP = "flashinfer/jit/cpp_ext.py"
LOADER = "flashinfer/jit/cubin_loader.py"

CAUSES: tuple[Cause, ...] = (
    Cause(
        r"(flashinfer[_-][\w-]{1,64}) version \(([^)]{1,64})\) does not match "
        r"(flashinfer(?:-jit-cache)?) version \(([^)]{1,64})\)",
        "{0} in the image has version {1}, and {2} has version {3}",
        ONE_RELEASE,
        source="flashinfer/jit/env.py",
        unless=IGNORED,
    ),
    Cause(
        r"FlashInfer requires GPUs with sm75 or higher|No supported CUDA architectures found for major versions",
        "the CUDA compiler (nvcc) of the image is too old for the GPU: FlashInfer needs CUDA 12.9 or newer for sm_121",
        f"{TOOLKIT}, or set CUDA_HOME in serve.env to a newer CUDA in the image, then build and deploy again.",
        source="flashinfer/compilation_context.py",
        beside=r"SM 12\S{0,4} requires CUDA >= 12\.\d",
    ),
    Cause(
        r"SM 12\S{0,4} requires CUDA >= (12\.\d)",
        "the CUDA compiler (nvcc) of the image is too old for the GPU: FlashInfer needs CUDA {} or newer for sm_121",
        f"{TOOLKIT}, or set CUDA_HOME in serve.env to a newer CUDA in the image, then build and deploy again.",
        source="flashinfer/compilation_context.py",
    ),
    Cause(
        r"No supported CUDA architectures found for major versions \[([\d, ]{1,64})\]",
        "the chosen FlashInfer kernel exists only for GPUs of compute capability {}.x, and the GB10 has 12.1; or "
        "FLASHINFER_CUDA_ARCH_LIST leaves the GPU out",
        OTHER_BACKEND,
        source="flashinfer/compilation_context.py",
    ),
    Cause(
        r"FlashInfer requires GPUs with sm75 or higher",
        "FlashInfer finds no GPU that it supports: the container sees no GPU, or nvcc of the image is too old for it",
        "Check `gpu` of the node in the inventory and run `sparkops doctor`; then check that the image has CUDA 12.9 "
        "or newer (image.base, image.use).",
        source=CORE,
    ),
    Cause(
        r"Could not find nvcc and default|nvcc not found and PyTorch is not built with CUDA",
        "FlashInfer has to compile a kernel, and the image has no CUDA compiler (nvcc)",
        f"{TOOLKIT}; or add flashinfer-jit-cache in the version of flashinfer-python to image.packages. "
        "VLLM_USE_FLASHINFER_SAMPLER=0 in serve.env avoids the sampling kernel.",
        source=CPP,
    ),
    Cause(
        r"JIT compilation is disabled via FLASHINFER_DISABLE_JIT",
        "FLASHINFER_DISABLE_JIT forbids FlashInfer to compile a kernel that its packages do not hold",
        "Remove FLASHINFER_DISABLE_JIT from serve.env, or add flashinfer-jit-cache to image.packages and build again.",
        source=CORE,
        unless=IGNORED,
    ),
    Cause(
        r"Read-only file system: '([^']{0,256}flashinfer[^']{0,256})'",
        "FlashInfer cannot write its cache of compiled kernels: {} is on a read-only file system",
        "Mount a writable directory there, or set FLASHINFER_WORKSPACE_BASE in serve.env to a writable one.",
        source="flashinfer/jit/env.py",
    ),
    Cause(
        r"Permission denied: '([^']{0,256}flashinfer[^']{0,256})'",
        "the engine may not write FlashInfer's cache of compiled kernels: {} belongs to another user",
        "Correct the owner of the mounted cache (chown), or set FLASHINFER_WORKSPACE_BASE in serve.env to a writable "
        "directory, and deploy again.",
        source="flashinfer/jit/env.py",
    ),
    Cause(
        r"No space left on device: '([^']{0,256}flashinfer[^']{0,256})'",
        "the disk of the node with FlashInfer's cache of compiled kernels is full: {}",
        "Free space on the node (df -h, sparkops prune, docker system df), then deploy again.",
        source=CORE,
    ),
    Cause(
        r"((?:[^\s'\"]{0,256}/)?(?:\.cache/flashinfer|cached_ops)/[^\s'\"]{0,256}\.so): (?:file too short"
        r"|invalid ELF header|ELF"
        r"|undefined symbol|cannot open shared object file)",
        "a compiled kernel in FlashInfer's cache is damaged, or was made by another image: {}",
        EMPTY_CACHE,
        source="glibc elf/dl-load.c; tvm-ffi",
        unless=IGNORED,
    ),
    Cause(
        r"Header (\S{1,256}) at \S{1,256} has wrong checksum|Header (\S{1,256}) not found at",
        "a downloaded file in FlashInfer's cache is damaged or of another version: {0}{1}",
        EMPTY_CACHE,
        source=LOADER,
    ),
    Cause(
        r"Artifact not found locally: (\S{1,256})|Failed to get (checksums\.txt)|Failed to download (cubins)"
        r"|(cubin kernel map file) not found, nor downloaded|Failed to fetch the (?:cubin|header) (artifact index)"
        r"|Failed to fetch the (checksum manifest)",
        "FlashInfer has no precompiled kernel file ({0}{1}{2}{3}{4}{5}) in the image, and the container cannot "
        "download it",
        CUBINS,
        source=LOADER,
    ),
    Cause(
        r"Max retries reached\. Download failed",
        "FlashInfer cannot download a precompiled kernel: the container has no way to the internet, or the server "
        "does not answer",
        CUBINS,
        source=LOADER,
    ),
    Cause(
        r"(?:Buffer overflow when allocating|Failed to allocate) memory for (\w{1,64}) with size (\d{1,20})",
        "FlashInfer's workspace is too small for this model and batch: {0} needs {1} bytes",
        "Raise VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE (vLLM) or SGLANG_FLASHINFER_WORKSPACE_SIZE (SGLang) in "
        "serve.env, or lower max-num-batched-tokens, max-num-seqs or chunked-prefill-size in serve.args.",
        source="flashinfer/data/include/flashinfer/allocator.h",
    ),
    Cause(
        r"FlashInfer Internal Error: Invalid configuration|Unsupported max_mma_kv|Unsupported head_dim:? {0,2}(\d{0,6})"
        r"|Unsupported group_size:? {0,2}\d{0,6}|Invalid head_dim: \d{1,6}",
        "FlashInfer has no attention kernel for the heads of this model on this GPU",
        "Set attention-backend in serve.args to TRITON_ATTN (vLLM) or triton (SGLang), and leave kv-cache-dtype out.",
        unless="JIT QK-Norm",  # SGLang falls back
        source="flashinfer/data/include/flashinfer/attention",
    ),
    Cause(
        r"Failed to (?:initialize|run) cutlass|Failed to initialize the TMA descriptor|\[FP4 gemm Runner\]"
        r"|[Cc]utlass[^\n]{0,64}(?:Error Internal|arch conditional MMA)"
        r"|\[TensorRT-LLM\]\[ERROR\] Assertion failed:[^\n]{0,64}(?:cutlass|TMA|arch|SM)",
        "FlashInfer's CUTLASS kernel for this quantization failed: it does not run on the GB10 (sm_121) in "
        "this release, or not with these sizes, as the message says",
        OTHER_BACKEND,
        source="flashinfer/data/csrc (TensorRT-LLM kernels)",
        unless=IGNORED,
    ),
    Cause(
        r"(?i)trtllm-?_?gen[^\n]{0,160}(?:unsupported|not supported|missing|no kernel|not found)"
        r"|(?:Missing|No) TRTLLM-?GEN kernel|Unsupported architecture[^\n]{0,32}trtllm",
        "the chosen TRTLLM kernel of FlashInfer exists only for data-centre Blackwell (sm_100), not for the GB10 "
        "(sm_121)",
        OTHER_BACKEND,
        source="flashinfer/data/include/flashinfer/trtllm",
        unless=IGNORED,
    ),
    Cause(
        r"(\w{1,128}) does not support (?:compute capability (\d{1,3})"
        r"|backend '([\w-]{1,64})' with capability (\d{1,3}))",
        "FlashInfer's {0} has no kernel for this GPU (compute capability {1}{3}, {2})",
        OTHER_BACKEND,
        source="flashinfer/utils.py",
        unless=IGNORED,
    ),
    Cause(
        r"No suitable auto backends found for (\w{1,128})|BackendSupportedError: ([^\n]{1,200})",
        "no backend of FlashInfer supports this call on the GPU: {0}{1}",
        OTHER_BACKEND,
        source="flashinfer/utils.py",
        unless=IGNORED,
    ),
    Cause(
        r"(?:[Oo]nly supported on|requires|require|[Oo]nly supports?) (?:exact )?(?:an? )?"
        r"((?:SM|sm_?) ?(?:90|100|103|107)\w?\b[^\n]{0,128})",
        "the chosen kernel supports only GPUs of another architecture ({}), and the GB10 is sm_121",
        OTHER_BACKEND,
        source="flashinfer/utils.py",
        unless=IGNORED + r"|[Ww]arning|disabl",
    ),
    Cause(
        r"requires CUDA (1\d(?:\.\d)?) or (?:later|newer)\.? Current CUDA version: ([\d.]{0,16}\d)"
        r"|(?:requires|compilation requires) CUDA (1\d(?:\.\d)?) or (?:later|newer)",
        "the CUDA of the image ({1}) is too old for this kernel, which needs CUDA {0}{2} or newer",
        "Take an image with that CUDA (image.base, image.use), or choose another backend in serve.args (moe-backend, "
        "linear-backend, attention-backend).",
        source="flashinfer/gemm",
    ),
    Cause(
        r"requires [`']?(nvidia-cutlass-dsl|quack-kernels|cuda-tile|nvidia-cudnn-frontend)[^\n]{0,64}"
        r"|requires (CuTe DSL >= [\d.]{1,16})|(CuTe-DSL) is not available",
        "the image lacks the package {0}{1}{2} of a kernel that the engine chose, or has an older version of it",
        "Add the package (nvidia-cutlass-dsl for CuTe DSL) in the version that FlashInfer requires to image.packages, "
        "then build and deploy again.",
        source="flashinfer/gemm/gemm_base.py",
        unless=IGNORED,
    ),
    Cause(
        r"cuDNN is not available\. Please install cuDNN|cudnn[^\n]{0,64}requires backend version >= (\d{1,8})",
        "cuDNN or its Python package is missing in the image, or too old for FlashInfer",
        "Add nvidia-cudnn-cu13 and nvidia-cudnn-frontend in the versions that torch and FlashInfer require to "
        "image.packages, or choose another linear-backend in serve.args; then build and deploy again.",
        source="flashinfer/gemm/gemm_base.py",
    ),
    Cause(
        r"cudnnGraphNotSupportedError|No (?:valid )?(?:execution plans|engine configs?) [^\n]{0,64}(?:support|graph)"
        r"|CUDNN_STATUS_(?:NOT_SUPPORTED|EXECUTION_FAILED|ARCH_MISMATCH)\w{0,32}",
        "cuDNN has no kernel that runs this operation on the GB10 (sm_121), or its version does not fit the driver",
        "Choose another backend in serve.args (linear-backend, attention-backend) or leave kv-cache-dtype fp8 out, or "
        "take a release with a newer cuDNN (image.vllm, image.use).",
        source="cudnn-frontend",
        unless=IGNORED,
    ),
    Cause(
        r"Multicast pointer is null after rendezvous|Device does not support multicasting"
        r"|memory shared across hosts needs FABRIC handles|cuMulticast\w{1,64}[^\n]{0,64}(?:fail|error|not supported)",
        "FlashInfer's fused all-reduce needs NVLink between the GPUs, and Sparks are joined by a network",
        "Switch it off: fuse_allreduce_rms false in compilation-config (vLLM), no enable-flashinfer-allreduce-fusion "
        "(SGLang), in serve.args.",
        source="flashinfer/comm",
        unless=IGNORED,
    ),
    Cause(
        r"FlashInfer backend is not available\. Please install",
        "the image has no FlashInfer that can run: the package is missing, or it has neither nvcc nor flashinfer-cubin",
        "Add flashinfer-python and flashinfer-cubin to image.packages, or take a base with nvcc (image.base); then "
        "build and deploy again.",
        source="vllm/utils/flashinfer.py",
    ),
    Cause(
        r"(\S{1,128}) sources? (?:was |were |file )?not found[^\n]{0,16}Checked|FlashInfer headers were not found"
        r"|Cannot find (?:flashinfer package|CUTLASS headers)|Required header path \S{1,256} for flashinfer",
        "the FlashInfer package of the image is incomplete: its sources or headers for compiling kernels are missing",
        "Install flashinfer-python again in one version (image.packages, image.override), or take a finished image "
        "(image.use); then build and deploy again.",
        source="flashinfer/jit; sglang/jit_kernel/utils.py",
    ),
    Cause(
        r"^flashinfer\.jit: Loading JIT ops: (\w{1,256})",
        "FlashInfer waits for the kernel {}: an earlier start that was killed while compiling left its lock file in "
        "the cache, or nvcc still compiles it",
        EMPTY_CACHE,
        source="flashinfer/jit/core.py (torch/utils/file_baton.py)",
        quiet=True,
    ),
    Cause(
        r"^(?:flashinfer\.jit: )?Building JIT module (\S{1,256}); this can take several minutes",
        "the engine still compiled the kernel {} with nvcc when the start was ended, or nvcc took the node's memory",
        "Raise probe.startup.compile_stall_s, or lower MAX_JOBS in serve.env if the node's memory was full; the cache "
        "of the release keeps what was compiled.",
        source=CORE,
        quiet=True,
    ),
    Cause(
        r"missing and no known rule to make it|ninja: error: (?:loading|opening|mkdir|stat|open)",
        "ninja cannot use the cache of compiled kernels: it was made by another image, or it is damaged or "
        "not writable",
        EMPTY_CACHE,
        source="ninja; flashinfer/jit/cpp_ext.py",
    ),
)
