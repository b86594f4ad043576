"""What each of the 98 real cards is for the SDKs of today: the tables that the tests hold exact.

The numbers are the ids of ``vectors/cards/index.jsonl``. A card that is in no table, or behaves otherwise than its
table says, fails a test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

__all__ = [
    "COMPANION_ON_REQUEST",
    "EVERYWHERE",
    "NOT_ASCII",
    "NO_COMPANION_NEEDED",
    "NO_COMPANION_NEEDED_IN_0_3",
    "ONLY_HERE",
    "REFUSED_HERE",
    "REWRITTEN_BY_THE_PYTHON_RESOLVER",
    "STRIPPABLE_REQUIREMENTS",
    "UNREAD_IN_0_3",
    "WITHOUT_A_HOST",
    "load_card",
]


def _ids(text: str) -> tuple[str, ...]:
    return tuple(text.split())


EVERYWHERE: Final = _ids(
    # The shape of 1.0: at least one of supportedInterfaces. The last one has an empty supportedInterfaces and no member
    # of 0.3: it is of no shape, so nothing is lost in any reader.
    """
    018 019 021 037 038 039 041 042 058 059 061 062 063 065 066 067 070 071 074 075 077 079 081 083 086 087 089 090
    091 093 094 095 097 098 099 101 103 126 127 133 134 137 147 149 157 161 162 163 165 166 167
    069
    """
)
"""Cards that sign here and verify here, in a2a-sdk 1.3.0 and in @a2a-js/sdk 1.3.0."""

NO_COMPANION_NEEDED: Final = frozenset(
    _ids("042 061 062 065 075 077 081 086 090 091 093 094 095 098 099 103 126 127 133 134 137 147 157 162")
)
"""Those of EVERYWHERE that have nothing empty and nothing unknown once what A2A 8.4.1 drops is dropped.

``skills: null`` (098, 099) is dropped by 8.4.1; ``skills: []`` stays, because ``skills`` is REQUIRED.
"""

COMPANION_ON_REQUEST: Final = frozenset(
    _ids(
        """
    018 019 021 038 039 041 058 059 063 066 067 069 101 161 165 166 167
    030 046 055 057 085 138
        """
    )
)
"""Those of EVERYWHERE, and of ONLY_HERE, whose companion would leave a security member open.

Most have a requirement without scopes. 021 has unknown members in its interfaces, 058 and 161 have the `url` of 0.3,
046 has the `authentication` of 0.1, and 069 has an empty list of interfaces.
"""

STRIPPABLE_REQUIREMENTS: Final = frozenset(_ids("018 019 038 039 041 059 063 066 067 101 165 166 167"))
"""Those of EVERYWHERE whose companion does not protect a requirement of the card or of a skill."""

NOT_ASCII: Final = frozenset({"018", "019", "161"})
"""Those of EVERYWHERE that a2a-sdk 1.0.0 refuses: it signs and checks the ASCII escapes of json.dumps."""

REWRITTEN_BY_THE_PYTHON_RESOLVER: Final = {
    "038": "`security` without securityRequirements becomes securityRequirements, which nobody signed",
    "039": "`security` without securityRequirements becomes securityRequirements, which nobody signed",
    "041": "`security` without securityRequirements becomes securityRequirements, which nobody signed",
    "165": "a scheme of 0.3 (`type: http`) becomes httpAuthSecurityScheme, which nobody signed",
    "166": "a scheme of 0.3 (`type: apiKey`) becomes apiKeySecurityScheme, which nobody signed",
    "167": "a scheme of 0.3 (`type: http`) becomes httpAuthSecurityScheme, which nobody signed",
}
"""Those of EVERYWHERE that a2a-sdk 1.3.0 verifies as protobuf reads them, but not as its resolver rewrites them."""

ONLY_HERE: Final = dict.fromkeys(
    _ids(
        """
    003 014 022 029 030 043 045 046 047 054 055 057 073 078 082 085 102 105 106 107 109 110 111 113 114 115 117 118
    119 121 122 123 125 129 130 131 135 138 139 143 154 155
    """
    ),
    "the shape of 0.1 to 0.3 alone: readers of 1.0 drop `url` and `security`, so a signature in their form would cover "
    "neither, and none is made",
)
"""Cards that sign and verify here as they are served, and that the SDKs of 1.0 reject."""

NO_COMPANION_NEEDED_IN_0_3: Final = frozenset(
    _ids("014 054 105 106 107 109 111 113 114 115 117 118 119 122 123 125 129 130 131 135")
)
"""Those of ONLY_HERE whose served bytes are also what a2a-sdk 0.3.26 signs."""

UNREAD_IN_0_3: Final = {"102": "/defaultInputModes", "143": "/skills/0/id"}
"""Those of ONLY_HERE that the models of a2a-sdk 0.3.26 refuse, and the first member that is missing."""

REFUSED_HERE: Final = dict.fromkeys(
    ["049", "050", "051", "053"],
    "/capabilities/streaming is the string of a template: readers disagree what it means",
)
"""Cards that the gate refuses."""


WITHOUT_A_HOST: Final = {
    "029": ('"REMPLACER_PAR_L_ENDPOINT_A2A"', '"https://agent.example.com/"'),
    "061": (":HOLE", ":8080"),
    "062": (":HOLE", ":8080"),
    "073": ('"u1"', '"https://agent.example.com/"'),
    "082": (":HOLE", ":8080"),
    "083": (":HOLE", ":8080"),
    "122": ('"ENV"', '"https://agent.example.com/"'),
}
"""Cards whose interfaces have the URL of a template, and what is filled in: as they are, nobody signs them here."""


def load_card(vectors: Path, number: str, *, filled_in: bool = True) -> dict[str, Any]:
    """One real card, without the signatures of others: their keys are unknown, and signing may break them."""
    text = (vectors / "cards" / "files" / f"{number}.json").read_text(encoding="utf-8")
    card: dict[str, Any] = json.loads(text.replace(*WITHOUT_A_HOST.get(number, ("", ""))) if filled_in else text)
    card.pop("signatures", None)
    return card
