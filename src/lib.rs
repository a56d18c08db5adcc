//! memser: durable, scoped memory for any MCP agent.

pub mod engine;
pub mod provider;
pub mod text;
