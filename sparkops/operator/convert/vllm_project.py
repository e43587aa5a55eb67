"""Read recipes of vllm-project/recipes: what its command builder generates for a DGX Spark, as flags and variables.

Source of the format and of the order of its layers: src/lib/command-synthesis.js there (8959cf6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkops.config.fields import Location
from sparkops.config.serve import MOST_RANKS
from sparkops.config.source import Source
from sparkops.operator.convert import command_lines
from sparkops.operator.convert.conversion import Omission

HARDWARE, GENERATION, BRAND = "dgx_spark_gb10", "blackwell", "nvidia"
NODE_GB = 128
"""Memory of a node there (taxonomy.yaml)."""
EXPERTS = "--enable-expert-parallel"
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "single_node_tp": (),
    "single_node_tep": (EXPERTS,),
    "multi_node_tp": (),
    "multi_node_tep": (EXPERTS,),
}
"""The flags of each strategy that a replica of sparkops can have (strategies/ there), beside its number of nodes."""
IMAGES = {True: "vllm/vllm-openai:nightly", False: "vllm/vllm-openai:latest"}
"""The image of a recipe that names none, by whether it requires a nightly build."""
OFF = "off there unless it is chosen; to have it, add its flags to `serve.args`"
PLACEHOLDER = "a placeholder of the original; sparkops sets the network of the ranks"


@dataclass(frozen=True)
class Variant:
    """One checkpoint of a recipe: its name, precision, memory in GB, strategy, and number of nodes."""

    name: str
    precision: str
    gigabytes: float
    strategy: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.name} ({self.precision}, {self.gigabytes:g} GB, {self.nodes} node{'s' * (self.nodes > 1)})"


@dataclass
class Original:
    """A variant as a recipe with `model`, `defaults`, `env` and `container`, and what such a recipe cannot have."""

    source: Source
    image: str
    omissions: list[Omission] = field(default_factory=list)


def is_recipe(original: Mapping[str, Any]) -> bool:
    """Return whether a mapping has the keys of this format."""
    return isinstance(original.get("model"), dict) and isinstance(original.get("meta"), dict)


def translate(source: Source, choice: str) -> Original:
    """Return the variant `choice` of a recipe for a DGX Spark; empty: its only one.

    Raises ConfigError for a recipe that is not for a DGX Spark, and for a choice that is missing or unknown.
    """
    recipe = _Recipe(source)
    hardware = recipe.at("meta", "hardware")
    if HARDWARE not in hardware or hardware[HARDWARE] == "unsupported":
        raise source.fail(("meta", "hardware"), f"not for a DGX Spark: expected {HARDWARE}: verified")
    if "omni" in recipe.names("meta", "tasks"):
        raise source.fail(("meta", "tasks"), "expected a vLLM runtime: a recipe of vLLM-Omni, which has another server")
    variants = recipe.variants()
    names = ", ".join(map(str, variants.values()))
    if not variants:
        problem = f"no variant fits: expected one of at most {MOST_RANKS * NODE_GB} GB, on {MOST_RANKS} nodes"
        raise source.fail(("variants",), problem)
    if choice not in variants and (choice or len(variants) > 1):
        error = source.fail(("variants",), f"{f'no variant {choice}' if choice else 'several variants'}: {names}")
        error.next_step = f"sparkops import {source.file} --variant {next(iter(variants))}"
        raise error
    return recipe.original(variants[choice] if choice else next(iter(variants.values())))


@dataclass
class _Recipe:
    source: Source

    def value(self, *where: str) -> Any:
        """Return the value at a place; None if there is none."""
        found: Any = self.source.data
        for key in where:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def at(self, *where: str) -> Mapping[str, Any]:
        """Return the mapping at a place; empty if there is none. Raises ConfigError for another type."""
        found = self.value(*where)
        if not isinstance(found, dict) and found not in (None, "", "{}"):
            raise self.source.fail(where, f"expected a mapping, got {found!r}")
        return found or {}

    def names(self, *where: str) -> Sequence[str]:
        """Return the list of names at a place; empty if there is none. Raises ConfigError for another type."""
        names = self.value(*where)
        if names in (None, "", "[]"):
            return ()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.source.fail(where, f"expected a list of names, got {names!r}")
        return names

    def line(self, *where: str | int) -> int:
        return self.source.lines.get(self.source.nearest(where), 1)

    def variants(self) -> dict[str, Variant]:
        """Return the variants that run on Sparks, by name."""
        found = (self._variant(name) for name in self.at("variants"))
        return {variant.name: variant for variant in found if variant}

    def _variant(self, name: str) -> Variant | None:
        given = self.at("variants", name)
        supported = given.get("supported_hardware")
        if supported and HARDWARE not in supported:
            return None
        needed = self.at("variants", name, "precision_hardware")
        others = (str(needed.get("brand", BRAND)).lower(), str(needed.get("generation", GENERATION)))
        if others != (BRAND, GENERATION):
            return None
        gigabytes = _number(given.get("vram_minimum_gb"))
        nodes = 1  # tensor parallel, as its builder does by default (recommendStrategy), on the fewest that hold it
        while gigabytes > nodes * NODE_GB and nodes < MOST_RANKS:
            nodes *= 2
        strategy = self._strategy(nodes)
        if strategy is None or gigabytes > nodes * NODE_GB:
            return None
        return Variant(name, str(given.get("precision", "")), gigabytes, strategy, nodes)

    def _strategy(self, nodes: int) -> str | None:
        """Return the strategy that the builder recommends for a number of nodes; None if sparkops has none of them."""
        kind = "multi_node_" if nodes > 1 else "single_node_"
        preferred = str(self.value("default_strategy") or "").replace("single_node_", kind)
        listed = self.names("compatible_strategies")
        for strategy in (preferred, f"{kind}tp", f"{kind}tep"):
            gate = _by_hardware(self.at("strategy_hardware", strategy))
            offered = strategy in listed if gate is None else gate != "unsupported"
            if strategy in STRATEGIES and strategy.startswith(kind) and offered:
                return strategy
        return None

    def original(self, variant: Variant) -> Original:
        """Return a variant as a recipe of flags and variables, with the line of each."""
        lines: dict[Location, int] = {}
        flags: dict[str, Any] = {}
        for where, name, value in self._flags(variant):
            flags[name] = value
            lines["defaults", name.replace("-", "_")] = self._flag_line(where, name)
        size = "tensor-parallel-size"
        flags[size], lines["defaults", size.replace("-", "_")] = variant.nodes, self.line("variants", variant.name)
        env: dict[str, Any] = {}
        image, lines["container",] = self._image(variant)
        original = Original(Source(self.source.file, lines=lines), image)
        for where, name, value in self._variables(variant):
            env[name], lines["env", name] = value, self.line(*where, name)
        for name in [name for name, value in env.items() if str(value).startswith("$")]:
            original.omissions.append(Omission(lines["env", name], f"env.{name}", PLACEHOLDER))
            del env[name]
        places: tuple[tuple[str, ...], ...] = (("variants", variant.name, "model_id"), ("model", "model_id"))
        place = next((place for place in places if self.value(*place)), places[-1])
        lines["model",] = self.line(*place)
        original.omissions += self._omissions(variant)
        original.source.data = {
            "model": str(self.value(*place) or ""),
            "description": self._description(variant),
            "defaults": flags,
            "env": env,
            "container": image,
        }
        return original

    def _description(self, variant: Variant) -> str:
        places = (("variants", variant.name), ("meta",))
        return next((str(text) for place in places if (text := self.value(*place, "description"))), "")

    def _layers(self, variant: Variant, base: str, extra: str) -> Iterator[tuple[str, ...]]:
        """Yield the places of flags, or of variables, in the builder's order: the last value of a name counts."""
        own: tuple[str, ...] = ("variants", variant.name)
        strategy: tuple[str, ...] = ("strategy_overrides", variant.strategy)
        yield "model", base
        yield *own, extra
        yield *own, "hardware_overrides", HARDWARE, extra
        yield from ((*strategy, key) for key in (("env", extra) if extra == "extra_env" else (extra, "vllm_args")))
        if replacing := self._generation(*strategy):
            yield *replacing, extra
        else:
            yield from ((*place, extra) for place in (self._generation(), self._generation(*own)) if place)
        yield *strategy, "hardware_overrides", HARDWARE, extra

    def _generation(self, *where: str) -> tuple[str, ...] | None:
        """Return the place of what is for this generation of GPUs, else for NVIDIA's; None if neither is there."""
        places = ((*where, "hardware_overrides", key) for key in (GENERATION, BRAND))
        return next((place for place in places if self.value(*place) is not None), None)

    def _flags(self, variant: Variant) -> Iterator[tuple[tuple[str, ...], str, Any]]:
        """Yield the place, name and value of each flag. Raises ConfigError for a list that is none of words."""
        for flag in STRATEGIES[variant.strategy]:
            yield ("variants", variant.name), flag.removeprefix("--"), True
        features = (self._feature(variant, name) for name in self._features(variant))
        for where in (*self._layers(variant, "base_args", "extra_args"), *filter(None, features)):
            for name, value in command_lines.flags(self._words(where)):
                yield where, name, value

    def _words(self, where: tuple[str, ...]) -> list[str]:
        words = self.value(*where)
        if not isinstance(words, list) and words not in (None, "", "[]"):
            raise self.source.fail(where, f"expected a list of words, got {words!r}")
        return [str(word) for word in words or ()]

    def _flag_line(self, where: tuple[str, ...], name: str) -> int:
        words = self._words(where) if isinstance(self.value(*where), list) else []
        named = (n for n, word in enumerate(words) if [flag for flag, _ in command_lines.flags([word])] == [name])
        return self.line(*where, next(named, 0))

    def _features(self, variant: Variant) -> list[str]:
        """Return the features that are on: all but the opt-in ones, and those of which the variant states a mode."""
        forced = self.at("variants", variant.name, "default_modes")
        off = {*self.names("opt_in_features"), *self.names("hardware_opt_in_features", HARDWARE)}
        allowed = [
            name
            for name in self.at("features")
            if variant.strategy in (self.names("features", name, "strategies") or [variant.strategy])
        ]
        return [name for name in allowed if name in forced or name not in off]

    def _feature(self, variant: Variant, name: str) -> tuple[str, ...] | None:
        """Return the place of a feature's flags; None if no mode of it is for this variant and hardware."""
        where: tuple[str, ...] = ("features", name)
        modes = self.at(*where, "modes")
        if not modes:
            replacing = self._generation(*where)
            return self._own_args(where, replacing)
        allowed = [mode for mode in modes if self._is_offered(variant, (*where, "modes", mode))]
        stated = (self.value("variants", variant.name, "default_modes", name), self.value(*where, "default_mode"))
        mode = next((mode for mode in stated if mode in allowed), next(iter(allowed), None))
        if mode is None:
            return None
        place = (*where, "modes", mode)
        key = _by_hardware({key: key for key in self.at(*place, "hardware_overrides")})
        return self._own_args(place, (*place, "hardware_overrides", key) if key else None)

    def _own_args(self, where: tuple[str, ...], replacing: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the place of the flags of a feature, or of a mode: those for this hardware replace the others."""
        replaced = replacing is not None and self.value(*replacing, "args") is not None
        return (*replacing, "args") if replacing and replaced else (*where, "args")

    def _is_offered(self, variant: Variant, mode: tuple[str, ...]) -> bool:
        variants, hardware = self.value(*mode, "variants"), self.at(*mode, "hardware")
        refused = "unsupported" in (hardware.get(GENERATION), hardware.get(HARDWARE))
        return not refused and (not variants or variant.name in variants)

    def _variables(self, variant: Variant) -> Iterator[tuple[tuple[str, ...], str, Any]]:
        for where in self._layers(variant, "base_env", "extra_env"):
            for name, value in self.at(*where).items():
                yield where, name, value

    def _image(self, variant: Variant) -> tuple[str, int]:
        """Return the image and its line: of the variant on this hardware, of the variant, of the model, else vLLM's."""
        own: tuple[str, ...] = ("variants", variant.name)
        for where in ((*own, "hardware_overrides", HARDWARE), own, ("model",)):
            image = self.value(*where, "docker_image")
            for keys in ((), (BRAND,), (BRAND, "cu130"), (BRAND, "cu129"), ("cu130",), ("cu129",)):
                if isinstance(name := _Recipe(Source(self.source.file, image)).value(*keys), str) and name:
                    return name, self.line(*where, "docker_image")
        nightly = str(self.value("model", "nightly_required")).lower() == "true"
        return IMAGES[nightly], self.line("model")

    def _omissions(self, variant: Variant) -> Iterator[Omission]:
        """Yield what is off, what is installed beside the image, and the version that the image must have."""
        on = self._features(variant)
        for name in self.at("features"):
            if name not in on or self._feature(variant, name) is None:
                yield Omission(self.line("features", name), f"features.{name}", OFF)
        for number, dependency in enumerate(self.value("dependencies") or ()):
            modes = dependency.get("install_modes") if isinstance(dependency, dict) else None
            if modes and "docker" in modes:
                why = f"to run by hand: {' '.join(str(dependency.get('command', '')).split())}"
                yield Omission(self.line("dependencies", number), f"dependencies[{number}]", why, "loss", "image")
        for where in (("variants", variant.name), ("model",)):
            if version := self.value(*where, "min_vllm_version"):
                why = f"the image must have vLLM {version} or newer"
                yield Omission(self.line(*where, "min_vllm_version"), "min_vllm_version", why)
                return


def _by_hardware(by_key: Mapping[str, Any]) -> Any:
    return next((by_key[key] for key in (HARDWARE, GENERATION, BRAND, "default") if key in by_key), None)


def _number(value: object) -> float:
    """Return a number that may be text; 0 if it is none."""
    return float(value) if isinstance(value, int | float | str) and str(value).replace(".", "", 1).isdigit() else 0.0
