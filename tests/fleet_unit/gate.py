"""A gateway without HAProxy: it is told what the real one is told, and says what the real one says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from sparkops.names import Slot, backend
from sparkops.swap.journal import SCHEMA

SERVICE, PORT = "chat", 9100
DOWN = "be_down"


@dataclass
class Gate:
    """One service and its two slots. `sessions`: requests under way in each slot; one ends with each look."""

    map: str = DOWN
    slots: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)
    leaving: bool = True
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of its files."""
    keys: list[str] = field(default_factory=list)
    """SHA-256 of its API keys."""
    loaded: bool = True
    problem: str = ""
    """Why HAProxy does not answer."""

    @property
    def active(self) -> tuple[str, tuple[str, ...]] | None:
        """Release and addresses with the traffic."""
        return self.slots.get(self.map)

    def run(self, verb: str, *words: str, stdin: bytes = b"") -> tuple[int, str]:
        """Exit code and what is printed."""
        match verb, *words:
            case ("show",):
                return 0, self._shown()
            case ("configure",):
                return self._configure(json.loads(stdin)), ""
            case ("point", _, slot, release, *servers):
                return self._point(backend(SERVICE, Slot(slot)), (release, tuple(servers))), ""
            case ("switch", _, slot, *release) if self._may_have(slot, *release):
                return self._switch(DOWN if slot == "down" else backend(SERVICE, Slot(slot))), ""
            case ("cut", _, slot):
                return 0, f"{self.sessions.pop(backend(SERVICE, Slot(slot)), 0)}\n"
            case _:
                return 1, ""

    def _may_have(self, slot: str, release: str = "") -> bool:
        """Whether the traffic may go there: to no slot, or to one that has the release."""
        return slot == "down" or self.slots.get(backend(SERVICE, Slot(slot)), ("",))[0] == release

    def preview(self, slot: str) -> tuple[str, tuple[str, ...]]:
        """Release and addresses of a slot, with or without traffic."""
        return self.slots[backend(SERVICE, Slot(slot))]

    def _point(self, name: str, to: tuple[str, tuple[str, ...]]) -> int:
        """A slot with the traffic stays what it is."""
        if name == self.map and self.slots.get(name) != to:
            return 1
        self.slots[name] = to
        return 0

    def _switch(self, name: str) -> int:
        if name != self.map:
            self.switches.append(name)
        self.map = name
        return 0

    def _configure(self, texts: dict[str, str | None]) -> int:
        """Keep the files; null removes one."""
        known = {name: text for name, text in texts.items() if text}
        self.files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in known.items()}
        return 0

    def _shown(self) -> str:
        names = [backend(SERVICE, slot) for slot in Slot]
        none: tuple[str, tuple[str, ...]] = ("-", ())
        slots = {name: dict(zip(("release", "servers"), self.slots.get(name, none), strict=True)) for name in names}
        rows = [f"{name},BACKEND,{self.sessions.get(name, 0)},0,{self.errors.get(name, 0)},0,0,UP," for name in names]
        servers = [(name, address) for name, (_, addresses) in self.slots.items() for address in addresses]
        rows += [f"{name},s,0,0,0,0,0,no check,{address}" for name, address in servers]
        running = {
            "map": f"0x1 {SERVICE} {self.map}",
            "releases": "".join(f"0x1 {name} {release}\n" for name, (release, _) in self.slots.items()),
            "processes": "1 worker",
            "statistics": {"1": "\n".join(["# pxname,svname,scur,stot,eresp,econ,hrsp_5xx,status,addr", *rows])},
        }
        if self.leaving:
            self.sessions = {name: count - 1 for name, count in self.sessions.items() if count > 1}
        facts = {"ports": {SERVICE: PORT}, "files": self.files, "loaded": self.loaded, "problem": self.problem}
        facts |= {"format": SCHEMA, "keys": self.keys, "certificate": "", "aliases": {}, "holds": {}, "room": {}}
        shown = {**facts, "map": f"{SERVICE} {self.map}", "slots": slots}
        return json.dumps({**shown, "haproxy": None if self.problem else running})
