//! memser: durable, scoped memory for any MCP agent.
//!
//! # Layout
//! Dependencies point one way: `main -> {app, doctor} -> {http, stdio, mcp, jobs} -> engine -> {db, working, provider} -> {text, api,
//! model, error, clock}`. Transport parses, the engine decides, `db` speaks SQL; `tests/it/layout.rs` holds the
//! modules to it.

pub mod api;
pub mod app;
pub mod args;
pub mod auth;
pub mod clock;
pub mod config;
pub mod db;
pub mod doctor;
pub mod engine;
pub mod error;
pub mod http;
pub mod jobs;
pub mod mcp;
pub mod metrics;
pub mod model;
pub mod port;
pub mod provider;
pub mod stdio;
pub mod telemetry;
pub mod text;
pub mod working;
