"""`status --client`: how a program calls the services, from what the nodes and engines report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from requests.exceptions import RequestException

from sparkops.config.inventory import Fleet
from sparkops.errors import SparkopsError
from sparkops.exchange import Reply
from sparkops.node.http import session
from sparkops.operator.cli.status_output import Outcomes, joined_status
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.status import clients
from sparkops.operator.status.clients import Model
from sparkops.operator.status.picture import Health, RankRow, ServiceRow, Source, Status
from sparkops.operator.status.read import Reader
from sparkops.serving.smoke.openai import Unusable, cards

WINDOW_S = 10.0


def show_client(
    fleet: Fleet, reader: Reader, outcomes: Outcomes, client: str, service: str | None, *, json: bool
) -> None:
    """Print the configuration of a client, of one service or all; with `json` what any client needs.

    Raises UsageError for an inventory without a gateway and for an unknown service, and SparkopsError while no service
    answers behind the gateway.
    """
    gateway = fleet.require_gateway()
    status = joined_status(list(fleet.nodes), gateway, outcomes, service)
    for row in status.nodes:
        if not row.reachable:
            say(f"{row.name}: {row.error}; its services may be missing", fg="yellow")
    windows = dict(_windows(status, reader))
    services = [Model(row.name, row.url, windows.get(row.name)) for row in status.services if row.url and row.live]
    if not services:
        raise SparkopsError("no service answers behind the gateway", next_step="sparkops status")
    key_file = str(fleet.resolve(gateway.api_keys[0])) if gateway.api_keys else ""
    if json:
        data_json(clients.facts(services, key_file))
    else:
        data(clients.configuration(client, services, key_file))


def _windows(status: Status, reader: Reader) -> Iterator[tuple[str, int]]:
    """Yield the services whose engine reports the length of its context, with it."""
    for service in status.services:
        for rank in _answering(service):
            if rank.node in reader.nodes and (window := _window(reader, rank, service.name)):
                yield service.name, window


def _answering(service: ServiceRow) -> Iterator[RankRow]:
    """Yield rank 0 of the active release, if it answers."""
    place = (service.live.release, service.live.slot) if service.live else None
    for replica in service.replicas:
        if (replica.release, replica.slot) == place:
            heads = (rank for rank in replica.ranks if rank.rank == 0 and rank.health is Health.OK)
            yield from (rank for rank in heads if rank.source is Source.SEEN)


def _window(reader: Reader, rank: RankRow, service: str) -> int | None:
    """Return the length of the context in tokens that an engine reports; None where it reports none.

    It listens on its node, reached over the connection that `status` has.
    """
    with (
        suppress(RequestException, OSError, Unusable, SparkopsError),
        session(reader.nodes[rank.node], rank.port) as http,
    ):
        reply = http.get("http://node/v1/models", timeout=WINDOW_S)
        listed = cards(Reply(reply.status_code, ((0.0, reply.text),)))
        return next((card.window for card in listed if card.name == service), None)
    return None
