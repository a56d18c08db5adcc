//! The settings of the issuer whose JSON Web Tokens are accepted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use secrecy::SecretString;
use url::Url;

use super::source::Source;
use crate::auth::{JwtSettings, KeySource, SECRET_MIN_BYTES};

/// What each of the settings needs, that one of these is set.
const SOURCES: &str = "JWKS_URL, JWT_PUBLIC_KEY_FILE or JWT_SECRET";

/// The issuer, where one is set. Without `JWT_AUDIENCE` the audiences are empty.
pub(super) fn issuer(source: &Source) -> anyhow::Result<Option<JwtSettings>> {
    let secret = source.text("JWT_SECRET").map(checked_secret).transpose()?;
    let pem: Option<PathBuf> = source.maybe("JWT_PUBLIC_KEY_FILE")?;
    let set: Option<Url> = source.maybe("JWKS_URL")?;
    let keys = match (secret, pem, set) {
        (None, None, None) => {
            let alone = ["JWT_ISSUER", "JWT_AUDIENCE", "JWT_SCOPE_TEMPLATE"];
            if let Some(name) = alone.iter().find(|name| source.text(name).is_some()) {
                bail!("{name} is set, but none of {SOURCES}: there is nothing to check tokens with");
            }
            return Ok(None);
        }
        (Some(secret), None, None) => KeySource::Secret(secret),
        (None, Some(path), None) => KeySource::Pem(read_pem(&path)?),
        (None, None, Some(url)) => KeySource::Jwks(checked_url(url)?),
        _ => bail!("more than one of {SOURCES} is set: memser accepts the tokens of one issuer"),
    };
    Ok(Some(JwtSettings {
        keys,
        issuer: source.maybe("JWT_ISSUER")?.context("JWT_ISSUER is not set: name the `iss` of the tokens")?,
        audiences: source.list("JWT_AUDIENCE"),
        template: source.maybe("JWT_SCOPE_TEMPLATE")?,
    }))
}

/// Where OAuth clients get tokens: the issuer, where it is a URL and does not share its secret with memser.
pub(super) fn authorization_server(settings: &JwtSettings) -> Option<String> {
    let is_public = !matches!(settings.keys, KeySource::Secret(_));
    let url = Url::parse(&settings.issuer).ok()?;
    (is_public && matches!(url.scheme(), "http" | "https")).then(|| settings.issuer.clone())
}

fn checked_secret(secret: &str) -> anyhow::Result<SecretString> {
    ensure!(
        secret.len() >= SECRET_MIN_BYTES,
        "JWT_SECRET is shorter than {SECRET_MIN_BYTES} bytes; try: openssl rand -hex 32"
    );
    Ok(SecretString::from(secret))
}

fn read_pem(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("JWT_PUBLIC_KEY_FILE: cannot read {}", path.display()))
}

fn checked_url(url: Url) -> anyhow::Result<Url> {
    ensure!(
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some(),
        "JWKS_URL is no http or https URL, for example https://login.example.com/jwks"
    );
    Ok(url)
}
