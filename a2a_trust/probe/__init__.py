"""Probe running agents: do they enforce what their cards declare?"""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.probe.probing import ProbeOptions as ProbeOptions, ProbeReport as ProbeReport
    from a2a_trust.probe.probing import async_probe_agent as async_probe_agent, probe_agent as probe_agent
    from a2a_trust.probe.verdicts import ProbeFinding as ProbeFinding, Row as Row, Verdict as Verdict
else:
    __getattr__, __dir__ = lazy(__name__, {
        "probe.probing": "ProbeOptions ProbeReport async_probe_agent probe_agent",
        "probe.verdicts": "ProbeFinding Row Verdict",
    })  # fmt: skip
