//! Whether a token is still what it was when its caller came, for answers that last.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::{Auth, Caller};
use crate::clock::Clock;

/// A caller's token, to be looked at again.
#[derive(Clone)]
pub struct Standing {
    auth: Arc<Auth>,
    token: SecretString,
    clock: Clock,
}

impl Standing {
    /// Keeps `token`, which `auth` has just accepted.
    #[must_use]
    pub fn new(auth: &Arc<Auth>, token: &str, clock: Clock) -> Self {
        Self { auth: Arc::clone(auth), token: token.to_owned().into(), clock }
    }

    /// Whether the token still stands for this caller with these grants. Where nobody can say, it does not.
    pub async fn holds(&self, caller: &Caller) -> bool {
        let token = self.token.expose_secret();
        let now = self.auth.identify(token, caller.request_id.clone(), self.clock.now()).await;
        now.is_ok_and(|now| now.subject == caller.subject && now.grants == caller.grants)
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").finish_non_exhaustive()
    }
}
