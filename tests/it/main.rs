//! Tests through memser's public surface, on real servers.

#![cfg(test)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails as a test does"
)]
#![expect(unreachable_pub, reason = "a test binary exports nothing")]

mod consolidate;
mod embed;
mod embedded;
mod forget_list;
mod http;
mod recall;
mod scopes;
mod store;
mod support;
mod tools;
mod working;
