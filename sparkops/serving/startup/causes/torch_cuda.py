"""Known causes of failed starts: torch, CUDA and the driver."""

from __future__ import annotations

import re

from sparkops.engines.causes import Advice, Cause

CAUGHT = r"[Aa]utotun|[Ff]all(?:ing|s)? ?back|[Ss]kipping tactic|Ignore import error"
"""Of lines whose error was caught: tuners try what does not run, and optional modules may not load."""
GPU_OF_NODE = "Check `gpu` of the node in the inventory (runtime, cdi or devices), then run `sparkops doctor`."
DRIVER_OR_IMAGE = (
    "Update the node's driver, or use an image for the driver's CUDA (image.use, image.base); nvidia-smi prints both "
    "versions."
)
LIBRARY_PATH = (
    "Remove LD_LIBRARY_PATH from serve.env, or let it begin with the folder of the libraries beside torch; else use "
    "another image (image.use)."
)
BUILT_FOR_SPARK = "Use an image that is built for sm_121 (image.use), or a newer release of {}."
OTHER_KERNEL = (
    "Set another attention-backend, moe-backend or kernel in serve.args, use a model with another quantization "
    "(model.id), or a newer image."
)
FAULT_OF_KERNEL = (
    "Set CUDA_LAUNCH_BLOCKING=1 in serve.env to find the kernel; then set another attention-backend in serve.args, "
    "enforce-eager (SGLang: disable-cuda-graph), or use another release of the image."
)
REBOOT = "Check dmesg of the node for NVRM and Xid, then reboot or power-cycle it; nvidia-smi shows whether it is back."
NODE_OF_ONE = (
    "A Spark has one GPU: spread the model over nodes with serve.tensor_parallel, and remove CUDA_VISIBLE_DEVICES from "
    "serve.env and other counts of GPUs from serve.args."
)
PIECEWISE = (
    "Set cudagraph_mode PIECEWISE in compilation-config, or enforce-eager (SGLang: disable-cuda-graph), in serve.args; "
    "or use another release of the image."
)
TORCH_FAMILY = "Pin the {} that belongs to this torch and its CUDA in image.override or image.packages, then build."
CUDA_LIBRARIES = r"(?:cublas|cudnn|cusparse|cusolver|cufft|curand|nvrtc|nvJitLink|nvjitlink|cupti|cudart|nvshmem)"


def _version(code: str) -> str:
    """Return a version of CUDA that is printed as one number: 12080 is 12.8."""
    return f"{int(code) // 1000}.{int(code) % 1000 // 10}"


def _old_driver(match: re.Match[str], _: str) -> Advice:
    return Advice(
        f"the image's torch needs a newer CUDA than the node's driver has ({_version(match[1])})", DRIVER_OR_IMAGE
    )


DRIVER: tuple[Cause, ...] = (
    Cause(
        r"Error 803\b|unsupported display driver / cuda driver combination|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        r"|cudaErrorSystemDriverMismatch",
        "the libcuda that the process loads does not fit the node's kernel driver: it is that of cuda-compat in the "
        "image, or the driver was updated without a reboot",
        "Put the driver's library folder first in LD_LIBRARY_PATH (serve.env), use an image for the driver's CUDA, or "
        "reboot the node after an update of the driver.",
        source="cuda.h: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; gpustack/gpustack#4678",
    ),
    Cause(
        r"Error 804\b|forward compatibility was attempted on non supported HW|cudaErrorCompatNotSupportedOnDevice",
        "the image's CUDA is newer than the node's driver, and the compat libraries that bridge this do not work on "
        "this GPU",
        "Update the node's driver, use an image for the driver's CUDA (image.use, image.base), or keep the folder "
        "/usr/local/cuda/compat out of LD_LIBRARY_PATH.",
        source="cuda.h: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE; vllm-project/vllm#4940",
    ),
    Cause(
        r"NVIDIA driver on your system is too old \(found version (\d{4,6})\)",
        source="torch/cuda/__init__.py, torch/csrc/cuda/Module.cpp",
        explain=_old_driver,
    ),
    Cause(
        r"This container was built for NVIDIA Driver Release ([\d.]{1,20}) or later,? but",
        "the image needs an NVIDIA driver {} or newer, and the node has an older one",
        DRIVER_OR_IMAGE,
        source="nvidia/entrypoint.d of the images of NGC",
        unless=r"compatibility mode is ENABLED",
    ),
    Cause(
        r"driver version is insufficient for (?:the )?CUDA runtime|cudaErrorInsufficientDriver|[Ee]rror 35\b",
        "the node's driver is older than the image's CUDA needs, or its libcuda is not mounted into the container",
        "Compare nvidia-smi on the node with the image's CUDA: update the driver or use an image with an older CUDA "
        "(image.use); if nvidia-smi fails in the container, check `gpu` of the node in the inventory.",
        source="driver_types.h: cudaErrorInsufficientDriver",
        unless=CAUGHT,
    ),
    Cause(
        r"API call is not supported in the installed CUDA driver|cudaErrorCallRequiresNewerDriver",
        "the image uses a function of CUDA that the node's driver does not have yet",
        DRIVER_OR_IMAGE,
        source="driver_types.h: cudaErrorCallRequiresNewerDriver",
        unless=CAUGHT,
    ),
    Cause(
        r"Unsupported ?PTX|cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
        r"|provided PTX was compiled with an unsupported toolchain",
        "the image was built for a newer CUDA than the node's driver supports",
        "Use an image with an older CUDA (image.base or image.use), or update the driver.",
        source="cuda.h: cudaErrorUnsupportedPtxVersion",
    ),
    Cause(
        r"PTX JIT compiler library not found|cudaErrorJitCompilerNotFound|CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        "the driver's compiler for PTX (libnvidia-ptxjitcompiler) is not in the container",
        "Set NVIDIA_DRIVER_CAPABILITIES to compute,utility in serve.env; " + GPU_OF_NODE,
        source="driver_types.h: cudaErrorJitCompilerNotFound",
    ),
    Cause(
        r"PTX JIT compilation failed|cudaErrorInvalidPtx|CUDA_ERROR_INVALID_PTX",
        "the driver cannot compile a kernel of the image for this GPU: it was written for another architecture",
        BUILT_FOR_SPARK.format("the engine"),
        source="driver_types.h: cudaErrorInvalidPtx",
    ),
    Cause(
        r"Driver/library version mismatch|LibRmVersionMismatch|NVML/RM version mismatch|API mismatch: the client has"
        r"|NVML library version: ",
        "the node's driver was updated, and its kernel module is still the old one",
        "Reboot the node, then run `sparkops doctor`.",
        source="nvml.h: NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    ),
    Cause(
        r"GPU is lost|NVMLError_GpuIsLost|GPU requires re(?:start|set)|NVMLError_ResetRequired|fallen off the bus"
        r"|NVRM: Xid|NVML_ERROR_GPU_IS_LOST",
        "the GPU of the node is lost: it no longer answers its driver",
        REBOOT,
        source="nvml.h: NVML_ERROR_GPU_IS_LOST; NVIDIA/NVSentinel#155",
    ),
    Cause(
        r"NVMLError_DriverNotLoaded|Driver Not Loaded|couldn't communicate with the NVIDIA driver",
        "the NVIDIA driver is not loaded on the node",
        "Run nvidia-smi on the node; install or load the driver (sudo modprobe nvidia), or reboot.",
        source="nvml.h: NVML_ERROR_DRIVER_NOT_LOADED",
        unless=CAUGHT,
    ),
    Cause(
        r"Failed to initialize NVML: Unknown Error|NVMLError_Unknown\b",
        "the container has lost its access to the GPU (a reload of systemd on the node takes it away), or the driver "
        "is in a bad state",
        "Run `sparkops restart SERVICE`; if it happens again, set `gpu: cdi` in the inventory. If nvidia-smi fails on "
        "the node too, reboot it.",
        source="nvml.h: NVML_ERROR_UNKNOWN; NVIDIA/nvidia-container-toolkit#48",
        unless=CAUGHT,
    ),
    Cause(
        r"NVMLError_NotSupported",
        "the engine asks NVML for the GPU's own memory or state, which a Spark's GPU does not have: CPU and GPU share "
        "their memory",
        "Use a newer release of the engine (image.use), which asks CUDA instead.",
        source="nvml.h: NVML_ERROR_NOT_SUPPORTED",
        unless=CAUGHT,
    ),
    Cause(
        r"NVMLError_NoPermission|Insufficient Permissions$",
        "the container's user may not ask the driver for the GPU",
        GPU_OF_NODE,
        source="nvml.h: NVML_ERROR_NO_PERMISSION",
        unless=CAUGHT,
    ),
    Cause(
        r"NVMLError_InvalidArgument|NVMLError_NotFound",
        "the engine asks the driver for a GPU that the node most likely does not have, or in a way that it "
        "does not know",
        NODE_OF_ONE,
        source="nvml.h: NVML_ERROR_INVALID_ARGUMENT",
        unless=CAUGHT,
    ),
    Cause(
        r"libcuda\.so(?:\.1)?: cannot open shared object|Found no NVIDIA driver on your system"
        r"|libnvidia-ml\.so(?:\.1)?: cannot open shared object|NVMLError_LibraryNotFound|NVML Shared Library Not Found"
        r"|CUDA driver library \S{0,64} ?not found|NVIDIA Driver was not detected",
        "the container has no NVIDIA driver: the node's libraries and GPU are not mounted into it",
        GPU_OF_NODE,
        source="torch/csrc/cuda/Module.cpp; the dynamic loader",
        unless=CAUGHT + r"|Assuming|[Ss]tub",
    ),
    Cause(
        r"no CUDA-capable device is detected|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available"
        r"|No CUDA devices found",
        "CUDA finds no GPU in the container: its devices are not passed to it, or CUDA_VISIBLE_DEVICES hides them",
        GPU_OF_NODE + " Remove CUDA_VISIBLE_DEVICES from serve.env.",
        source="driver_types.h: cudaErrorNoDevice; torch/csrc/cuda/Module.cpp",
        unless=CAUGHT,
    ),
    Cause(
        r"invalid device ordinal|cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE|Invalid device id$",
        "the engine asks for more GPUs than the container has, or CUDA_VISIBLE_DEVICES names another one",
        NODE_OF_ONE,
        source="driver_types.h: cudaErrorInvalidDevice",
    ),
    Cause(
        r"device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable|all CUDA-capable devices are busy"
        r"|exclusive \(cannot be shared\)|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDeviceAlreadyInUse",
        "the driver gives this process no context on the GPU: another process holds the GPU alone (compute mode "
        "exclusive), or the device is in a bad state",
        "Check nvidia-smi on the node: stop the other process (sparkops stop), or set the compute mode with "
        "`sudo nvidia-smi -c DEFAULT`; else reboot the node.",
        source="driver_types.h: cudaErrorDevicesUnavailable",
    ),
    Cause(
        r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|\(error 802\)",
        "the driver of the node is not ready: a service of the driver (fabric manager, persistenced) does not run",
        "Start the services of the driver (systemctl status 'nvidia-*' on the node), or reboot it.",
        source="driver_types.h: cudaErrorSystemNotReady; gpustack/gpustack#1254",
    ),
    Cause(
        r"OS call failed or operation not supported on this OS|CUDA_ERROR_OPERATING_SYSTEM|cudaErrorOperatingSystem",
        "CUDA may not use the driver's device files in the container (/dev/nvidia-uvm, /dev/nvidiactl), or the kernel "
        "refuses a call",
        GPU_OF_NODE + " On the node: sudo nvidia-modprobe -u; dmesg.",
        source="driver_types.h: cudaErrorOperatingSystem; ggml-org/llama.cpp#7218",
    ),
    Cause(
        r"CUDA unknown error|CUDA error: unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN|[Ee]rror 999\b",
        "CUDA does not start in the container: the nvidia_uvm module or its device files are missing, or the driver of "
        "the node is in a bad state",
        "On the node: sudo nvidia-modprobe -u, nvidia-smi and dmesg, then reboot; " + GPU_OF_NODE,
        source="c10/cuda/CUDAFunctions.cpp; ggml-org/llama.cpp#7218, #1866",
        unless=CAUGHT,
    ),
    Cause(
        r"Cannot re-initialize CUDA in forked subprocess",
        "the engine forked a process after it had used CUDA, which CUDA does not allow",
        "Set VLLM_WORKER_MULTIPROC_METHOD=spawn in serve.env, and remove plugins or mods that use CUDA at import.",
        source="torch/cuda/__init__.py",
    ),
    Cause(
        r"CUDA (?:driver )?error: initialization error|cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED",
        "CUDA could not be initialized: the driver of the node is in a bad state, or the process was forked after CUDA "
        "had started",
        "Run nvidia-smi on the node, and reboot it if that fails; set VLLM_WORKER_MULTIPROC_METHOD=spawn in serve.env.",
        source="driver_types.h: cudaErrorInitializationError",
    ),
    Cause(
        r"CUDA (?:driver )?error: driver shutting down|cudaErrorCudartUnloading|CUDA_ERROR_DEINITIALIZED",
        "the process was ending when it used the GPU: what ended it stands above",
        "sparkops logs SERVICE",
        source="driver_types.h: cudaErrorCudartUnloading",
        of_others=True,
    ),
)
"""Of the driver, and of the container's access to the GPU."""

LIBRARIES: tuple[Cause, ...] = (
    Cause(
        r"PyTorch ([\d.]{1,20}) & CuDNN Compatibility Issue|PyTorch ([\d.]{1,20})\S{0,32} \| CuDNN [\d.]{1,20}$",
        "SGLang refuses torch {}{} with the cuDNN of the image, because that cuDNN is older than 9.15",
        "Add nvidia-cudnn-cu13 of 9.15 or newer to image.override, then build; for a text model set "
        "SGLANG_DISABLE_CUDNN_CHECK=1 in serve.env; or use a newer image.",
        source="sglang/srt/server_args.py",
    ),
    Cause(
        r"cuDNN version incompatibility: PyTorch was compiled {1,4}against (\([\d, ]{1,32}\)) but "
        r"(?:found runtime version|linked against) (\([\d, ]{1,32}\))",
        "torch was built with cuDNN {0} and loads cuDNN {1}, because a library path or a package of the image names "
        "another cuDNN",
        LIBRARY_PATH + " Or pin nvidia-cudnn in image.override.",
        source="torch/backends/cudnn/__init__.py",
    ),
    Cause(
        r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)|CUDNN_STATUS_VERSION_MISMATCH"
        r"|Unable to load any of \{?libcudnn|Could not load symbol cudnn|Cannot load symbol cudnn"
        r"|Could not load library libcudnn|[Ii]nvalid handle\. Cannot load symbol cudnn",
        "the parts of cuDNN in the image are of different versions, or one is missing: a library path mixes two "
        "installations",
        LIBRARY_PATH + " Or pin one nvidia-cudnn in image.override.",
        source="cuDNN 9: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
    ),
    Cause(
        r"CUDNN_STATUS_NOT_INITIALIZED|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        "cuDNN could not start: the memory is full, or it does not fit the driver or the other libraries of CUDA",
        "Free memory on the node (sparkops stop), lower gpu-memory-utilization or mem-fraction-static; "
        "otherwise: " + LIBRARY_PATH,
        source="cuDNN: CUDNN_STATUS_NOT_INITIALIZED",
    ),
    Cause(
        r"CUDNN_STATUS_(?:NOT_SUPPORTED|ARCH_MISMATCH|EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)"
        r"|No valid (?:cudnn )?engine configs|unable to find an engine to execute this computation",
        "the cuDNN of the image has no kernel that runs on this GPU with this model: it is too old, or of another CUDA "
        "than torch",
        "Use a newer image (image.use), or pin the nvidia-cudnn of this torch in image.override.",
        source="cuDNN; aten/src/ATen/native/cudnn/Conv_v8.cpp",
        unless=CAUGHT,
    ),
    Cause(
        r"CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED",
        "cuBLAS could not start: the memory is full, or the image loads another cuBLAS than torch was built with",
        "Free memory on the node (sparkops stop), lower gpu-memory-utilization or mem-fraction-static; "
        "otherwise: " + LIBRARY_PATH,
        source="aten/src/ATen/cuda/Exceptions.cpp",
        unless=CAUGHT,
    ),
    Cause(
        r"CUBLAS_STATUS_(?:INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED|MAPPING_ERROR|INTERNAL_ERROR)",
        "the cuBLAS that torch calls refuses the operation: a library path of the image loads a cuBLAS of another "
        "release than torch was built with, or it has no kernel for this type on this GPU",
        LIBRARY_PATH,
        source="aten/src/ATen/cuda/CUDABlas.cpp; vllm-project/vllm#35608",
        unless=CAUGHT,
    ),
    Cause(
        r"CUBLAS_STATUS_EXECUTION_FAILED",
        "a kernel of cuBLAS failed on the GPU: an earlier kernel damaged its memory, or the cuBLAS is of another "
        "release than torch was built with",
        FAULT_OF_KERNEL,
        source="aten/src/ATen/cuda/CUDABlas.cpp; vllm-project/vllm#18335",
        unless=CAUGHT,
    ),
    Cause(
        r"operator torchvision::\w{1,64} does not exist|Couldn't load custom C\+\+ ops",
        "the installed torchvision was built for another torch, so its operators did not load",
        TORCH_FAMILY.format("torchvision"),
        source="torchvision/extension.py, torchvision/_meta_registrations.py",
    ),
    Cause(
        r"Failed to load image Python extension",
        "the installed torchvision was built for another torch, so its operators did not load",
        TORCH_FAMILY.format("torchvision"),
        source="torchvision/io/image.py",
        beside=r"operator torchvision::\w{1,64} does not exist",
    ),
    Cause(
        r"PyTorch and (\w{1,32}) were compiled with different CUDA (?:major )?versions\. PyTorch has CUDA "
        r"[Vv]ersion[= ](\d[\d.]{0,9})\w?.{0,32}CUDA [Vv]ersion[= ](\d{1,3}\.\d{1,3})",
        "torch is built for CUDA {1}, and the installed {0} for CUDA {2}",
        TORCH_FAMILY,
        source="torchvision/extension.py, torchaudio/_extension",
        unless=CAUGHT,
    ),
    Cause(
        r"(/[^\s:]{1,256}\.so[\d.]{0,16}): undefined symbol: \w{0,8}(?:c10|3c10|2at|5torch|torch_|aoti_torch)",
        "{} was compiled for another torch than the one in the image",
        "Pin the package of that file, or torch, in image.override so that both fit, or use another image.",
        source="the dynamic loader",
        unless=CAUGHT + r"|Failed to load image Python extension",
    ),
    Cause(
        rf"undefined symbol: \w{{0,8}}{CUDA_LIBRARIES}|undefined symbol: \w{{1,128}}, version lib{CUDA_LIBRARIES}",
        "the image mixes libraries of two releases of CUDA: one that is loaded lacks a function that another one calls",
        LIBRARY_PATH,
        source="the dynamic loader",
        unless=CAUGHT,
    ),
    Cause(
        r"failed to open libnvrtc-builtins|NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "the NVRTC of the image lacks its part libnvrtc-builtins of the same release",
        "Pin nvidia-cuda-nvrtc to the CUDA of torch in image.override, or use another image; " + LIBRARY_PATH,
        source="NVRTC",
    ),
    Cause(
        r"Torch not compiled with CUDA enabled|libtorch_cuda\.so: cannot open shared object"
        r"|PyTorch (?:is|was) not (?:compiled|built) with CUDA|torch\.cuda\.is_available\(\) is False",
        "the torch in the image is a build for the CPU, or it sees no GPU",
        "Set image.torch.backend to a CUDA build such as cu130 and lock the recipe again, or use an image whose torch "
        "has CUDA; then `sparkops build`.",
        source="torch/cuda/__init__.py",
        unless=CAUGHT,
    ),
    Cause(
        r"Could not run '([\w:.]{1,128})' with arguments from the 'CUDA' backend",
        "the operator {} has no code for CUDA in this image: its package is a build for the CPU, or did not load",
        "Pin a build for CUDA of the package that has it in image.override, or use another image (image.use).",
        source="aten/src/ATen/core/dispatch/OperatorEntry.cpp",
    ),
    Cause(
        r"'_OpNamespace' '(\w{1,64})' object has no attribute '(\w{1,64})'",
        "the compiled part {0} of the image was built for another torch than the one in it, and did not load",
        "Use one image with torch and engine of one release (image.use), or take torch out of image.packages and "
        "image.override, then build and deploy again.",
        source="torch/_ops.py",
        beside=r"undefined symbol: _Z",
    ),
    Cause(
        r"'_OpNamespace' '(\w{1,64})' object has no attribute '(\w{1,64})'",
        "the compiled part of the image does not have the operator {0}.{1}: it did not load, was built without it for "
        "this GPU, or is of another release than the Python code",
        "Use one image with engine and kernels of one release (image.use), or build again; image.mods and "
        "image.override may have replaced one of them.",
        source="torch/_ops.py",
    ),
)
"""Of the libraries of CUDA and the packages around torch."""

KERNELS: tuple[Cause, ...] = (
    Cause(
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the torch in the image has no code for the Spark's GPU (sm_121)",
        "Use a torch for CUDA 13 (image.torch: cu130, or image.use), then build.",
        source="driver_types.h: cudaErrorNoKernelImageForDevice; torch/cuda/__init__.py",
        beside=r"with CUDA capability sm_\d{2,3}\w? is not compatible with the current PyTorch",
        unless=CAUGHT,
    ),
    Cause(
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "sgl-kernel in the image has no code for the Spark's GPU (sm_121)",
        "Use an SGLang image for the Spark (image.use), or pin the build of sgl-kernel for cu130 in image.override.",
        source="driver_types.h: cudaErrorNoKernelImageForDevice; sgl-project/sglang#24224",
        beside=r"[/.]sgl_kernel[/.]",
        unless=CAUGHT,
    ),
    Cause(
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the image has no code for this GPU (sm_121 of the Spark): torch or a compiled package was built for others",
        BUILT_FOR_SPARK.format("the package in the last frames of the traceback"),
        source="driver_types.h: cudaErrorNoKernelImageForDevice; gpustack/gpustack#2097",
        unless=CAUGHT,
    ),
    Cause(
        r"device kernel image is invalid|cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_IMAGE|CUDA_ERROR_INVALID_SOURCE"
        r"|invalid device function|cudaErrorInvalidDeviceFunction|named symbol not found|cudaErrorSymbolNotFound",
        "a compiled kernel does not fit this GPU or the loaded CUDA: it was built for another GPU or release, or a "
        "cached one is damaged",
        BUILT_FOR_SPARK.format("the engine") + " Remove the folder of compiled kernels if it is kept between starts.",
        source="driver_types.h: cudaErrorInvalidKernelImage, cudaErrorInvalidDeviceFunction",
        unless=CAUGHT,
    ),
    Cause(
        r"This kernel only supports sm(\w{2,5})",
        "a kernel of the image was built with a check that lets it run on sm_{} only, and the Spark's GPU is sm_121",
        BUILT_FOR_SPARK.format("the engine") + " Another quantization or linear-backend avoids the kernel.",
        source="csrc/cutlass_extensions/common.hpp of vLLM; eugr/spark-vllm-docker#143",
    ),
    Cause(
        r"[Aa]rch conditional MMA instruction used without targeting appropriate compute capability"
        r"|Attempting to use [\w ]{1,64} without CUTE_\w{1,64} enabled|without targeting sm\d{2,3}\w?",
        "a kernel of the image uses instructions that it was not compiled for: its build does not include sm_121a of "
        "the Spark's GPU",
        BUILT_FOR_SPARK.format("the engine") + " Another quantization or moe-backend avoids the kernel.",
        source="CUTLASS: include/cute/arch",
    ),
    Cause(
        r"FATAL: kernel `(\w{1,128})` is for sm(\d{2,3})-sm(\d{2,3}), but was built for sm(\d{2,3})",
        "the kernel {0} is for sm_{1} to sm_{2}, and the image was compiled for sm_{3}",
        "Use another attention-backend in serve.args, or a newer image (image.use).",
        source="aten/src/ATen/native/transformers/cuda/mem_eff_attention; dusty-nv/jetson-containers#1360",
    ),
    Cause(
        r"Int8 not supported on SM(\d{2,4})",
        "the model is quantized to INT8 (W8A8), and vLLM has no INT8 kernel for this GPU (SM{})",
        "Set model.id to an FP8, FP4 or AWQ checkpoint of this model.",
        source="csrc/quantization/w8a8/cutlass/c3x/scaled_mm_helper.hpp of vLLM",
    ),
    Cause(
        r"No (?:compiled|implemented) (\w{1,64}(?: \w{1,32}){0,3}) for (?:a |current |CUDA |the )?"
        r"[\w ]{0,64}(?:capability|SM)",
        "the image has no compiled kernel for this model's quantization on the Spark's GPU: {}",
        BUILT_FOR_SPARK.format("the engine") + " Or use a model with another quantization (model.id).",
        source="csrc/quantization/w8a8/cutlass/scaled_mm_entry.cu of vLLM; sgl-kernel/csrc/gemm of SGLang",
    ),
    Cause(
        r"No compiled (nvfp4 [\w ]{1,64})|Not compiled with (?:CUTLASS|FP4)|(\w{1,64}) requires? CUDA >= 12\.8",
        "the image was compiled without the FP4 kernels for this GPU: {}{}",
        BUILT_FOR_SPARK.format("the engine") + " Or use a model with another quantization (model.id).",
        source="csrc/quantization/fp4 of vLLM",
    ),
    Cause(
        r"cutlass.{0,200}Error Internal|[Cc]utlass error: |CUTLASS error|cutlass_\w{1,64}: .{0,100}failed",
        "a kernel of CUTLASS in the image does not run on this GPU with this model: it was built for another one of "
        "its family (sm_120), or needs more shared memory than it has",
        BUILT_FOR_SPARK.format("the engine") + " Or set another quantization, linear-backend or moe-backend.",
        source="csrc/cutlass_extensions of vLLM; vllm-project/vllm#30163",
        unless=CAUGHT,
    ),
    Cause(
        r"FlashAttention v3 Backend requires SM>=80 and SM<=90|'fa3' backend is not supported on Blackwell"
        r"|FlashAttention[ -]?3? (?:only supports|is only supported on) (?:Hopper|Ampere)|FA3 is only supported on"
        r"|FA[234] is only supported on devices|Sinks are only supported in FlashAttention 3",
        "the selected attention backend is FlashAttention 3, which is for Hopper GPUs and does not run on the Spark's "
        "(Blackwell)",
        "Set attention-backend (SGLang: triton or flashinfer; vLLM: TRITON_ATTN or FLASHINFER) and "
        "mm-attention-backend in serve.args, or leave them out.",
        source="sglang/srt/layers/attention/attention_registry.py; vllm/vllm_flash_attn/flash_attn_interface.py",
        unless=CAUGHT + r"|Cannot use FA",
    ),
    Cause(
        r"(FlashMLA(?: \w{1,16})?|TRTLLM M[LH]A backend(?: for \w{1,16})?|CUTLASS block FP8"
        r"|FlashInfer \w{1,16} FP8 GEMM|FlashInfer FP8 GEMM|FlashInfer DeepGEMM|FlashInfer GDN \w{1,16}"
        r"|MXFP8(?: \w{1,16}){0,3}|cutlass_fp8 MoE"
        r"|AITER backend|use_fp4_indexer_cache|Machete|CUTLASS W4A8|kv-cache-dtype nvfp4) "
        r"(?:is |are )?(?:only (?:supported|available|supports)|not (?:yet )?supported|requires?|requested via)",
        "the recipe or the model asks for {}, which does not run on the Spark's GPU",
        OTHER_KERNEL,
        source="sglang/srt/server_args.py, sglang/srt/layers/quantization/fp8_utils.py; vllm/v1/attention",
        unless=CAUGHT,
    ),
    Cause(
        r"Failed to find a kernel that can implement the (\w{1,32}) linear layer"
        r"|Forced (\w{1,16}) kernel (\w{1,64}) is not",
        "no kernel of this vLLM can run the model's quantized layers ({}{}) on this GPU",
        "Leave linear-backend and VLLM_DISABLED_KERNELS out of the recipe, use a newer image, or a model with another "
        "quantization (model.id).",
        source="vllm/model_executor/kernels/linear/__init__.py",
    ),
)
"""Of kernels that are not for this GPU."""

GRAPHS: tuple[Cause, ...] = (
    Cause(
        r"operation not permitted when stream is capturing|cudaErrorStreamCapture(?:Unsupported|Implicit|WrongThread)"
        r"|dependency created on uncaptured work in another stream|cudaErrorStreamCaptureIsolation"
        r"|operation would make the legacy stream depend on a capturing|cudaErrorStreamCaptureUnjoined",
        "the model's code does something that a CUDA graph does not permit (it waits for the GPU or uses another "
        "stream) while its graph is captured",
        PIECEWISE,
        source="driver_types.h: cudaErrorStreamCaptureUnsupported",
        unless=CAUGHT,
    ),
    Cause(
        r"operation failed due to a previous error during capture|cudaErrorStreamCaptureInvalidated",
        "the capture of a CUDA graph failed: an operation before it is not permitted there, or had an error",
        PIECEWISE,
        source="driver_types.h: cudaErrorStreamCaptureInvalidated",
        unless=CAUGHT,
    ),
    Cause(
        r"CUDA graph capturing detected at an inappropriate time"
        r"|Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"
        r"|Cannot copy between CPU and CUDA tensors during CUDA graph capture"
        r"|Attempted to call \w{1,64} during CUDA graph capture",
        "the model's code does something that a CUDA graph does not permit while its graph is captured",
        PIECEWISE,
        source="vllm/compilation/monitor.py; aten/src/ATen/cuda/CUDAGeneratorImpl.cpp",
        unless=CAUGHT,
    ),
)
"""Of the capture of CUDA graphs."""

MEMORY: tuple[Cause, ...] = (
    Cause(
        r"NVML_SUCCESS == .{1,64} INTERNAL ASSERT FAILED at .{1,128}CUDACachingAllocator",
        "the GPU's memory ran out, and torch could not ask NVML how much of it is used",
        "Free memory on the node (sparkops stop), or lower gpu-memory-utilization or mem-fraction-static.",
        source="c10/cuda/CUDACachingAllocator.cpp",
    ),
    Cause(
        r"Unrecognized (?:CachingAllocator|CUDA allocator) option: (\w{1,64})"
        r"|Error parsing PYTORCH_(?:CUDA_)?ALLOC_CONF|PYTORCH_(?:CUDA_)?ALLOC_CONF.{0,64}(?:[Ii]nvalid|[Uu]nknown)",
        "torch does not accept the value of PYTORCH_CUDA_ALLOC_CONF: {}",
        "Correct PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) in serve.env, or remove it.",
        source="c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp",
    ),
    Cause(
        r"incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments|Expandable segments are not compatible with",
        "expandable_segments in PYTORCH_CUDA_ALLOC_CONF does not go with an option of serve.args (sleep mode or a KV "
        "connector)",
        "Remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF in serve.env, or the option from serve.args.",
        source="vllm/config/vllm.py, vllm/device_allocator/cumem.py",
    ),
    Cause(
        r"CUDA error: (?:part or all of the requested memory range|resource already mapped)"
        r"|cudaErrorHostMemory(?:AlreadyRegistered|NotRegistered)",
        "two parts of the engine pin the same host memory, or one releases what it did not pin: a fault of "
        "this release with these arguments",
        "Leave the offloaded or hierarchical KV cache and KV connectors out of serve.args, or take another "
        "release (image.use).",
        source="cuda_runtime_api.h",
    ),
    Cause(
        r"cudaHost(?:Register|Alloc) failed|failed to pin memory",
        "host memory could not be pinned for the GPU: too little memory is free, or the limit of locked memory is too "
        "small",
        "Lower the size of the offloaded or hierarchical KV cache in serve.args (CPU and GPU share the memory), or "
        "leave it out.",
        source="vllm/v1/simple_kv_offload/cuda_mem_ops.py; driver_types.h",
        unless=r"may be slower",
    ),
    Cause(
        r"CUDA [Ee]rror:? ?\(?out of memory|CUDA driver error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|CUDA failed with error out of memory",
        "the memory of the node, which CPU and GPU share, is full",
        "Stop other programs on the node (nvidia-smi, docker ps, free -g), or let the engine take less: "
        "gpu-memory-utilization, mem-fraction-static, or a smaller context in serve.args.",
        source="driver_types.h: cudaErrorMemoryAllocation",
        unless=CAUGHT,
    ),
)
"""Of memory, where the engine has no cause of its own."""

FAULTS: tuple[Cause, ...] = (
    Cause(
        r"illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS"
        r"|misaligned address|cudaErrorMisalignedAddress|invalid (?:program counter|address space)"
        r"|operation not supported on global/shared address space",
        "a GPU kernel used memory that is not its own (illegal memory access): a fault of the engine's kernel, or of "
        "one of its libraries, with this model and these arguments",
        FAULT_OF_KERNEL,
        source="driver_types.h: cudaErrorIllegalAddress",
        unless=CAUGHT,
    ),
    Cause(
        r"an illegal instruction was encountered|cudaErrorIllegalInstruction|CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "a GPU kernel has an instruction that this GPU does not have: it was compiled for another GPU than sm_121",
        BUILT_FOR_SPARK.format("the engine") + " Or set another attention-backend or quantization.",
        source="driver_types.h: cudaErrorIllegalInstruction",
        unless=CAUGHT,
    ),
    Cause(
        r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT|Assertion `.{1,200}` failed\.?$",
        "a check in a GPU kernel failed (device-side assert), most often for an index that is out of range "
        "because tokenizer, draft or embedding do not fit the model",
        "Run `sparkops models verify`, check model.draft and the tokenizer; CUDA_LAUNCH_BLOCKING=1 in serve.env finds "
        "the kernel.",
        source="driver_types.h: cudaErrorAssert",
        unless=CAUGHT,
    ),
    Cause(
        r"unspecified launch failure|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED",
        "a GPU kernel crashed: a fault of the kernel with this model, or it was compiled for another GPU of the family "
        "(sm_120) and stops itself on the Spark (sm_121)",
        FAULT_OF_KERNEL,
        source="driver_types.h: cudaErrorLaunchFailure; eugr/spark-vllm-docker#143",
        unless=CAUGHT,
    ),
    Cause(
        r"too many resources requested for launch|cudaErrorLaunchOutOfResources|CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        r"|invalid configuration argument|cudaErrorInvalidConfiguration|Failed to set the allowed dynamic shared memory"
        r"|cudaFuncSetAttribute.{0,100}invalid argument",
        "a GPU kernel asks for more registers, threads or shared memory than the Spark's GPU has: it was written for a "
        "larger one",
        OTHER_KERNEL,
        source="driver_types.h: cudaErrorLaunchOutOfResources",
        unless=CAUGHT,
    ),
    Cause(
        r"the launch timed out and was terminated|cudaErrorLaunchTimeout|CUDA_ERROR_LAUNCH_TIMEOUT",
        "a GPU kernel ran too long and the driver ended it: the node's desktop shares the GPU, or the kernel hangs",
        "Stop the desktop on the node (sudo systemctl isolate multi-user.target), or " + REBOOT[0].lower() + REBOOT[1:],
        source="driver_types.h: cudaErrorLaunchTimeout",
    ),
    Cause(
        r"uncorrectable (?:ECC|NVLink) error|cudaErrorECCUncorrectable|hardware stack error|cudaErrorHardwareStackError"
        r"|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorContained|external device",
        "the hardware of the GPU or its memory reported an error",
        REBOOT,
        source="driver_types.h: cudaErrorECCUncorrectable",
        unless=CAUGHT,
    ),
    Cause(
        r"peer access is not supported|peer mapping resources exhausted|cudaErrorPeerAccessUnsupported",
        "the engine wants GPUs to read each other's memory, which Sparks cannot do",
        "Set disable-custom-all-reduce in serve.args.",
        source="driver_types.h: cudaErrorPeerAccessUnsupported",
        unless=CAUGHT,
    ),
    Cause(
        r"CUDA (?:driver )?error: operation not supported|cudaErrorNotSupported|CUDA_ERROR_NOT_SUPPORTED",
        "the engine uses a function of CUDA that the Spark's GPU or its driver does not have (such as memory shared "
        "between processes, or multicast)",
        "Remove sleep mode, symmetric memory and KV connectors from serve.args, set disable-custom-all-reduce, or "
        "update the node's driver.",
        source="driver_types.h: cudaErrorNotSupported",
        unless=CAUGHT,
    ),
    Cause(
        r"CUDA (?:driver )?error: (?:invalid argument|invalid resource handle|context is destroyed"
        r"|invalid device context)",
        "a call of CUDA got an invalid argument: a fault of the engine or a library in this image with these arguments",
        FAULT_OF_KERNEL,
        source="driver_types.h: cudaErrorInvalidValue",
        unless=CAUGHT,
    ),
)
"""Of kernels that fail while they run."""

CAUSES: tuple[Cause, ...] = (*DRIVER, *LIBRARIES, *KERNELS, *GRAPHS, *MEMORY, *FAULTS)
