//! Tests through memser's public surface, on real servers.

#![cfg(test)]
#![expect(unreachable_pub, reason = "a test binary exports nothing")]

mod consolidate;
mod degraded;
mod embed;
mod embedded;
mod endpoint;
mod forget_list;
mod http;
mod layout;
mod llm;
mod local_model;
mod process;
mod protocol;
mod recall;
mod scopes;
mod spaces;
mod starts;
mod store;
mod support;
mod tools;
mod transport;
mod working;
