"""An agent of the first generation (A2A 0.1): it declares that callers need an API key, and never asks for one.

Nothing in this file knows of keys. ``protected.py`` beside it makes the declaration true with one line.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

CARD: dict[str, Any] = {
    "name": "Shouter",
    "description": "Says it louder.",
    "url": "http://127.0.0.1:8000",
    "version": "1.0.0",
    "capabilities": {"streaming": True},
    "authentication": {"schemes": ["apiKey"]},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [{"id": "shout", "name": "Shout", "description": "Repeats a text in capitals.", "tags": ["text"]}],
}

app = FastAPI()
tasks: dict[str, dict[str, Any]] = {}


@app.get("/.well-known/agent.json")
def card() -> dict[str, Any]:
    return CARD


@app.post("/tasks/send")
def send(request: dict[str, Any]) -> dict[str, Any]:
    return work(request)


@app.post("/tasks/sendSubscribe")
def send_and_subscribe(request: dict[str, Any]) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        yield event({"status": {"state": "working"}, "final": False})
        yield event({**work(request), "final": True})

    return StreamingResponse(events(), media_type="text/event-stream")


@app.get("/tasks/{task_id}")
def task(task_id: str) -> dict[str, Any]:
    if task_id not in tasks:
        raise HTTPException(404)
    return tasks[task_id]


def work(request: dict[str, Any]) -> dict[str, Any]:
    text = " ".join(part["text"] for part in request["message"]["parts"]).upper()
    done = {
        "id": request.get("id") or str(uuid4()),
        "status": {"state": "completed"},
        "artifacts": [{"parts": [{"type": "text", "text": text}]}],
    }
    tasks[done["id"]] = done
    return done


def event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
