//! The public keys of an issuer, fetched from its JSON Web Key Set.
//!
//! Keys are fetched again when they are old, and when a token names one that is not among them, because issuers rotate
//! keys. Whoever sends tokens with made-up key ids causes one fetch in a while and no more. While the issuer does not
//! answer, the keys that are known go on serving.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::Refusal;
use super::jwt::Key;

/// From this age on keys are fetched again.
const FRESH: TimeDelta = TimeDelta::minutes(10);
/// From this age on keys no longer serve: one that the issuer withdrew must not live on because it cannot be reached.
const STALE: TimeDelta = TimeDelta::hours(24);
/// The least time between two fetches.
const PAUSE: TimeDelta = TimeDelta::seconds(30);
/// How long a fetch may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const SET_MAX_BYTES: usize = 1024 * 1024;

/// The keys of an issuer.
#[derive(Clone, Debug)]
pub(super) struct Jwks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    url: Url,
    http: reqwest::Client,
    known: Mutex<Known>,
    /// Held by the one fetch that is under way.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    keys: Arc<[Key]>,
    fetched_at: Option<DateTime<Utc>>,
    tried_at: Option<DateTime<Utc>>,
}

impl Jwks {
    pub(super) fn new(url: Url) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().timeout(FETCH_TIMEOUT).redirect(Policy::none()).build()?;
        Ok(Self(Arc::new(Inner { url, http, known: Mutex::default(), turn: tokio::sync::Mutex::default() })))
    }

    /// Fetches the keys before they are needed; after a failure the first token tries again.
    pub(super) async fn warm_up(&self, now: DateTime<Utc>) -> anyhow::Result<()> {
        self.0.note(now, self.0.fetch().await)
    }

    /// The keys among which the one is that signed a token with this header, if any did.
    pub(super) async fn keys_for(&self, header: &Header, now: DateTime<Utc>) -> Result<Arc<[Key]>, Refusal> {
        let (keys, age) = self.known(now);
        let is_known = keys.iter().any(|key| key.may_have_signed(header));
        let is_younger = |limit| age.is_some_and(|age| age < limit);
        // While somebody else fetches, what is known is good enough.
        let wait_not = is_younger(FRESH) || is_younger(STALE) && self.0.turn.try_lock().is_err();
        if is_known && wait_not {
            return Ok(keys);
        }
        self.fetch_in_turn(now).await;
        match self.known(now) {
            (keys, Some(age)) if age < STALE => Ok(keys),
            _ => Err(Refusal::Unavailable),
        }
    }

    fn known(&self, now: DateTime<Utc>) -> (Arc<[Key]>, Option<TimeDelta>) {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&known.keys), known.fetched_at.map(|at| now - at))
    }

    /// Fetches the keys unless that was tried a moment ago; waits for a fetch that is under way. A task of its own goes
    /// on when the caller goes away: who hangs up at once must not keep others from new keys.
    async fn fetch_in_turn(&self, now: DateTime<Utc>) {
        let inner = Arc::clone(&self.0);
        let fetch = tokio::spawn(async move {
            let _turn = inner.turn.lock().await;
            {
                let mut known = inner.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.tried_at.is_some_and(|at| now - at < PAUSE) {
                    return;
                }
                known.tried_at = Some(now);
            }
            let fetched = inner.fetch().await;
            if let Err(error) = inner.note(now, fetched) {
                tracing::warn!("{error:#}");
            }
        });
        // It neither panics nor is it cancelled, other than by the end of the process.
        let _ = fetch.await;
    }
}

impl Inner {
    fn note(&self, now: DateTime<Utc>, fetched: anyhow::Result<Arc<[Key]>>) -> anyhow::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.tried_at = Some(now);
        known.keys = fetched.context("JWKS_URL: the issuer's keys cannot be fetched")?;
        known.fetched_at = Some(now);
        Ok(())
    }

    async fn fetch(&self) -> anyhow::Result<Arc<[Key]>> {
        let mut answer = self.http.get(self.url.clone()).send().await?.error_for_status()?;
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            text.extend_from_slice(&chunk);
            ensure!(text.len() <= SET_MAX_BYTES, "the key set is larger than {SET_MAX_BYTES} bytes");
        }
        let keys = keys_of_set(&text)?;
        ensure!(!keys.is_empty(), "there is no key for RS256, ES256 or EdDSA among them");
        Ok(keys.into())
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The usable keys of a set: keys of other kinds may stand beside them.
fn keys_of_set(text: &[u8]) -> anyhow::Result<Vec<Key>> {
    let set: KeySet = serde_json::from_slice(text).context("the answer is no key set")?;
    Ok(set.keys.into_iter().filter_map(|key| usable(&serde_json::from_value(key).ok()?)).collect())
}

/// A public key that signs, with its one algorithm. A secret in a published set is a secret no longer.
fn usable(jwk: &Jwk) -> Option<Key> {
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|what| *what == PublicKeyUse::Signature);
    let fits = jwk.common.key_algorithm.is_none_or(|algorithm| algorithm == named);
    let checks = DecodingKey::from_jwk(jwk).ok()?;
    (signs && fits).then(|| Key { id: jwk.common.key_id.clone(), algorithm, checks })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_public_keys_that_sign_are_taken_each_with_its_own_algorithm() {
        // The examples of RFC 7517 (A.1) and RFC 8037 (A.2).
        let p256 = json!({ "kty": "EC", "crv": "P-256", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
                           "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM" });
        let ed25519 =
            json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
        let with = |key: &Value, name: &str, value: &str| {
            let mut key = key.clone();
            key[name] = value.into();
            key
        };
        let set = json!({ "keys": [
            with(&p256, "kid", "ec"),
            with(&ed25519, "kid", "ed"),
            with(&p256, "use", "enc"),
            with(&p256, "alg", "ES384"),
            with(&p256, "crv", "P-384"),
            { "kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "shared" },
            { "kty": "new", "kid": "unknown" },
            "nonsense",
        ] });
        let keys = keys_of_set(set.to_string().as_bytes()).unwrap();
        let found: Vec<_> = keys.iter().map(|key| (key.id.as_deref(), key.algorithm)).collect();
        assert_eq!(found, [(Some("ec"), Algorithm::ES256), (Some("ed"), Algorithm::EdDSA)]);
        assert!(keys_of_set(b"<html>").is_err());
    }
}
