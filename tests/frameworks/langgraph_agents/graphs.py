"""Two graphs that answer by themselves: each is an assistant of LangGraph's server, and so an A2A agent."""

# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph


def _graph(name: str) -> Any:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{name} heard {state['messages'][-1].text}")]}

    return StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile(name=name)


billing = _graph("billing")
support = _graph("support")
