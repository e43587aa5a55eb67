"""A scripted guard: it replies to an operator's requests as the leader does, and decides with the real machine.

Each request for events lets the swap advance by one phase, unless DIRECTORY/halt names the phase; DIRECTORY/fail names
the phase in which the swap fails, DIRECTORY/unknown a request that it does not understand, DIRECTORY/late the number
of states in which reports still have the cordon before its last change. Requests are kept in DIRECTORY/asked.
`python -m tests.guard_peer DIRECTORY NODE`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from pydantic import TypeAdapter

from sparkops.errors import Busy, PlanRefused
from sparkops.node.cordon import Cordon
from sparkops.swap import wire
from sparkops.swap.events import narrate
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.intents import Intent, NothingToDo, Refused, accept
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Answer, Phase
from sparkops.swap.orders import traffic

INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)
ALONE = threading.Lock()
AT = "2026-11-22T07:00:{:02}+00:00"


@dataclass(frozen=True)
class Peer:
    """The guard of `node`, whose files are in `directory`. It reaches every node of `nodes`."""

    directory: Path
    node: str = "n1"
    nodes: tuple[str, ...] = ("n1", "n2")

    def reply(self, line: str) -> str:
        """The line that replies to a request."""
        with ALONE:
            request = json.loads(line)
            assert request.pop("format") == SCHEMA
            return self._reply(request)

    def _reply(self, request: dict[str, Any]) -> str:
        with (self.directory / "asked").open("a") as log:
            log.write(json.dumps(request) + "\n")
        ops: dict[str, Callable[[dict[str, Any]], object]] = {
            "services": lambda _: sorted(file.stem for file in self.directory.glob("*.journal")),
            "state": self._state,
            "intend": self._intend,
            "events": self._events,
            "findings": lambda _: [],
            "starts": lambda request: self.starts(request["service"]),
            "secret": lambda _: None,
            "key": lambda request: {"key": f"key of {request['node']}", "term": 0},
            "join": self._join,
            "resign": lambda request: self._follow(request["to"], heard=False),
            "peers": lambda _: None,
            "lead": lambda _: None,
            "lease": lambda _: None,
            "cordon": lambda _: json.loads(wire.dump(Cordon, self.cordon())),
            "set_cordon": self._set_cordon,
            "terms": lambda _: self._terms(),
            "copies": lambda _: self._copies(),
            "take": self._take,
        }
        if request["op"] == self.phase("unknown"):
            return json.dumps({"error": "the guard does not understand it", "next_step": "", "exit_code": 1}) + "\n"
        return json.dumps({"ok": ops[request.pop("op")](request)}) + "\n"

    def cordon(self, node: str = "") -> Cordon:
        """The cordon of this node, or of another one, whose peer is beside this one."""
        file = (self.directory.parent / f"{node}.peer" if node else self.directory) / "cordon.json"
        return wire.load(Cordon, file.read_bytes()) if file.exists() else Cordon()

    def _set_cordon(self, request: dict[str, Any]) -> None:
        was, to = (wire.load_value(Cordon, request[word]) for word in ("was", "to"))
        assert self.cordon() == was
        self._replace("cordon.was", was.text.encode())
        self._replace("cordon.json", wire.dump(Cordon, to))

    def _lease(self, node: str) -> str:
        """The cordon in the last report of a node: while DIRECTORY/late counts, that before its last change."""
        file = self.directory.parent / f"{node}.peer" / "cordon.was"
        late = int(self.phase("late") or 0) > 0 and file.exists()
        return file.read_text() if late else self.cordon(node).text

    def requests(self, op: str) -> list[dict[str, Any]]:
        """The requests of one kind so far."""
        file = self.directory / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        return [request for request in map(json.loads, lines) if request["op"] == op]

    def journal(self, service: str) -> Journal | None:
        """What it has on disk."""
        file = self.directory / f"{service}.journal"
        return wire.load(Journal, file.read_bytes()) if file.exists() else None

    def write(self, journal: Journal) -> None:
        """Replace the journal, and keep the events of that."""
        old = self.journal(journal.service) or Journal(journal.service, self.node)
        self._replace(f"{journal.service}.journal", wire.dump(Journal, journal))
        records = [event.record() for event in narrate(old, journal)]
        known = self.events(journal.service)
        for number, record in enumerate(records, len(known) + 1):
            known.append({"n": number, "at": AT.format(number % 60), **record})
        self._replace(f"{journal.service}.events", json.dumps(known).encode())

    def _replace(self, name: str, content: bytes) -> None:
        (self.directory / f"{name}.new").write_bytes(content)
        (self.directory / f"{name}.new").replace(self.directory / name)

    def events(self, service: str) -> list[dict[str, Any]]:
        """Every event of a service."""
        file = self.directory / f"{service}.events"
        return list(json.loads(file.read_text())) if file.exists() else []

    def starts(self, service: str) -> list[dict[str, Any]]:
        """The starts that DIRECTORY/SERVICE.starts has, as JSON."""
        file = self.directory / f"{service}.starts"
        return list(json.loads(file.read_text())) if file.exists() else []

    def phase(self, word: str) -> str:
        """The phase that a file names."""
        file = self.directory / word
        return file.read_text().strip() if file.exists() else ""

    def _seen(self, journal: Journal) -> FleetState:
        answer = Answer.NO if (self.directory / "down").exists() else Answer.YES
        reports = {}
        for node in self.nodes:
            ranks = [rank for item in journal.deployments for rank in item.on(node)]
            engines = tuple(EngineReport(rank.container, EngineState.HEALTHY) for rank in ranks)
            reports[node] = Report(
                node, "b", journal.term, journal.revision, journal.revision, engines, lease=self._lease(node)
            )
        serving = traffic(journal)
        slots = {item.slot: item.release for item in journal.deployments}
        view = GatewayView(serving.slot if serving else None, slots, dict.fromkeys(slots, answer))
        return FleetState(reports, view, frozenset(self.nodes))

    def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        journal = self.journal(request["service"])
        state = self._seen(journal or Journal(request["service"], self.node))
        if late := int(self.phase("late") or 0):
            (self.directory / "late").write_text(str(late - 1))
        loading = journal and journal.swap and journal.swap.phase is Phase.LOAD
        target = next(journal.swap.target.heads) if loading and journal and journal.swap else None
        return {
            "journal": json.loads(wire.dump(Journal, journal)) if journal else None,
            "needs_operator": journal.trouble if journal else "",
            "reports": {node: json.loads(wire.dump(Report, report)) for node, report in state.reports.items()},
            "gateway": json.loads(wire.dump(GatewayView, state.gateway)) if state.gateway else None,
            "progress": {target.node: {target.container: "loading weights 40 %, about 3 min left"}} if target else {},
            "missing": [],
            "why_missing": {},
            "last": len(self.events(request["service"])),
        }

    def _take(self, request: dict[str, Any]) -> None:
        for journal in request["journals"]:
            self.write(wire.load_value(Journal, journal))
        self._follow(self.node, heard=False)

    def _join(self, request: dict[str, Any]) -> None:
        self._follow(request["leader"], heard=True)

    def _follow(self, leader: str, *, heard: bool) -> None:
        """Follow a leader; `heard`: with the key of its messages."""
        self._replace("follows", json.dumps([leader, heard]).encode())

    def _copies(self) -> dict[str, Any]:
        """What DIRECTORY/copies has, else the journals that were written here, as those of this guard or of another."""
        if (self.directory / "copies").exists():
            return dict(json.loads((self.directory / "copies").read_text()))
        journals = [self.journal(file.stem) for file in sorted(self.directory.glob("*.journal"))]
        known = [(journal.leader, wire.plain(Journal, journal)) for journal in journals if journal]
        leader, heard = json.loads(self.phase("follows") or json.dumps([self.nodes[0], True]))
        return {
            "leader": leader,
            "journals": [journal for led_by, journal in known if led_by == self.node],
            "copies": [journal for led_by, journal in known if led_by != self.node],
            "term": 0,
            "heard_ago_s": 0.5 if heard else None,
            "problems": [],
        }

    def _terms(self) -> dict[str, int]:
        journals = (self.journal(file.stem) for file in self.directory.glob("*.journal"))
        return {journal.service: journal.term for journal in journals if journal and journal.leader == self.node}

    def _intend(self, request: dict[str, Any]) -> dict[str, Any]:
        service = request["service"]
        journal = self.journal(service) or Journal(service, self.node)
        reply = accept(journal, INTENT.validate_python(request["intent"]), self._seen(journal))
        last = len(self.events(service))
        match reply:
            case Refused(why=why, busy=busy):
                code = (Busy if busy else PlanRefused).exit_code
                return {"result": "refused", "why": why, "code": code, "last": last}
            case NothingToDo(why=why):
                return {"result": "nothing", "why": why, "code": 0, "last": last}
            case _:
                self.write(reply)
                return {"result": "accepted", "why": "", "code": 0, "last": last}

    def _events(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["wait_s"]:
            self.advance(request["service"])
        return [event for event in self.events(request["service"]) if event["n"] > request["since"]]

    def advance(self, service: str) -> None:
        """One step of the machine, in which everything succeeds but what `fail` names."""
        journal = self.journal(service)
        if journal is None:
            return
        if journal.stopping:
            self.write(journal.offline())
        elif journal.halting and self.phase("halt") != "stop":
            self.write(journal.confirmed_stopped(journal.halting))
        elif journal.swap and journal.swap.phase.value == self.phase("fail") and not journal.swap.reverting:
            self.write(journal.reverted("n1: q-r0: exited with code 1\n  likely cause: a flag\nnext: Remove it."))
        elif journal.swap and journal.swap.phase.value != self.phase("halt"):
            self.write(journal.advanced())


@contextmanager
def serve(peer: Peer) -> Iterator[int]:
    """Let a guard reply to each line on a port of this machine, which is the result."""

    class Conversation(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # as where the operator's process was killed
                for line in self.rfile:
                    self.wfile.write(peer.reply(line.decode()).encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def main() -> None:
    """Reply to each line of stdin."""
    peer = Peer(Path(sys.argv[1]), sys.argv[2], tuple(sys.argv[2:]))
    for line in sys.stdin:
        sys.stdout.write(peer.reply(line))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
