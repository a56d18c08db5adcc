//! What turns text into vectors and summaries.

mod breaker;
mod cache;
pub mod chat;
pub mod embed;
pub mod extract;
pub mod hash;
mod link;
pub mod local;
pub mod openai;
mod pieces;
mod span;
