"""An agent in LangGraph that remembers: the model is offered memser's tools and decides when to use them.

    pip install langgraph langchain-mcp-adapters
    MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… python langgraph_agent.py 'My bicycle is green.' 'Which bicycle is mine?'

The token should be granted one exact scope (`memser token new --name agent --grant user:ada=write`): the model then
cannot choose another, and need not know of any. `Scripted` stands in for a model, so that this runs without a key; put
yours in its place, such as `ChatOpenAI(model=…)` or `ChatAnthropic(model=…)`.
"""

import asyncio
import os
import sys

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

INSTRUCTIONS = "Store what the user tells you about themselves. Recall before you answer a question about them."


def build(model: BaseChatModel, tools: list[BaseTool]):
    """The loop: the model speaks, its tool calls are made, and it speaks again until it calls none."""
    model = model.bind_tools(tools)

    async def speak(state: MessagesState) -> dict:
        return {"messages": [await model.ainvoke([SystemMessage(INSTRUCTIONS), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", speak)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


class Scripted(BaseChatModel):
    """Recalls at a question, stores anything else, and repeats what the tool said."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **kwargs) -> BaseChatModel:
        return self

    def _generate(self, messages: list[AnyMessage], stop=None, run_manager=None, **kwargs) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages[-1]))])

    def reply(self, last: AnyMessage) -> AIMessage:
        if isinstance(last, ToolMessage):
            return AIMessage(f"{last.name} said: {last.text}")
        if last.text.endswith("?"):
            call = {"name": "recall_memory", "args": {"query": last.text}}
        else:
            call = {"name": "store_memory", "args": {"content": last.text}}
        return AIMessage("", tool_calls=[{**call, "id": "call-1"}])


async def main(messages: list[str]) -> None:
    memser = MultiServerMCPClient(
        {
            "memser": {
                "transport": "streamable_http",
                "url": f"{os.environ['MEMSER_URL']}/mcp",
                "headers": {"Authorization": f"Bearer {os.environ['MEMSER_TOKEN']}"},
            }
        }
    )
    agent = build(Scripted(), await memser.get_tools())
    for message in messages:
        # Each is a conversation of its own: what one knows of another comes from memser.
        state = await agent.ainvoke({"messages": [HumanMessage(message)]})
        print(state["messages"][-1].text)


asyncio.run(main(sys.argv[1:]))
