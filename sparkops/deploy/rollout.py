"""A deploy in three parts: plan it, change guards and gateway, send the intent. One that is refused changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkops.agents import agents
from sparkops.agents.agents import AgentSpecs
from sparkops.deploy import leads, sending
from sparkops.deploy.operation import Operation
from sparkops.deploy.placement import DeployOptions
from sparkops.deploy.sending import Draft
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader
from sparkops.release import Release


@dataclass(frozen=True)
class Rollout:
    """One release on its way to its leader, with the agents that must run."""

    operation: Operation
    leader: Leader
    release: Release
    options: DeployOptions
    specs: AgentSpecs

    def plan(self) -> Draft | None:
        """Plan it as observed; None where nothing is to be planned. Raises Busy, PlanRefused, NotReady."""
        return sending.prepare(self.operation, self.leader, self.release, self.options)

    def send(self, planned: Draft | None, *, apply_gateway: bool = False) -> Accepted | None:
        """Change guards and gateway where they differ, and send the intent; then a plan is made again before it.

        Raises what `agents.ensure` and `sending.deploy` raise.
        """
        operation, connected = self.operation, self.operation.connected
        changed = agents.ensure(
            connected, self.specs, operation.report, apply_gateway=apply_gateway, wait_s=operation.wait_s
        )
        if planned and any(changed.values()):
            planned = replace(planned, stale=True)
        leads.lead(connected, self.leader, self.release.service)
        return sending.deploy(operation, self.leader, self.release, self.options, planned)
