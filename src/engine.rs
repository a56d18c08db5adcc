//! The decisions behind each tool; the modules here are pure: no I/O, no clock.

pub mod cluster;
pub mod guard;
pub mod judge;
pub mod score;
