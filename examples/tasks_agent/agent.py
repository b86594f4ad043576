"""An agent of the first generation (A2A 0.1): it declares that callers need an API key, and never asks for one.

Nothing in this file knows of keys. ``protected.py`` beside it makes the declaration true with one line.
"""

from __future__ import annotations

import asyncio
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
    return work(begin(request)["id"], request)


@app.post("/tasks/sendSubscribe")
def send_and_subscribe(request: dict[str, Any]) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        begun = begin(request)
        yield event({**begun, "final": False})
        await asyncio.sleep(1)  # it thinks
        yield event({**work(begun["id"], request), "final": True})

    return StreamingResponse(events(), media_type="text/event-stream")


@app.get("/tasks/{task_id}")
def task(task_id: str) -> dict[str, Any]:
    if task_id not in tasks:
        raise HTTPException(404)
    return tasks[task_id]


def begin(request: dict[str, Any]) -> dict[str, Any]:
    task_id = request.get("id") or str(uuid4())
    tasks[task_id] = {"id": task_id, "status": {"state": "working"}}
    return tasks[task_id]


def work(task_id: str, request: dict[str, Any]) -> dict[str, Any]:
    text = " ".join(part["text"] for part in request["message"]["parts"]).upper()
    artifact = {"parts": [{"type": "text", "text": text}]}
    tasks[task_id] = {"id": task_id, "status": {"state": "completed"}, "artifacts": [artifact]}
    return tasks[task_id]


def event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
