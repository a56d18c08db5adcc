//! Whose tokens are accepted, as it is configured; and the first token, where nothing is.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use crate::auth::{Auth, Grant, KeySource, random_token};
use crate::clock::Clock;
use crate::config::{Config, Storage};
use crate::model::Action;

/// Everybody who is let in.
pub(super) struct Accepted {
    pub(super) auth: Auth,
    /// The first token, where this start made it.
    pub(super) first_token: Option<SecretString>,
    /// Where the first token is kept, where there is one.
    pub(super) token_file: Option<PathBuf>,
}

/// The tokens that are accepted. Where none is configured and memser has a data folder, one is made at the first start
/// and kept there; there is no anonymous mode.
pub(super) async fn accept(config: &Config, mcp_url: &Url, clock: &Clock) -> anyhow::Result<Accepted> {
    let now = clock.now();
    let mut auth = Auth::default();
    if let Some(path) = &config.tokens_file {
        let hint = "make it with: memser token new --name NAME --grant SCOPE=ACTION";
        ensure!(path.exists(), "MEMSER_TOKENS_FILE: there is no {}; {hint}", path.display());
    }
    if let Some(path) = config.tokens_path()? {
        auth.add_file(&path, now)?;
    }
    if let Some(token) = &config.token {
        auth.add_token("MEMSER_TOKEN", token, vec![Grant::everything(Action::Admin)]);
    }
    if let Some(issuer) = &config.issuer {
        if let KeySource::Jwks(url) = &issuer.keys
            && url.scheme() == "http"
            && !url.host().is_some_and(|host| is_loopback(&host))
        {
            tracing::warn!(
                "JWKS_URL is not https: whoever can change its answer on the way makes valid tokens"
            );
        }
        let mut issuer = issuer.clone();
        if issuer.audiences.is_empty() {
            issuer.audiences.push(mcp_url.as_str().to_owned());
        }
        auth.add_issuer(issuer).context("JWT_PUBLIC_KEY_FILE")?;
        if let Err(error) = auth.warm_up(now).await {
            tracing::warn!("{error:#}");
        }
    }
    if config.tokens_file.is_some() || config.token.is_some() || config.issuer.is_some() {
        if auth.is_empty(now) {
            bail!("MEMSER_TOKENS_FILE names no token: nobody could call");
        }
        return Ok(Accepted { auth, first_token: None, token_file: None });
    }
    let Storage::Embedded(embedded) = &config.storage else {
        bail!(
            "no token is configured: set MEMSER_TOKEN (for example to the output of: openssl rand -hex 32), \
             MEMSER_TOKENS_FILE, or an issuer of JWTs"
        );
    };
    let path = embedded.resolve_data_dir()?.join("token");
    let (token, is_new) = first_token(&path)?;
    auth.add_token("first", &token, vec![Grant::everything(Action::Admin)]);
    Ok(Accepted { auth, first_token: is_new.then_some(token), token_file: Some(path) })
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Reads the first token, or makes it: 256 random bits, readable by memser's user alone.
fn first_token(path: &Path) -> anyhow::Result<(SecretString, bool)> {
    match fs::read_to_string(path) {
        Ok(token) if !token.trim().is_empty() => {
            return Ok((SecretString::from(token.trim().to_owned()), false));
        }
        Ok(_) => bail!("{}: the token file is empty; remove it to get a new token", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let token = random_token();
    // Written beside and linked, so that no crash leaves half a token, and of several that start at once one makes it.
    let partial = path.with_extension(format!("{:08x}", rand::random::<u32>()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .with_context(|| format!("cannot write {}", partial.display()))?;
    writeln!(file, "{}", token.expose_secret())?;
    file.sync_all()?;
    let linked = fs::hard_link(&partial, path);
    fs::remove_file(&partial)?;
    match linked {
        Ok(()) => Ok((token, true)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => first_token(path),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn of_several_that_start_at_once_one_makes_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let start = Barrier::new(8);
        let first = || {
            start.wait();
            first_token(&path).unwrap()
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(first)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|(_, is_new)| *is_new).count(), 1);
        let kept = fs::read_to_string(&path).unwrap();
        assert!(made.iter().all(|(token, _)| token.expose_secret() == kept.trim()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
