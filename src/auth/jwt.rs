//! JSON Web Tokens of an issuer that the operator trusts: signature, claims, and the grants that they stand for.

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use super::Refusal;
use super::grant::Grant;
use super::jwks::Jwks;
use crate::model::{Action, Scope};

/// Stands before the `sub` of a JWT, so that no subject of an issuer is taken for a static token.
pub(super) const SUBJECT_PREFIX: &str = "jwt:";
/// How far the issuer's clock may be off, in seconds.
const LEEWAY: f64 = 60.0;
/// The longest token that is looked at.
const TOKEN_MAX_BYTES: usize = 16 * 1024;
/// The shortest secret for HS256: as long as its hash (RFC 7518, 3.2).
pub const SECRET_MIN_BYTES: usize = 32;

/// Which JWTs are accepted.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// What signatures are checked with.
    pub keys: KeySource,
    /// The only accepted `iss`.
    pub issuer: String,
    /// One of these has to be in `aud`.
    pub audiences: Vec<String>,
    /// Which scope a subject owns, for tokens with OAuth scopes.
    pub template: Option<ScopeTemplate>,
}

/// What signatures are checked with.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// HS256 with a secret that the issuer shares.
    Secret(SecretString),
    /// A public key in PEM: RS256, ES256 or `EdDSA`, as the key is.
    Pem(String),
    /// A JSON Web Key Set: the same algorithms, each key by its own.
    Jwks(Url),
}

/// The scope that belongs to a subject, such as `user:{sub}`. Two subjects never share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeTemplate {
    before: String,
    after: String,
}

impl std::str::FromStr for ScopeTemplate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let template = text
            .split_once("{sub}")
            .map(|(before, after)| Self { before: before.to_owned(), after: after.to_owned() })
            .filter(|template| !template.after.contains("{sub}") && template.scope("x").is_some());
        template.ok_or_else(|| {
            anyhow::anyhow!(
                "{text:?}: a scope's name with {{sub}} in it once and without '*', such as user:{{sub}}"
            )
        })
    }
}

impl ScopeTemplate {
    /// The scope of a subject. None for a subject that cannot stand in a scope's name letter by letter: after trimming
    /// or composing it could be another's.
    fn scope(&self, sub: &str) -> Option<Scope> {
        verbatim(sub)?;
        verbatim(&format!("{}{sub}{}", self.before, self.after))
    }
}

fn verbatim(name: &str) -> Option<Scope> {
    Scope::parse(name).ok().filter(|scope| scope.as_str() == name)
}

/// A public key or secret with the one algorithm that it is good for: the token's header never chooses.
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) checks: DecodingKey,
}

impl Key {
    /// Whether it is the one that a token's header tells of: by its id, where both have one.
    pub(super) fn may_have_signed(&self, header: &Header) -> bool {
        let is_named = header.kid.is_none() || self.id.is_none() || header.kid == self.id;
        is_named && header.alg == self.algorithm
    }
}

impl std::fmt::Debug for Key {
    /// Without the key, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Keys {
    One(Key),
    Remote(Jwks),
}

/// Turns JWTs into subjects with grants.
#[derive(Debug)]
pub(super) struct Verifier {
    keys: Keys,
    validation: Validation,
    template: Option<ScopeTemplate>,
}

/// What memser reads of a token's payload.
#[derive(Debug, Default, Deserialize)]
struct Claims {
    sub: String,
    // As one text: jsonwebtoken would take a list as well.
    #[serde(rename = "iss")]
    _issuer: String,
    exp: f64,
    nbf: Option<f64>,
    scope: Option<String>,
    memser_grants: Option<Vec<String>>,
}

impl Verifier {
    pub(super) fn new(settings: JwtSettings) -> anyhow::Result<Self> {
        let keys = match settings.keys {
            KeySource::Secret(secret) => Keys::One(Key {
                id: None,
                algorithm: Algorithm::HS256,
                checks: DecodingKey::from_secret(secret.expose_secret().as_bytes())?,
            }),
            KeySource::Pem(pem) => Keys::One(key_of_pem(pem.as_bytes())?),
            KeySource::Jwks(url) => Keys::Remote(Jwks::new(url)?),
        };
        let mut validation = Validation::default();
        // The time is checked below, by memser's own clock.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        validation.set_required_spec_claims(&["exp", "sub", "iss", "aud"]);
        validation.set_issuer(&[settings.issuer]);
        validation.set_audience(&settings.audiences);
        Ok(Self { keys, validation, template: settings.template })
    }

    /// Fetches the keys, where they are elsewhere.
    pub(super) async fn warm_up(&self, now: DateTime<Utc>) -> anyhow::Result<()> {
        match &self.keys {
            Keys::One(_) => Ok(()),
            Keys::Remote(jwks) => jwks.warm_up(now).await,
        }
    }

    /// The subject and the grants of a token that holds at `now`.
    pub(super) async fn verify(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<(String, Vec<Grant>), Refusal> {
        if token.len() > TOKEN_MAX_BYTES {
            return Err(Refusal::Invalid);
        }
        let header = decode_header(token).map_err(|_| Refusal::Invalid)?;
        if !header.typ.as_deref().is_none_or(may_be_an_access_token) {
            return Err(Refusal::Invalid);
        }
        let claims = match &self.keys {
            Keys::One(key) => self.read(token, &header, std::slice::from_ref(key)),
            Keys::Remote(jwks) => self.read(token, &header, &jwks.keys_for(&header, now).await?),
        };
        let claims = claims.ok_or(Refusal::Invalid)?.map_err(|error| refused(fault(&error)))?;
        if let Some(reason) = out_of_time(&claims, now) {
            return Err(refused(reason));
        }
        let grants = grants(&claims, self.template.as_ref()).map_err(refused)?;
        Ok((format!("{SUBJECT_PREFIX}{}", claims.sub), grants))
    }

    /// The claims, where one of the keys signed them; an error where they are not for memser.
    fn read(
        &self,
        token: &str,
        header: &Header,
        keys: &[Key],
    ) -> Option<Result<Claims, jsonwebtoken::errors::Error>> {
        keys.iter().filter(|key| key.may_have_signed(header)).find_map(|key| {
            let mut validation = self.validation.clone();
            validation.algorithms = vec![key.algorithm];
            match decode::<Claims>(token, &key.checks, &validation) {
                Ok(token) => Some(Ok(token.claims)),
                Err(error) => is_signed(&error).then_some(Err(error)),
            }
        })
    }
}

/// JWTs of other kinds, such as those that end a session, are signed with the same keys.
fn may_be_an_access_token(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    ["jwt", "at+jwt"].contains(&kind.strip_prefix("application/").unwrap_or(&kind))
}

/// Refuses a token whose signature holds: the issuer's or memser's settings may be at fault, and the operator wants to
/// know. Nobody else can make memser write this.
fn refused(reason: &str) -> Refusal {
    tracing::warn!("a token of the issuer was refused: {reason}");
    Refusal::Invalid
}

/// Whether a token failed for what it says: signatures come first.
fn is_signed(error: &jsonwebtoken::errors::Error) -> bool {
    use jsonwebtoken::errors::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::InvalidAudience
            | ErrorKind::InvalidIssuer
            | ErrorKind::MissingRequiredClaim(_)
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Json(_)
    )
}

fn fault(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidAudience => "its aud has none of JWT_AUDIENCE",
        ErrorKind::InvalidIssuer => "its iss is not JWT_ISSUER",
        _ => "a claim is missing or of the wrong type",
    }
}

fn key_of_pem(pem: &[u8]) -> anyhow::Result<Key> {
    let readings = [
        (Algorithm::RS256, DecodingKey::from_rsa_pem(pem)),
        (Algorithm::ES256, DecodingKey::from_ec_pem(pem)),
        (Algorithm::EdDSA, DecodingKey::from_ed_pem(pem)),
    ];
    readings
        .into_iter()
        .find_map(|(algorithm, key)| Some(Key { id: None, algorithm, checks: key.ok()? }))
        .ok_or_else(|| anyhow::anyhow!("no public key of RSA, P-256 or Ed25519 in PEM"))
}

fn out_of_time(claims: &Claims, now: DateTime<Utc>) -> Option<&'static str> {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of any date fit 53 bits of seconds")]
    let now = now.timestamp_micros() as f64 / 1e6;
    if now >= claims.exp + LEEWAY {
        return Some("it has expired");
    }
    claims.nbf.is_some_and(|nbf| now < nbf - LEEWAY).then_some("its nbf is in the future")
}

/// What a token's claims grant: `memser_grants` as it stands, or else the strongest OAuth scope on the subject's own
/// scope. A subject is one that cannot be taken for another in a log either.
fn grants(claims: &Claims, template: Option<&ScopeTemplate>) -> Result<Vec<Grant>, &'static str> {
    if verbatim(&claims.sub).is_none() {
        return Err("its sub is empty, too long, or has a '*' or an unprintable character");
    }
    if let Some(listed) = &claims.memser_grants {
        let parsed: anyhow::Result<Vec<Grant>> = listed.iter().map(|grant| grant.parse()).collect();
        return parsed.map_err(|_| "its memser_grants has an entry that is not of the form scope=action");
    }
    let names = claims.scope.as_deref().unwrap_or_default().split_ascii_whitespace();
    let action: Option<Action> = names.filter_map(|name| name.strip_prefix("memory:")?.parse().ok()).max();
    let (Some(action), Some(template)) = (action, template) else {
        return Ok(Vec::new());
    };
    let scope = template.scope(&claims.sub).ok_or("its sub makes no scope's name")?;
    Ok(vec![Grant::exactly(scope, action)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(text: &str) -> ScopeTemplate {
        text.parse().unwrap()
    }

    fn claims(sub: &str, scope: Option<&str>, listed: Option<&[&str]>) -> Claims {
        Claims {
            sub: sub.to_owned(),
            scope: scope.map(str::to_owned),
            memser_grants: listed.map(|listed| listed.iter().map(|grant| (*grant).to_owned()).collect()),
            ..Claims::default()
        }
    }

    fn shown(claims: &Claims) -> Result<Vec<String>, &'static str> {
        let template = template("user:{sub}");
        Ok(grants(claims, Some(&template))?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn oauth_scopes_count_on_the_subjects_own_scope_alone() {
        assert_eq!(
            shown(&claims("bob", Some("openid memory:read memory:write"), None)).unwrap(),
            ["user:bob=write"]
        );
        assert_eq!(shown(&claims("bob", Some("memory:owner memory memory:"), None)).unwrap(), [""; 0]);
        assert_eq!(shown(&claims("bob", None, None)).unwrap(), [""; 0]);
        assert!(grants(&claims("bob", Some("memory:read"), None), None).unwrap().is_empty());
    }

    #[test]
    fn listed_grants_count_instead_and_a_wrong_one_spoils_the_token() {
        let both = claims("bob", Some("memory:admin"), Some(&["team:*=read", "user:bob=write"]));
        assert_eq!(shown(&both).unwrap(), ["team:*=read", "user:bob=write"]);
        assert_eq!(shown(&claims("bob", Some("memory:admin"), Some(&[]))).unwrap(), [""; 0]);
        assert!(shown(&claims("bob", None, Some(&["team:*=read", "user:bob"]))).is_err());
    }

    #[test]
    fn no_subject_widens_its_grant() {
        for sub in [
            "",
            "*",
            "b*",
            " bob",
            "bob ",
            "bob\n",
            "bo\u{200b}b",
            "bob\u{fe0f}",
            "bob\u{3164}",
            "e\u{301}ve",
        ] {
            assert!(shown(&claims(sub, Some("memory:read"), None)).is_err(), "{sub:?}");
        }
        // Composed with the template's last letter it would be another subject's scope.
        assert_eq!(template("use{sub}").scope("\u{301}x"), None);
    }

    #[test]
    fn a_template_names_one_scope_for_each_subject() {
        for text in ["user", "user:*", "{sub}*", "{sub}{sub}", " {sub}", "user:{sub} ", "a\n{sub}"] {
            assert!(text.parse::<ScopeTemplate>().is_err(), "{text:?}");
        }
        assert_eq!(template("org:7:{sub}:notes").scope("bob").unwrap().as_str(), "org:7:bob:notes");
    }

    proptest! {
        #[test]
        fn two_subjects_never_share_a_scope(a in "\\PC{1,12}", b in "\\PC{1,12}") {
            let template = template("u{sub}n");
            let (first, second) = (template.scope(&a), template.scope(&b));
            prop_assert!(a == b || first.is_none() || first != second);
        }
    }

    #[test]
    fn a_token_holds_from_nbf_to_exp_with_a_minute_of_leeway() {
        let at = |seconds| DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(seconds);
        let claims = Claims { exp: 2_000.0, nbf: Some(1_000.0), ..Claims::default() };
        for (now, holds) in [(939, false), (940, true), (2_059, true), (2_060, false)] {
            assert_eq!(out_of_time(&claims, at(now)).is_none(), holds, "{now}");
        }
    }
}
