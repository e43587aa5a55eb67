"""Make a checkpoint out of `base`, with some of its tensors replaced by those of `donor`.

So a hybrid of two quantizations is made: the experts stay INT4 as `base` has them, and dense layers that `base` left in
BF16 become FP8 with the scales that the publisher of `donor` calibrated. The engine must be able to read such a mix.

    tensors       regular expression; a tensor of `base` whose name it finds is replaced
    with          names that a replaced tensor's sibling has in `donor` and that come along, such as weight_scale_inv
    count         how many tensors must be replaced; another number ends the step
    extra-config  what quantization_config.extra_config of config.json says of each replaced layer
    config        a change to config.json: mappings are merged, null takes a key away
"""

from __future__ import annotations

import shards
import step


def main():
    """Check everything, then write."""
    making = shards.begin("tensors", "with", "count", "extra-config")
    base, donor, args = making.inputs["base"], making.inputs["donor"], making.args
    if not isinstance(args.get("tensors"), str):
        step.refuse("the argument `tensors` is missing: a regular expression")
    chosen = set(filter(step.finder(args["tensors"]), base.tensors))
    check(base, donor, chosen, args)
    coming = {sibling for name in chosen for sibling in siblings(name, args.get("with", []))}
    for shard in sorted(set(base.shard.values())):
        names = base.of_shard(shard)
        if (chosen | coming).isdisjoint(names):
            making.take(base, shard)
        elif replaced := dict(tensors(base, donor, names, chosen, coming)):
            making.write(shard, replaced)

    def edit(config):
        if args.get("extra-config"):
            extra = config.setdefault("quantization_config", {}).setdefault("extra_config", {})
            for name in sorted(chosen):
                extra[name.rpartition(".")[0]] = args["extra-config"]

    step.finish(lambda: making.run(base, edit))


def check(base, donor, chosen, args):
    """End the step where the two do not fit: it would make a checkpoint that answers nonsense."""
    if not chosen:
        step.refuse(f"no tensor of the base has a name like {args['tensors']}")
    if args.get("count") not in (None, len(chosen)):
        step.refuse(f"{len(chosen)} tensors of the base have such a name, expected {args['count']}")
    lacking = [name for name in chosen if name not in donor.tensors]
    lacking += [s for name in chosen for s in siblings(name, args.get("with", [])) if s not in donor.tensors]
    if lacking:
        step.refuse(f"the donor lacks {len(lacking)} tensors: {step.named(lacking)}")
    unlike = [name for name in chosen if donor.tensors[name].shape != base.tensors[name].shape]
    if unlike:
        step.refuse(f"{len(unlike)} tensors have another shape in the donor: {step.named(unlike)}")


def siblings(name, suffixes):
    """`a.b.weight_scale_inv` of `a.b.weight`."""
    layer = name.rpartition(".")[0]
    return [f"{layer}.{suffix}" for suffix in suffixes]


def tensors(base, donor, names, chosen, coming):
    """The tensors of one new shard. A sibling that comes along takes the place of the base's own, if there is one."""
    for name in names:
        if name in chosen:
            yield name, donor.tensors[name]
            layer = name.rpartition(".")[0]
            yield from ((other, donor.tensors[other]) for other in sorted(coming) if other.rpartition(".")[0] == layer)
        elif name not in coming:
            yield name, base.tensors[name]


main()
