//! Tests through memser's public surface, on real servers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails as a test does"
)]

mod embedded;
