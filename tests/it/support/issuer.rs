//! An issuer of tokens with keys of its own, a key set over HTTP, and rotation.

use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

/// A key pair with its id.
pub struct SigningKey {
    pub id: String,
    pub algorithm: Algorithm,
    pub private: EncodingKey,
    /// As `JWT_PUBLIC_KEY_FILE` wants it.
    pub public_pem: String,
}

impl SigningKey {
    pub fn rsa(id: &str) -> Self {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let private: Pkcs8V1Der = pair.as_der().unwrap();
        let public: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        Self::of(id, Algorithm::RS256, private.as_ref(), public.as_ref())
    }

    pub fn p256(id: &str) -> Self {
        let private =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private.as_ref()).unwrap();
        let public: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        Self::of(id, Algorithm::ES256, private.as_ref(), public.as_ref())
    }

    pub fn ed25519(id: &str) -> Self {
        let private = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(private.as_ref()).unwrap();
        let public: PublicKeyX509Der = pair.public_key().as_der().unwrap();
        Self::of(id, Algorithm::EdDSA, private.as_ref(), public.as_ref())
    }

    fn of(id: &str, algorithm: Algorithm, private: &[u8], public: &[u8]) -> Self {
        let armoured = pem("PRIVATE KEY", private);
        let private = match algorithm {
            Algorithm::RS256 => EncodingKey::from_rsa_pem(armoured.as_bytes()),
            Algorithm::ES256 => EncodingKey::from_ec_pem(armoured.as_bytes()),
            _ => EncodingKey::from_ed_pem(armoured.as_bytes()),
        };
        let public_pem = pem("PUBLIC KEY", public);
        Self { id: id.to_owned(), algorithm, private: private.unwrap(), public_pem }
    }

    /// The public key as a set has it.
    pub fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.private, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).unwrap()
    }

    pub fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        encode(&header, claims, &self.private).unwrap()
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A key set at an address.
pub struct KeySet {
    server: MockServer,
    answer: Arc<Mutex<ResponseTemplate>>,
}

impl KeySet {
    pub async fn of(keys: &[&SigningKey]) -> Self {
        let (server, answer) = (MockServer::start().await, Arc::new(Mutex::new(set(keys))));
        let given = Arc::clone(&answer);
        let respond = move |_: &wiremock::Request| given.lock().unwrap().clone();
        Mock::given(any()).respond_with(respond).mount(&server).await;
        Self { server, answer }
    }

    pub fn url(&self) -> String {
        format!("{}/jwks", self.server.uri())
    }

    /// From now on these are the keys.
    pub fn rotate(&self, keys: &[&SigningKey]) {
        *self.answer.lock().unwrap() = set(keys);
    }

    /// From now on nobody gets a key.
    pub fn break_down(&self) {
        *self.answer.lock().unwrap() = ResponseTemplate::new(503);
    }

    /// How often it was asked.
    pub async fn asked(&self) -> usize {
        self.server.received_requests().await.unwrap().len()
    }
}

fn set(keys: &[&SigningKey]) -> ResponseTemplate {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    ResponseTemplate::new(200).set_body_json(json!({ "keys": keys }))
}
