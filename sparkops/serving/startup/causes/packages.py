"""Known causes of failed starts: Python packages and shared libraries of an image."""

from __future__ import annotations

import re

from sparkops.engines.causes import Advice, Cause

REBUILD = "then build and deploy again."
HARMLESS = (
    r"[Ii]gnor(?:e|ing)|[Ff]all(?:ing)? ?back|[Ff]ailed to load plugin|[Ss]kipp|[Ww]arning:|\[Optional\]"
    r"|[Ff]ailed to import [Tt]riton kernels|Failed to load image Python"
)
ONE_RELEASE = (
    "Take {} out of image.packages and image.override so that the release comes that the engine requires, or pin that "
    "release there; lock the recipe again if it has a lock; then build and deploy again."
)
ONE_TORCH = (
    "Take torch out of image.packages and image.override, or pin torch and the package (vLLM, sglang-kernel, "
    "flash-attn) to releases that belong together, or take the finished image of the engine (image.use); then build "
    "and deploy again."
)
ONE_CUDA = (
    "Take packages and base for one CUDA: wheels for CUDA 13 (cu130; image.vllm, image.packages, image.torch) and a "
    "base with its libraries (image.base), or the finished cu130 image (image.use); then build and deploy again."
)
ARM = "Take an image for linux/arm64 (image.use or image.base; docker manifest inspect shows its platforms), " + REBUILD
COMMON_OPS = "sgl_kernel/load_utils.py"
DLOPEN = "glibc elf/dl-load.c"
OF_UBUNTU = {
    "libnuma": "libnuma1",
    "libGL": "libgl1",
    "libEGL": "libegl1",
    "libglib-2.0": "libglib2.0-0t64",
    "libgthread-2.0": "libglib2.0-0t64",
    "libSM": "libsm6",
    "libXext": "libxext6",
    "libXrender": "libxrender1",
    "libgomp": "libgomp1",
    "libstdc++": "libstdc++6",
    "libibverbs": "libibverbs1",
    "librdmacm": "librdmacm1t64",
    "libmlx5": "ibverbs-providers",
    "libnl-3": "libnl-3-200",
    "libnl-route-3": "libnl-route-3-200",
    "libmpi": "libopenmpi3t64",
    "libcurl": "libcurl4t64",
    "libssl": "libssl3t64",
    "libcrypto": "libssl3t64",
    "libsndfile": "libsndfile1",
    "libopenblas": "libopenblas0",
    "libaio": "libaio1t64",
    "liburing": "liburing2",
    "libtbb": "libtbb12",
    "libhwloc": "libhwloc15",
    "libunwind": "libunwind8",
    "libpciaccess": "libpciaccess0",
    "libtcmalloc_minimal": "libtcmalloc-minimal4t64",
    "libjemalloc": "libjemalloc2",
    "libavutil": "ffmpeg",
    "libavcodec": "ffmpeg",
    "libavformat": "ffmpeg",
    "libzmq": "libzmq5",
    "libvulkan": "libvulkan1",
}
"""The package of Ubuntu 24.04 that has a library."""


def _no_library(match: re.Match[str], _: str) -> Advice:
    name = match[1]
    package = OF_UBUNTU.get(name.partition(".so")[0])
    add = f"Add {package} to image.apt" if package else "Find its package (apt-file search) and add it to image.apt"
    cause = f"the image lacks the shared library {name}, which a program or package in it needs"
    return Advice(cause, f"{add}, or take an image that has it (image.base, image.use); {REBUILD}")


CAUSES: tuple[Cause, ...] = (
    Cause(
        r"Could not load libtorchcodec",
        "torchcodec was built for another release of torch than the one in the image",
        "Pin the torchcodec of this torch in image.packages, or take it out with image.remove; then build and "
        "deploy again.",
        source="torchcodec/_internally_replaced_utils.py",
        beside=r"libtorchcodec\S{0,64}: undefined symbol",
    ),
    Cause(
        r"Could not load libtorchcodec",
        "torchcodec cannot load its library, because the image has no FFmpeg whose libraries (libavutil) it can use",
        "Add ffmpeg to image.apt, or take torchcodec out with image.remove; then build and deploy again.",
        source="torchcodec/_internally_replaced_utils.py",
        beside=r"lib(?:avutil|avcodec|avformat|avdevice|avfilter|swscale|swresample)\.so[.\d]{0,8}: cannot open",
    ),
    Cause(
        r"Could not load libtorchcodec",
        "torchcodec cannot load its library: FFmpeg is missing in the image, torch is of another release, or "
        "another library is missing, as the exceptions below it say",
        "Add ffmpeg to image.apt, pin the torchcodec of this torch, or take torchcodec out with image.remove; "
        "then build and deploy again.",
        source="torchcodec/_internally_replaced_utils.py",
    ),
    Cause(
        r"Router\.__init__\(\) got an unexpected keyword argument '(\w{1,64})'",
        "starlette in the image is newer than its fastapi, which still passes {}, removed from starlette",
        "Pin a starlette below 1.0 in image.override, or a newer fastapi in image.packages; then build and "
        "deploy again.",
        source="starlette/routing.py",
    ),
    Cause(
        r"Attempting to import zmq Cython backend, which has not been compiled",
        "pyzmq in the image is damaged: its compiled part is missing, or is for another Python",
        "Install it again: pyzmq in image.packages with a version; then build and deploy again.",
        source="zmq/backend/cython/__init__.py",
    ),
    Cause(
        r"module '(cuda\.bindings\.\w{1,64})' has no attribute",
        "{} in the image is another release than the engine needs: cuda-python overwrote that of "
        "cuda-bindings with an older one, or an old cuda-bindings is installed",
        "Add cuda-python to image.remove of the recipe, or pin both to one version in image.override; lock the recipe "
        "again if it has a lock; then build and deploy again.",
        source="cuda-python up to 12.6 has its own cuda/bindings",
    ),
    # The image and its programs.
    Cause(
        r"[Ee]xec format error|cannot execute binary file|wrong ELF class|ld-linux-x86-64\.so\.2",
        "the image or a program in it was built for another processor (x86-64, amd64), and a Spark is arm64 "
        "(aarch64); or a script in it does not begin with #! and its interpreter",
        ARM,
        source="runc; bash",
    ),
    Cause(
        r"Illegal instruction|SIGILL",
        "a program or library of the image was built for another CPU, with instructions that the cores of the GB10 do "
        "not have",
        "Build the image on a Spark (sparkops build; llama.cpp with GGML_NATIVE=OFF), or take the official image for "
        "arm64 (image.use).",
        source="bash (signal 4)",
    ),
    Cause(
        r"exec: \"?(vllm|sglang|llama-server|python3?)\"?: (?:executable file )?not found"
        r"|(?<![\w.-])(vllm|sglang|llama-server): (?:command )?not found"
        r"|No such file or directory: '((?:[\w./-]{0,64}/)?(?:vllm|sglang|llama-server))'"
        r"|python\S{0,8}: No module named (vllm|sglang)$|Failed to spawn: `(?:vllm|sglang)`"
        r"|Error while finding module specification for '(vllm|sglang)",
        "the image has no {0}{1}{2}{3}{4}, or it is not on PATH: it is an image without this server",
        "Set image.use to an image with the server, or name the release in image.vllm so that sparkops build installs "
        "it on image.base.",
        source="bash; Python",
    ),
    Cause(
        r"(?:^|[: ])(/[^\s:]{1,256}): cannot execute: required file not found"
        r"|(/[^\s:]{1,256}): [^\n]{0,64}bad interpreter"
        r"|exec (/[^\s:]{1,256}): no such file or directory",
        "the program {0}{1}{2} or the interpreter that its first line names (Python, bash) is missing in the image",
        "Build the image again (sparkops build) with the environment made by the image's own Python, or add the "
        "interpreter to image.apt; head -1 of the program names it. Lines that end in \\r\\n cause it too.",
        source="bash execute_cmd.c; runc",
    ),
    Cause(
        r"env: [^\w\s]{0,3}([\w.\\-]{1,64})[^\w\s]{0,3}: No such file or directory",
        "the first line of a program names {}, which is missing in the image; a \\r in it means lines that end in "
        "\\r\\n",
        f"Add it to image.apt (python3, python-is-python3), or correct the script of the mod, {REBUILD}",
        source="coreutils env",
    ),
    Cause(
        r"exec (?:failed: )?\"?(/[^\s:\"]{1,256})\"?: permission denied"
        r"|line \d{1,6}: (/[^\s:]{1,256}): Permission denied",
        "the program {0}{1} in the image is not executable, or its file system is mounted with noexec",
        f"Make it executable in the mod or image (chmod +x), {REBUILD}",
        source="runc; bash",
    ),
    Cause(
        r"can't open file '([^']{1,256})': \[Errno 2\]|No module named ([\w.]{1,128})$",
        "the image has no {0}{1}, which its start command runs",
        "Check image.use and image.mods: take an image that contains it, or build again.",
        source="Python",
        unless=r"^\w{0,64}Error:|" + HARMLESS,
    ),
    Cause(
        r"(?:line \d{1,6}: |/bin/sh: \d{1,4}: |bash: )([\w.+-]{1,64}): (?:command )?not found",
        "a script of the image or of a mod calls {}, which the image lacks",
        f"Add the package of {{}} to image.apt, or take the mod out of image.mods, {REBUILD}",
        source="bash; dash",
    ),
    Cause(
        r"Hunk #\d{1,4} FAILED|hunks? (?:FAILED|ignored)|[Rr]eversed \(or previously applied\) patch"
        r"|can't find file to patch"
        r"|error: patch failed|patch does not apply|Only garbage was found in the patch|malformed patch",
        "a patch of a mod was written for another release than the one in the image, or the release contains it "
        "already, so that it does not apply",
        "Take the mod out of image.mods, or take the release that it was written for (image.vllm, image.use), then "
        "build and deploy again.",
        source="GNU patch; git apply",
    ),
    Cause(
        r"No matching distribution found for ([^\s(]{1,128})|No solution found when resolving|ResolutionImpossible"
        r"|Could not find a version that satisfies the requirement ([^\s(]{1,128})",
        "the image installs a package at its start ({0}{1}) and finds no version that fits, or cannot reach the "
        "package index",
        "Add the package to image.packages so that sparkops build installs it, instead of a script at the start.",
        source="pip; uv",
    ),
    # Shared libraries.
    Cause(
        r"version `(GLIBC_[\d.]{1,16})' not found \(required by ([^)]{1,256})\)",
        "the image's system is older than the one that {1} was built on: its glibc has no {0}",
        "Take a base image with a newer system, such as Ubuntu 24.04 (image.base, image.use), " + REBUILD,
        source=DLOPEN,
    ),
    Cause(
        r"version `((?:GLIBCXX|CXXABI|GCC|GOMP)_[\w.]{1,16})' not found \(required by ([^)]{1,256})\)",
        "the C++ library of the image (libstdc++) is older than the one that {1} was built with: it has no {0}",
        "Take a base image with a newer system, such as Ubuntu 24.04 (image.base, image.use), or keep the library of "
        "conda out of LD_LIBRARY_PATH; then build and deploy again.",
        source=DLOPEN,
    ),
    Cause(
        r"version `?(lib(?:nvJitLink|cublas\w{0,4}|cudart|nvrtc|cusparse\w{0,4})\.so[.\d]{0,8})'? not found",
        "libraries of two CUDA versions meet in the image: one does not find its version of {}",
        "Keep /usr/local/cuda out of LD_LIBRARY_PATH (serve.env), and take the nvidia-* packages of torch's CUDA "
        "version (image.override); then build and deploy again.",
        source=DLOPEN,
    ),
    Cause(
        r"undefined symbol: (cu[A-Z]\w{1,64})",
        "the driver's libcuda.so has no {}: the package was built for a newer CUDA than the node's driver has, or the "
        "driver's library is not the one that is loaded",
        "Update the driver of the node (nvidia-smi shows its CUDA version), or take an image for its CUDA version.",
        source=DLOPEN,
    ),
    Cause(
        r"(\S{1,256}): undefined symbol: ((?:_Z\w{0,64}?(?:3c10|2at|5torch|N5torch|caffe2)|torch_|aoti_torch"
        r"|c10)\w{0,200})",
        "{0} was built for another release of torch than the one in the image (another version of its C++ ABI)",
        ONE_TORCH,
        source=DLOPEN,
        unless=HARMLESS,
    ),
    Cause(
        r"([^\s:]{1,256}): undefined symbol: (\w{1,200})",
        "{0} does not fit another library of the image, which is of another release: it has no {1}",
        "Take the packages of one release (image.vllm, image.use), and those added by hand out of image.packages and "
        "image.override; then build and deploy again.",
        source=DLOPEN,
        unless=HARMLESS,
    ),
    Cause(
        r"(lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti|nvrtc-builtins)\.so\.(1\d)\S{0,8}): cannot open shared",
        "a package in the image was built for CUDA {1}, and the image has no {0} of that CUDA, but another CUDA or "
        "none",
        ONE_CUDA,
        source=DLOPEN,
        unless=HARMLESS,
    ),
    Cause(
        r"(lib(?:cu(?:dnn|fft|rand|solver|sparse|file|tensor|tlass)\w{0,16}|nccl|nvshmem\w{0,8}|nvToolsExt|nvtx\w{0,4})"
        r"[\w-]{0,32}\.so[.\d]{0,16}): cannot open shared",
        "the image lacks a library of CUDA that one of its packages needs, or has it for another CUDA: {}",
        ONE_CUDA,
        source=DLOPEN,
        unless=HARMLESS,
    ),
    Cause(
        r"(libpython3\.\d{1,2}\.so\.1\.0): cannot open shared",
        "the image's Python is incomplete or another one: it has no {}",
        f"Add libpython3.12t64 (of the version in the name) to image.apt, or make the environment anew, {REBUILD}",
        source=DLOPEN,
    ),
    Cause(
        r"(lib[\w.+-]{1,64}\.so[.\d]{0,16}): cannot open shared object file",
        source=DLOPEN,
        unless=HARMLESS,
        explain=_no_library,
    ),
    Cause(
        r"(\S{1,256}\.so[.\d]{0,16}): (?:file too short|invalid ELF header|ELF load command|only ET_DYN)",
        "the library {} in the image is cut off or damaged, or it is no library for this processor",
        "Remove the image on the node (docker rmi) and bring it again with sparkops build or deploy.",
        source=DLOPEN,
    ),
    Cause(
        r"(\S{1,256}): cannot allocate memory in static TLS block",
        "{} was loaded too late: on arm64 the room for the variables of threads is used up by other libraries",
        "Set LD_PRELOAD in serve.env to that library, with its name in serve.allow, and deploy again.",
        source=DLOPEN,
    ),
    # Python packages.
    Cause(
        r"Could not load any common_ops library",
        "sglang-kernel (sgl_kernel) of the image was built for another release of torch than the one in it (another "
        "ABI)",
        ONE_TORCH,
        source=COMMON_OPS,
        beside=r"common_ops\S{0,64}: undefined symbol: \w{0,8}(?:c10|2at|5torch|torch_)",
        told_beside=True,
    ),
    Cause(
        r"Could not load any common_ops library",
        "sglang-kernel (sgl_kernel) of the image was built for another CUDA: its CUDA libraries are not in the image",
        ONE_CUDA,
        source=COMMON_OPS,
        beside=r"^- \w{0,32}Error: lib(?:cudart|cublas\w{0,4}|nvrtc|nvJitLink|cu\w{1,16})[\w-]{0,16}\.so[.\d]{0,8}"
        r": cannot",
        told_beside=True,
    ),
    Cause(
        r"Could not load any common_ops library",
        "sglang-kernel (sgl_kernel) needs a library of the system that the image lacks, as the root line says "
        "(most often libnuma.so.1)",
        "Add the package of the library that the log names (libnuma1) to image.apt, then build and deploy again.",
        source="odysseus-dev/odysseus#6257",
        beside=r"^- \w{0,32}Error: lib[\w.+-]{1,32}\.so[.\d]{0,8}: cannot open shared",
        told_beside=True,
    ),
    Cause(
        r"Could not load any common_ops library",
        "sglang-kernel (sgl_kernel) was built for a newer CUDA than the node's driver has: libcuda.so lacks a function",
        "Update the driver of the node (nvidia-smi shows its CUDA version), or take an image for its CUDA version.",
        source="sgl-project/sglang#8131",
        beside=r"common_ops\S{0,64}: undefined symbol: cu[A-Z]",
        told_beside=True,
    ),
    Cause(
        r"Could not load any common_ops library",
        "sglang-kernel (sgl_kernel) of the image has no compiled library that loads on this GPU and with this torch",
        "Pin sglang-kernel to the version that SGLang requires, for CUDA 13 (cu130) and arm64 (image.packages, "
        "image.override), or take the finished image of SGLang (image.use); then build and deploy again.",
        source=COMMON_OPS,
    ),
    Cause(
        r"No module named '(vllm\._\w{0,32}C\w{0,32}|vllm\.vllm_flash_attn\S{0,64}|sgl_kernel\.\S{1,64}"
        r"|flash_attn_\w{0,16}cuda)'",
        "the compiled part {} is missing in the image, because its package was built without it or for another Python",
        "Take the wheel of this release for arm64 and the image's Python (image.vllm, image.use), and take mods that "
        "copy files over it out of image.mods; then build and deploy again.",
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"No module named 'encodings'|Fatal Python error: (?:init_fs_encoding|Failed to import encodings)",
        "Python does not find its own library: PYTHONHOME or the virtual environment of the image names another place",
        "Remove PYTHONHOME and PYTHONPATH from serve.env, or build the image again (sparkops build).",
        source="Python",
    ),
    Cause(
        r"No module named '(pkg_resources|distutils|imp)(?:\.\w{1,64}){0,4}'",
        "a package in the image is too old for its Python or setuptools, in which {} was removed",
        "Pin setuptools==80.9.0 in image.packages, or take a newer release of the package that imports it; then build "
        "and deploy again.",
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"No module named '(?!transformers_modules)(\w{1,64})\.([\w.]{1,200})'",
        "the package {0} in the image is of another release than the code that imports it: it has no module {0}.{1}",
        ONE_RELEASE,
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"ModuleNotFoundError: No module named '(?!transformers_modules)([\w.]{1,256})'",
        "the image lacks a Python module that the engine imports: {}",
        "Add the package that has `{}` to image.packages, or remove it from image.remove; then build and deploy again.",
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"from partially initialized module '([\w.]{1,128})'"
        r"|partially initialized module '([\w.]{1,128})' has no attribute",
        "{0}{1} is imported while it is not complete: a file of a mod has its name or changed its imports, or "
        "packages of two releases meet",
        f"Take the mod out of image.mods, or correct it, {REBUILD}",
        source="Python",
    ),
    Cause(
        r"cannot import name '(\w{1,128})' from '(?!transformers_modules)(\w{1,64})([\w.]{0,128})'",
        "{1} in the image is of another release, older or newer, than the code that imports {0} from {1}{2} needs",
        ONE_RELEASE.replace("{}", "{1}"),
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"AttributeError: module '(\w{1,64})([\w.]{0,128})' has no attribute '(\w{1,128})'",
        "{0} in the image is of another release, older or newer, than the code that uses it: {0}{1} has no {2}",
        ONE_RELEASE,
        source="Python",
        unless=HARMLESS,
    ),
    Cause(
        r"Numba needs NumPy ([\d.]{1,16}) or less\. Got NumPy ([\d.]{1,16}\d)",
        "NumPy {1} in the image is newer than its numba supports (up to {0})",
        "Pin numpy to {0} in image.override, or take the package out of image.packages that brought it; then build "
        "and deploy again.",
        source="numba/__init__.py",
    ),
    Cause(
        r"numpy\.dtype size changed|numpy\._?core\.\w{1,32} failed to import"
        r"|Numpy is not available|was removed in the NumPy 2\.\d release"
        r"|binary incompatibility[^\n]{0,64}Expected \d{1,4} from C header",
        "a package in the image was compiled or written for another version of NumPy (1 or 2) than the one in it",
        "Pin numpy in image.override to the version that the engine requires, or take a newer release of the package "
        "that imports it; then build and deploy again.",
        source="numpy",
        unless=r"UserWarning|" + HARMLESS,
    ),
    Cause(
        r"(\S{1,128}) is required for a normal functioning of this module, but found (\S{1,128}\w)"
        r"|(\S{1,128}) is required,? but (\S{1,64}) is installed",
        "a package in the image has another version than the engine's packages require: {1}{3} instead of {0}{2}",
        "Take the package out of image.packages and image.override, or pin a version that fits {0}{2}; then build and "
        "deploy again.",
        source="transformers/utils/versions.py",
    ),
    Cause(
        r"No package metadata was found for ([\w.-]{1,128})|The '([^']{1,128})' distribution was not found"
        r"|PackageNotFoundError: ([\w.-]{1,128})$|DistributionNotFound",
        "the image lacks a Python package whose version the engine asks for: {0}{1}{2}",
        "Add it to image.packages, or remove it from image.remove; then build and deploy again.",
        source="importlib.metadata; transformers/utils/versions.py",
        unless=HARMLESS,
    ),
    Cause(
        r"^(?:\w{1,32}\.){0,6}\w{0,64}(?:Error|Exception): (?=[^\n]{0,400}(?:[Ii]nstall|[Rr]equire|missing"
        r"|not available))"
        r"[^\n]{0,400}pip3? install (?:-{1,2}[\w-]{1,32} ){0,4}[`'\"]?([A-Za-z][\w.-]{1,64})",
        "a setting or the model needs a Python package that the image lacks or has too old: {}",
        "Add {} to image.packages, or leave out the setting that needs it in serve.args; then build and deploy again.",
        source="vllm/model_executor; sglang/srt",
        unless=HARMLESS,
    ),
    Cause(
        r"installed pydantic-core version \(([^)]{1,32})\) is incompatible with the current pydantic "
        r"version, which requires (\S{1,32}\w)",
        "pydantic-core {0} in the image does not fit its pydantic, which requires {1}",
        "Pin pydantic-core to {1} in image.override, or take pydantic out of image.packages; then build and deploy "
        "again.",
        source="pydantic/version.py",
    ),
    Cause(
        r"Descriptors cannot be created directly|incompatible Protobuf Gencode/Runtime versions",
        "protobuf in the image is of another version than the one that a package's generated code needs",
        "Pin protobuf in image.override to the version that the engine requires, " + REBUILD,
        source="protobuf",
    ),
    Cause(
        r"externally-managed-environment",
        "the image installs a package at its start, and pip refuses to change the system's Python",
        "Add the package to image.packages so that sparkops build installs it, instead of a script at the start.",
        source="pip",
    ),
    Cause(
        r"^(?:SyntaxError|IndentationError|TabError): ([^\n]{1,160})",
        "a Python file of the image is not valid: a mod or patch damaged it, or it is for a newer Python ({})",
        "Take the mod out of image.mods or correct it, then build and deploy again.",
        source="Python",
    ),
    Cause(
        r"^TypeError: ([\w.<>]{1,128})\(\) (?:got an unexpected keyword argument '(\w{1,64})'"
        r"|missing \d{1,2} required)",
        "two packages of the image are of different releases, a mod does not fit, or serve.args passes an unknown "
        "key: {0} does not take what it gets ({1})",
        "Take packages added by hand out of image.packages and image.override, and mods for other releases out of "
        "image.mods; then build and deploy again.",
        source="Python",
        unless=HARMLESS,
    ),
)
