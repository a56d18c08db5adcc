//! memser: durable, scoped memory for any MCP agent.
//!
//! # Layout
//! Dependencies point one way: `main -> app -> {http, mcp, jobs} -> engine -> {db, working, provider} -> {text, api,
//! model, error, clock}`. Transport parses, the engine decides, `db` speaks SQL; `tests/it/layout.rs` holds the
//! modules to it.

pub mod api;
pub mod args;
pub mod auth;
pub mod clock;
pub mod engine;
pub mod error;
pub mod http;
pub mod mcp;
pub mod model;
