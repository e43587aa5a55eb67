"""Every rule with its requirement and reason, the source of docs/lint.md and `sparkops lint --rules`."""

from __future__ import annotations

from sparkops.lint.finding import Rule
from sparkops.lint.rules import commands, cuda, images, network, secret, syntax, torch

DOCKERFILE, RECIPE, BOTH = "Dockerfile", "recipe", "both"

RULES = (
    Rule(
        "syntax",
        DOCKERFILE,
        "Syntax that BuildKit accepts: instructions, flags and their values, numbers of arguments, closed quotes and "
        "heredocs, names of images and stages, ports and times, unique parser directives. Of several unknown "
        "instructions only the first is a finding: the others follow from it.",
        "A heredoc that never ends swallows the rest of the file, and every other rule would be silent about it.",
        syntax.check,
    ),
    Rule(
        "uv-timeout",
        DOCKERFILE,
        "`UV_HTTP_TIMEOUT` above 30 and `UV_HTTP_RETRIES` above 3 in the environment of every uv that fetches, by ENV "
        "or ARG of the stage itself or of a stage that it begins with; for pip `PIP_DEFAULT_TIMEOUT` above 15 and "
        "`PIP_RETRIES` above 5, or `--timeout` and `--retries`. pip may install only tools such as uv without them.",
        "uv fails after 30 seconds without a byte, and CUDA wheels have hundreds of megabytes. A stage that begins "
        "with FROM IMAGE inherits nothing from earlier stages, and an ARG before the first FROM reaches no RUN.",
        network.check,
    ),
    Rule(
        "torch-pin",
        DOCKERFILE,
        "One whole version of torch and its build (`torch==X.Y.Z+cu130`) in every stage for CUDA that installs "
        "torch, an engine, another package that needs torch, or a wheel; among its requirements, in a file that an "
        "override or constraint names, or in a stage that it begins with. `torch==X.Y.Z` without build counts with "
        "`--torch-backend=cu130`, `UV_TORCH_BACKEND` or an index that ends in /cu130, given by flag, ENV or ARG; "
        "`auto` does not: a build sees no GPU. All stages name the same torch. Images that have a torch (vllm, "
        "sglang, torch, tensorrt in their name), images with an unknown name, stages that install a requirements "
        "file with unknown text, and stages for ROCm, CPUs, Jetsons or other accelerators are not checked.",
        "Without the build in its version, the index decides which torch is installed, even one for the CPU, and no "
        "error appears before the engine starts. Extensions compiled for one torch do not load in another.",
        torch.check_pin,
    ),
    Rule(
        "torch-override",
        DOCKERFILE,
        "`--override` or `UV_OVERRIDE` on every `uv pip install` of an engine or a wheel in a stage for CUDA, naming a "
        "file that pins torch and that the stage has: written there, copied, mounted, or from a stage that it begins "
        "with. pip knows no override; there it is `--constraint` or `PIP_CONSTRAINT`. `--no-deps` needs neither, nor "
        "does a call that pins torch itself, unless another stage has an override. If the image already has torch, "
        "only packages that require certain versions of it count (sparkops/lint/torch_needs.py), and no `*.whl` if a "
        "stage of the file runs `use_existing_torch.py`. "
        "One finding for each mistake in a stage.",
        "Wheels of engines allow a range of torch versions, or require another one. Without an override the resolver "
        "may silently replace torch for CUDA with torch for the CPU.",
        torch.check_override,
    ),
    Rule(
        "cuda-arch",
        BOTH,
        "`TORCH_CUDA_ARCH_LIST` wherever vLLM or another package with CUDA code is built in an image for CUDA, an "
        "architecture that runs on a Spark on every call of nvcc, and one in every `TORCH_CUDA_ARCH_LIST`, "
        "`FLASHINFER_CUDA_ARCH_LIST` and `CMAKE_CUDA_ARCHITECTURES`: 12.1a, 12.1, 12.1f, 12.0 or 12.0f.",
        "The GPU of a Spark is 12.1a. A build machine has no such GPU to detect, and kernels for other architectures "
        "do not run there, or run as PTX that an older driver refuses.",
        cuda.check,
    ),
    Rule(
        "secret",
        BOTH,
        "No ENV, ARG or variable of a RUN with secret, token, password or key in its name, no text that looks "
        "like a key, and no COPY of .env, private keys or files of credentials.",
        "ENV, ARG and RUN stay in the image's history, readable for anyone who can pull the image. A recipe is "
        "committed, and `docker inspect` shows its env.",
        secret.check,
    ),
    Rule(
        "latest",
        BOTH,
        "A version or a digest on every image of FROM, `COPY --from` and `RUN --mount=from`; not `latest`, not "
        "`nightly` without a commit, not a word such as `main` or `stable` alone. "
        "A bare name in `--from` may be a build context and is not checked.",
        "The same file builds a different image later, and ranks built on different days do not match.",
        images.check,
    ),
    Rule(
        "pipe-to-shell",
        DOCKERFILE,
        "No output of curl or wget is run by a shell or interpreter, through a pipe, `sh -c` or `<(...)`.",
        "It runs any reply of the server as root, and a part of it if the connection breaks.",
        commands.check_pipe,
    ),
    Rule(
        "apt-lists",
        DOCKERFILE,
        "`rm -rf /var/lib/apt/lists/*` after `apt-get update` in the same RUN, or a mount there.",
        "A later RUN cannot remove them from the layer, and old lists install old packages.",
        commands.check_apt,
    ),
    Rule(
        "git-pin",
        DOCKERFILE,
        "A commit or a tag for every `git clone` (by `--branch`, or a checkout after it), `git+` URL and ADD of a "
        "repository. A name with a version in it counts as a tag; a ref that is only known at build time counts too.",
        "A branch moves: later builds use a commit that was not tested.",
        commands.check_git,
    ),
    Rule(
        "model-revision",
        RECIPE,
        "A commit of 40 hex digits in `revision` of the model, or of each of its sources.",
        "Without a commit, weights, tokenizer, chat template and the code of `trust-remote-code` can change. Two nodes "
        "with downloads of different days would serve different models.",
    ),
    Rule(
        "missing-part",
        RECIPE,
        "The template and every mod that the recipe names are in templates/, and its values are valid there.",
        "The build fails otherwise. Without a template no rule for Dockerfiles is checked.",
    ),
    Rule(
        "ignore-reason",
        BOTH,
        "A reason after every `# sparkops: ignore=RULE`. Without one it ignores nothing.",
        "A later reader needs it to decide whether the ignore is still valid.",
    ),
    Rule(
        "ignore-unused",
        BOTH,
        "Every `# sparkops: ignore=RULE` names a known rule and hits a finding.",
        "An ignore that outlived its finding would hide the next one.",
    ),
)
NAMES = tuple(rule.name for rule in RULES)
