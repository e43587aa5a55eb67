"""Make a checkpoint out of `base`, with tensors of `donor` that it lacks.

So a checkpoint gets the weights of multi-token prediction back that its quantization left out. Whole files of the
donor are linked where all their tensors are wanted; from others only the wanted tensors are written. Files that the
donor's index does not name are looked through as well, so a checkpoint can be its own donor: then its index is mended.

    tensors   regular expression; a tensor of `donor` whose name it finds is added (default: a part of the name is mtp)
    count     how many tensors of the donor must have such a name; another number ends the step
    config    a change to config.json: mappings are merged, null takes a key away
"""

from __future__ import annotations

import shards
import step

MTP = r"(^|\.)mtp\."


def main():
    """Check everything, then write."""
    making = shards.begin("tensors", "count")
    base, donor, args = making.inputs["base"], making.inputs["donor"], making.args
    donor.read_overlooked()  # publishers have left them out of an index
    expression = args.get("tensors", MTP)
    matching = set(filter(step.finder(expression), donor.tensors))
    if not matching:
        step.refuse(f"no tensor of the donor has a name like {expression}")
    if args.get("count") not in (None, len(matching)):
        step.refuse(f"{len(matching)} tensors of the donor have such a name, expected {args['count']}")
    added = matching - set(base.tensors)
    step.say(f"{len(added)} tensors are added, {len(matching) - len(added)} are there already")
    for shard in sorted(set(base.shard.values())):
        making.take(base, shard)
    for shard in sorted({donor.shard[name] for name in added}):
        add(making, base, donor, shard, added)
    step.finish(lambda: making.run(base, lambda config: None))


def add(making, base, donor, shard, added):
    """One file of the donor: all of it, or what is wanted of it. No name is taken twice."""
    names = donor.of_shard(shard)
    name = shard if shard not in set(base.shard.values()) else f"added-{shard}"
    if added.issuperset(names):
        making.take(donor, shard, name)
    else:
        making.write(f"added-{shard}", {tensor: donor.tensors[tensor] for tensor in names if tensor in added})


main()
