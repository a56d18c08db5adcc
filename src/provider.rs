//! What turns text into vectors and summaries.

pub mod extract;
pub mod hash;
