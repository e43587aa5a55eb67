"""A gateway without HAProxy: it is told what the real one is told, and says what the real one says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sparkops.names import Slot, backend

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

    @property
    def active(self) -> tuple[str, tuple[str, ...]] | None:
        """Release and addresses with the traffic."""
        return self.slots.get(self.map)

    def run(self, verb: str, *words: str) -> tuple[int, str]:
        """Exit code and what is printed."""
        match verb, *words:
            case ("show",):
                return 0, self._shown()
            case ("point", _, slot, release, *servers):
                return self._point(backend(SERVICE, Slot(slot)), (release, tuple(servers))), ""
            case ("switch", _, "down"):
                return self._switch(DOWN), ""
            case ("switch", _, slot, release) if self.slots.get(backend(SERVICE, Slot(slot)), ("",))[0] == release:
                return self._switch(backend(SERVICE, Slot(slot))), ""
            case ("cut", _, slot):
                return 0, f"{self.sessions.pop(backend(SERVICE, Slot(slot)), 0)}\n"
            case _:
                return 1, ""

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

    def _shown(self) -> str:
        names = [backend(SERVICE, slot) for slot in Slot]
        none: tuple[str, tuple[str, ...]] = ("-", ())
        slots = {name: dict(zip(("release", "servers"), self.slots.get(name, none), strict=True)) for name in names}
        rows = [f"{name},BACKEND,{self.sessions.get(name, 0)},0,{self.errors.get(name, 0)},0,0" for name in names]
        running = {
            "map": f"0x1 {SERVICE} {self.map}",
            "releases": "",
            "processes": "1 worker",
            "statistics": {"1": "\n".join(["# pxname,svname,scur,stot,eresp,econ,hrsp_5xx", *rows])},
        }
        if self.leaving:
            self.sessions = {name: count - 1 for name, count in self.sessions.items() if count > 1}
        facts = {"ports": {SERVICE: PORT}, "files": {}, "loaded": True, "problem": "", "map": f"{SERVICE} {self.map}"}
        return json.dumps({**facts, "slots": slots, "haproxy": running})
