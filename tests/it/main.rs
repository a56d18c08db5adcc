//! Tests through memser's public surface, on real servers.

#![cfg(test)]
#![expect(unreachable_pub, reason = "a test binary exports nothing")]

mod consolidate;
mod degraded;
mod embed;
mod embedded;
mod endpoint;
mod forget;
mod http;
mod kinds;
mod layout;
mod list;
mod local_model;
mod process;
mod protocol;
mod recall;
mod review;
mod scopes;
mod spaces;
mod starts;
mod store;
mod support;
mod time;
mod tools;
mod transport;
mod working;
