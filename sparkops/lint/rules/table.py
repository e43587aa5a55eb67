"""The rules with requirement and reason, printed by `sparkops lint --rules` and in docs/lint.md."""

from __future__ import annotations

from sparkops.lint.finding import Rule
from sparkops.lint.rules import cuda, fetches, secret, syntax, torch

DOCKERFILE, RECIPE, BOTH = "Dockerfile", "recipe", "both"

RULES = (
    Rule(
        "syntax",
        DOCKERFILE,
        "Syntax that BuildKit accepts: instructions, flags and their values, numbers of arguments, closed quotes and "
        "heredocs, names of images and stages, ports and durations, unique parser directives. Of several unknown "
        "instructions only the first is a finding.",
        "An unclosed heredoc hides the rest of the file from every other rule.",
        syntax.check,
    ),
    Rule(
        "uv-timeout",
        DOCKERFILE,
        "`UV_HTTP_TIMEOUT` above 30 and `UV_HTTP_RETRIES` above 3 for every uv that downloads, by ENV or ARG of the "
        "stage or a parent stage; for pip `PIP_DEFAULT_TIMEOUT` above 15 and `PIP_RETRIES` above 5, or `--timeout` and "
        "`--retries`. Without them pip may install only tools such as uv.",
        "uv fails after 30 seconds without a byte, and CUDA wheels have hundreds of megabytes. A stage that starts "
        "from an image inherits nothing from earlier stages, and no RUN gets an ARG before the first FROM.",
        fetches.check_downloads,
    ),
    Rule(
        "torch-pin",
        DOCKERFILE,
        "The full version and build of torch (`torch==X.Y.Z+cu130`) in every stage for CUDA that installs "
        "torch, an engine, another package that needs torch, or a wheel: among its requirements, in an override or "
        "constraint file, or in a parent stage. `torch==X.Y.Z` without a build counts with "
        "`--torch-backend=cu130`, `UV_TORCH_BACKEND` or an index that ends in /cu130, given by flag, ENV or ARG; "
        "`auto` does not, because a build has no GPU. All stages pin the same torch. Not checked: images with a torch "
        "(vllm, sglang, torch or tensorrt in their name), images with an unknown name, stages that install a "
        "requirements file with unknown text, and stages for ROCm, CPUs, Jetsons or other accelerators.",
        "Without a build in the version the index decides which torch is installed, even one for the CPU, and no "
        "error appears before the engine starts. Extensions compiled for one torch do not load in another.",
        torch.check_pin,
    ),
    Rule(
        "torch-override",
        DOCKERFILE,
        "`--override` or `UV_OVERRIDE` for every `uv pip install` of an engine or a wheel in a stage for CUDA, also of "
        "one in a requirements file that the Dockerfile writes, with a "
        "file that pins torch and that the stage writes, copies, mounts or inherits; for pip, which has no overrides, "
        "`--constraint` or `PIP_CONSTRAINT`. Not needed with `--no-deps`, if the call pins torch and no other stage "
        "has an override, or if no torch is installed yet and a later call pins it. If the image has torch, only "
        "packages that require certain versions of it count "
        "(sparkops/lint/torch_needs.py). Of `*.whl` the wheels count that the stages put there; for pip not those of "
        "an engine whose requirements `use_existing_torch.py` has freed of torch. "
        "One finding for each kind of mistake in a stage.",
        "Wheels of engines allow a range of torch versions, or require another one. Without an override the resolver "
        "may silently replace torch for CUDA with torch for the CPU.",
        torch.check_override,
    ),
    Rule(
        "cuda-arch",
        BOTH,
        "`TORCH_CUDA_ARCH_LIST` for every build of vLLM or another package with CUDA code in an image for CUDA, an "
        "architecture of a Spark in every call of nvcc, and one in every `TORCH_CUDA_ARCH_LIST`, "
        "`FLASHINFER_CUDA_ARCH_LIST` and `CMAKE_CUDA_ARCHITECTURES`: 12.1a, 12.1, 12.1f, 12.0 or 12.0f.",
        "The GPU of a Spark is 12.1a. A build has no GPU to detect, and kernels for other architectures "
        "do not run on a Spark, or only as PTX, which an older driver rejects.",
        cuda.check,
    ),
    Rule(
        "secret",
        BOTH,
        "No ENV, ARG or variable of a RUN with secret, token, password or key in its name, no text that looks "
        "like a key, and no COPY of .env, private keys or credential files.",
        "Everyone who can pull the image can read ENV, ARG and RUN in its history. A recipe is "
        "committed, and `docker inspect` shows its env.",
        secret.check,
    ),
    Rule(
        "latest",
        BOTH,
        "A version or a digest for every image of FROM, `COPY --from` and `RUN --mount=from`; not `latest`, not "
        "`nightly` without a commit, not a word such as `main` or `stable` alone. "
        "A bare name in `--from` may be a build context and is not checked.",
        "The same file builds another image later, and ranks built on different days differ.",
        fetches.check_image,
    ),
    Rule(
        "pipe-to-shell",
        DOCKERFILE,
        "No shell or interpreter that runs the output of curl or wget, by a pipe, `sh -c` or `<(...)`.",
        "It runs any reply of the server as root, even an incomplete one if the connection breaks.",
        fetches.check_pipe,
    ),
    Rule(
        "apt-lists",
        DOCKERFILE,
        "`rm -rf /var/lib/apt/lists/*` after `apt-get update` in the same RUN, or a mount there.",
        "A later RUN cannot remove them from the layer, and old lists install old packages.",
        fetches.check_apt,
    ),
    Rule(
        "git-pin",
        DOCKERFILE,
        "A commit or a tag for every `git clone` (by `--branch`, or a checkout after it), `git+` URL and ADD of a "
        "repository. A name with a version counts as a tag; a ref that is known only at build time is accepted.",
        "A branch moves: a later build uses an untested commit.",
        fetches.check_git,
    ),
    Rule(
        "model-revision",
        RECIPE,
        "A commit of 40 hex digits in `revision` of the model, or of each of its sources.",
        "Without a commit, weights, tokenizer, chat template and the code of `trust-remote-code` can change, and two "
        "nodes with downloads of different days may serve different models.",
    ),
    Rule(
        "missing-part",
        RECIPE,
        "The recipe's template and mods exist in templates/, and its values are valid in the template.",
        "Otherwise the build fails. Without a template no rule for Dockerfiles is checked.",
    ),
    Rule(
        "ignore-reason",
        BOTH,
        "A reason after every `# sparkops: ignore=RULE`. Without one it has no effect.",
        "A later reader needs it to decide whether the ignore is still valid.",
    ),
    Rule(
        "ignore-unused",
        BOTH,
        "Every `# sparkops: ignore=RULE` has a known rule and covers a finding.",
        "An ignore without a finding would hide a later one.",
    ),
)
NAMES = tuple(rule.name for rule in RULES)
