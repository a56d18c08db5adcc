//! What turns text into vectors and summaries.

mod breaker;
mod cache;
pub mod embed;
pub mod extract;
pub mod hash;
pub mod local;
pub mod openai;
mod pieces;
