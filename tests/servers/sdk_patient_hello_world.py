"""The hello world of the examples, with limits of failures that no test reaches: all its callers are one peer.

Run by a server in the environment of the SDK's server, in the folder of the example, and never imported by a test.
"""

# mypy: disable-error-code="import-not-found, import-untyped, misc, unused-ignore"

from __future__ import annotations

import hello_world

from a2a_trust import RequestRules, protect
from a2a_trust.auth import FailureLimits

app = protect(
    hello_world.new_agent(),
    card=hello_world.card,
    verifiers=hello_world.verifiers,
    rules=RequestRules(failures=FailureLimits(by_credential="100000/minute", by_peer="100000/minute")),
)
