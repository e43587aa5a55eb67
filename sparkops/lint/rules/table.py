"""Every rule with its requirement and reason, the source of docs/lint.md and `sparkops lint --rules`."""

from __future__ import annotations

from sparkops.lint.finding import Rule
from sparkops.lint.rules import commands, cuda, images, network, secret, syntax, torch

DOCKERFILE, RECIPE, BOTH = "Dockerfile", "recipe", "both"

RULES = (
    Rule(
        "syntax",
        DOCKERFILE,
        "What BuildKit can read: known instructions and flags with their values, numbers of arguments, quotes and "
        "heredocs that end, names of images and stages, ports and times, parser "
        "directives that stand once. Of several unknown instructions only the first is a finding: "
        "the others follow from it.",
        "A heredoc that never ends swallows the rest of the file, and every other rule would be silent about it.",
        syntax.check,
    ),
    Rule(
        "uv-timeout",
        DOCKERFILE,
        "`UV_HTTP_TIMEOUT` above 30 and `UV_HTTP_RETRIES` above 3 in the environment of every uv that fetches, by ENV "
        "or ARG of the stage itself or of a stage that it begins with; for pip `PIP_DEFAULT_TIMEOUT` above 15 and "
        "`PIP_RETRIES` above 5, or `--timeout` and `--retries`. pip may install only tools such as uv without them.",
        "uv gives up after 30 seconds without a byte, and CUDA wheels have hundreds of megabytes. A stage that begins "
        "with FROM IMAGE has nothing of the stages above it, and an ARG before the first FROM reaches no RUN.",
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
        "sglang, torch, tensorrt in their name), images whose name is not known, stages that install a requirements "
        "file whose text is not known, and stages for ROCm, CPUs, Jetsons or other accelerators are left alone.",
        "Without the build in its version, torch comes as whatever the index has first, also as the CPU's, and nothing "
        "fails before the engine starts. Extensions compiled for one torch do not load in another.",
        torch.check_pin,
    ),
    Rule(
        "torch-override",
        DOCKERFILE,
        "`--override` or `UV_OVERRIDE` on every `uv pip install` of an engine or a wheel in a stage for CUDA, naming a "
        "file that pins torch and that the stage has: written there, copied, mounted, or from a stage that it begins "
        "with. pip knows no override; there it is `--constraint` or `PIP_CONSTRAINT`. `--no-deps` needs neither, nor "
        "does a call that pins torch itself, unless another stage has an override. Where a torch is there already, "
        "only packages that ask for certain versions of it count (sparkops/lint/torch_needs.py), and no `*.whl` if a "
        "stage of the file runs `use_existing_torch.py`. "
        "One finding for each slip of a stage.",
        "Wheels of engines ask for torch loosely, or for another one. Without an override the resolver is free to put "
        "the CPU's torch in place of CUDA's, without a word.",
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
        "No ENV, ARG or variable of a RUN whose name says secret, token, password or key, no text anywhere that looks "
        "like a key, and no COPY of .env, private keys or files of credentials.",
        "ENV, ARG and RUN stay in the image's history: whoever can pull the image reads them. A recipe is "
        "committed, and `docker inspect` shows its env.",
        secret.check,
    ),
    Rule(
        "latest",
        BOTH,
        "A version or a digest on every image of FROM, `COPY --from` and `RUN --mount=from`; not `latest`, not "
        "`nightly` without a commit, not a word such as `main` or `stable` alone. "
        "A bare name in `--from` may be a build context, and is left alone.",
        "The same file would build another image tomorrow, and ranks built on different days would not match.",
        images.check,
    ),
    Rule(
        "pipe-to-shell",
        DOCKERFILE,
        "Nothing that curl or wget prints goes into a shell or interpreter, by pipe, `sh -c` or `<(...)`.",
        "It runs as root whatever the server sends on that day, and half of it if the connection breaks.",
        commands.check_pipe,
    ),
    Rule(
        "apt-lists",
        DOCKERFILE,
        "`rm -rf /var/lib/apt/lists/*` after `apt-get update` in the same RUN, or a mount there.",
        "A later RUN cannot take them out of the layer, and a build that finds old lists installs old packages.",
        commands.check_apt,
    ),
    Rule(
        "git-pin",
        DOCKERFILE,
        "A commit or a tag for every `git clone` (by `--branch`, or a checkout behind it), `git+` URL and ADD of a "
        "repository. A name with a version in it counts as a tag; a ref that is only known at build time counts too.",
        "A branch is another commit tomorrow: what was tested is not what is built.",
        commands.check_git,
    ),
    Rule(
        "model-revision",
        RECIPE,
        "A commit of 40 hex digits in `revision` of the model, or of each of its sources.",
        "The repository of a model changes under its name: weights, tokenizer, chat template, and the code that "
        "`trust-remote-code` runs. Two nodes that were filled on different days would serve different models.",
    ),
    Rule(
        "missing-part",
        RECIPE,
        "The template and every mod that the recipe names are in templates/, and its values fit in there.",
        "The build would stop at it. Without a template none of the rules for Dockerfiles has been looked at.",
    ),
    Rule(
        "ignore-reason",
        BOTH,
        "A reason behind every `# sparkops: ignore=RULE`. Without one it ignores nothing.",
        "Who reads it later has to know whether it still holds.",
    ),
    Rule(
        "ignore-unused",
        BOTH,
        "Every `# sparkops: ignore=RULE` names a known rule and hits a finding.",
        "An ignore that outlived its finding would hide the next one.",
    ),
)
NAMES = tuple(rule.name for rule in RULES)
