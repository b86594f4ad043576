"""One of the three writers, for a server. ``WRITER``, ``WRITER_URL`` and ``API_KEYS`` say which, where, and who may.

::

    WRITER=outline WRITER_URL=http://127.0.0.1:8001 API_KEYS=keys.db uvicorn --app-dir examples/writers serve:app
"""

from __future__ import annotations

import os

from agents import agent

app = agent(os.environ["WRITER"], os.environ["WRITER_URL"], os.environ["API_KEYS"])
