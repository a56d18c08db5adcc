//! The `memser` command.

fn main() {}
