"""Three agents of the first generation (A2A 0.1) that write a document together: outline, document, summary.

Each declares that callers need an API key, and signs its card. They share one store of keys, so one key opens all
three, and one revocation closes them. Cards of 0.1 have no word for scopes; cards of 0.2 and later can demand one of
each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import ASGIApp

from a2a_trust import ApiKeyVerifier, CardServing, SqliteApiKeys, load_private_key, principal_of, protect
from a2a_trust.auth import CredentialAt, InHeader

__all__ = ["WRITERS", "agent"]


def outline(text: str) -> str:
    return "\n".join(f"{number}. {part} {text}" for number, part in enumerate(("Why", "How", "When"), 1))


def document(text: str) -> str:
    return "\n\n".join(f"# {line}\nAbout this, much could be said." for line in text.splitlines())


def summary(text: str) -> str:
    return "; ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


WRITERS: dict[str, Callable[[str], str]] = {"outline": outline, "document": document, "summary": summary}


def agent(name: str, url: str, store: Path | str, key: Path | str) -> ASGIApp:
    """One of the three, behind its card, which is signed with the key in that file."""
    card: dict[str, Any] = {
        "name": name.title(),
        "description": f"Writes the {name}.",
        "url": url,
        "version": "1.0.0",
        "capabilities": {},
        "authentication": {"schemes": ["apiKey"]},
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "skills": [{"id": name, "name": name.title(), "description": f"Writes the {name}.", "tags": ["writing"]}],
    }
    app = FastAPI()

    @app.post("/tasks/send")
    def send(request: dict[str, Any], http: Request) -> dict[str, Any]:
        caller = principal_of(http.scope)  # whom the card admitted
        text = "\n".join(part["text"] for part in request["message"]["parts"])
        written = {"parts": [{"type": "text", "text": WRITERS[name](text)}]}
        return {
            "id": request.get("id"),
            "status": {"state": "completed"},
            "artifacts": [written],
            "metadata": {"caller": caller.id},
        }

    keys = ApiKeyVerifier(SqliteApiKeys(store))
    places = {"apiKey": CredentialAt(InHeader("X-API-Key"), keys)}
    return protect(app, card=card, verifiers=places, serving=CardServing(signer=load_private_key(key)))
