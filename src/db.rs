//! All SQL, and the private Postgres that runs where no other database is named.

pub mod embedded;
