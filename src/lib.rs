//! memser: durable, scoped memory for any MCP agent.

pub mod db;
