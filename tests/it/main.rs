//! Tests through memser's public surface, on real servers.

#![cfg(test)]
#![expect(unreachable_pub, reason = "a test binary exports nothing")]

mod alike;
mod attack;
mod connector;
mod consolidate;
mod degraded;
mod doctor;
mod embed;
mod embedded;
mod endpoint;
mod facts;
mod forget;
mod http;
mod jwt;
mod kinds;
mod layout;
mod leaks;
mod limits;
mod list;
mod listen;
mod llm;
mod local_model;
mod matrix;
mod metrics;
mod offers;
mod pooler;
mod process;
mod protocol;
mod recall;
mod recall_filters;
mod recall_kinds;
mod recall_large;
mod rest;
mod review;
mod scopes;
mod second_wall;
mod secrets;
mod spaces;
mod starts;
mod stdio;
mod store;
mod support;
mod sweeps;
mod sweeps_llm;
mod sweeps_process;
mod time;
mod tokens;
mod tools;
mod traces;
mod transport;
mod wall_cost;
mod working;
