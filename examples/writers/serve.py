"""One of the three writers, for a server. ``WRITER``, ``WRITER_URL``, ``API_KEYS`` and ``CARD_KEY`` say which, where,
who may, and with which key its card is signed.

::

    WRITER=outline WRITER_URL=http://127.0.0.1:8001 API_KEYS=keys.db CARD_KEY=card.key \\
        uvicorn --app-dir examples/writers serve:app
"""

from __future__ import annotations

import os

from agents import agent

app = agent(os.environ["WRITER"], os.environ["WRITER_URL"], os.environ["API_KEYS"], os.environ["CARD_KEY"])
