//! Where clients reach memser: whether the address makes sense, leads here, and is one that memser answers to.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Client, StatusCode, redirect};
use serde_json::Value;
use url::{Host, Url};

use super::{Finding, warning, well};
use crate::config::Config;

/// How long the address may take to answer: a person waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// What OAuth clients ask for first; behind the check of `Host`, and open to everybody.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let Some(url) = &config.public_url else {
        return vec![without_url(config.bind, !config.allowed_hosts.is_empty())];
    };
    let mut findings: Vec<Finding> = form(url).map(warning).into_iter().collect();
    findings.push(match ask(url).await {
        Ok((status, body)) => judge(url, status, &body),
        Err(error) => {
            let how = if error.is_timeout() { "does not answer in time" } else { "cannot be reached" };
            warning(format!(
                "address: {url} {how} from here ({}): is memser running, does the name lead to it or to its proxy, and is the \
                 certificate good?",
                root(&error)
            ))
        }
    });
    findings
}

/// A memser that nobody gave a name.
fn without_url(bind: SocketAddr, has_hosts: bool) -> Finding {
    if bind.ip().is_loopback() {
        return well(format!(
            "address: http://{bind}, for clients on this machine (MEMSER_PUBLIC_URL is not set)"
        ));
    }
    if has_hosts {
        return warning(
            "address: OAuth metadata names the listen address: set MEMSER_PUBLIC_URL to where clients reach memser".to_owned(),
        );
    }
    warning(format!(
        "address: memser listens on {bind} and takes requests to loopback names only: set MEMSER_PUBLIC_URL to where clients \
         reach it, or MEMSER_ALLOWED_HOSTS"
    ))
}

/// What is wrong with the address itself.
fn form(url: &Url) -> Option<String> {
    if url.path().trim_end_matches('/').ends_with("/mcp") {
        return Some(format!("address: MEMSER_PUBLIC_URL={url} is to be without /mcp: memser adds it"));
    }
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    (url.scheme() == "http" && !is_here).then(|| {
        format!("address: {url} is not https: tokens and memories can be read on the way; put TLS before memser (deploy/)")
    })
}

async fn ask(url: &Url) -> reqwest::Result<(StatusCode, Vec<u8>)> {
    let client = Client::builder().timeout(PATIENCE).redirect(redirect::Policy::none()).build()?;
    let base = url.as_str().trim_end_matches('/');
    let answer = client.get(format!("{base}{METADATA_PATH}")).send().await?;
    Ok((answer.status(), answer.bytes().await?.to_vec()))
}

/// What is at the bottom of an error: what is above it repeats the address.
fn root(error: &reqwest::Error) -> String {
    anyhow::Chain::new(error).last().map(ToString::to_string).unwrap_or_default()
}

/// What an answer says about the address that gave it.
fn judge(url: &Url, status: StatusCode, body: &[u8]) -> Finding {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let expected = format!("{}/mcp", url.as_str().trim_end_matches('/'));
    match (status, body["resource"].as_str()) {
        (StatusCode::OK, Some(named)) if named == expected => {
            well(format!("address: {url} leads to this memser"))
        }
        (StatusCode::OK, Some(named)) => warning(format!(
            "address: {url} leads to a server that calls itself {named}: where that is memser, give both the same \
             MEMSER_PUBLIC_URL"
        )),
        (StatusCode::FORBIDDEN, _) if body["error"]["code"] == "host_not_allowed" => warning(format!(
            "address: the memser behind {url} refuses that name (host_not_allowed): its proxy sends another Host, which has \
             to be passed on or named in MEMSER_ALLOWED_HOSTS"
        )),
        _ => warning(format!(
            "address: {url} leads to something else, which answered {status}: look at the name and at the proxy's routes"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_leads_elsewhere_or_is_read_on_the_way_is_warned_of() {
        for (address, said) in [
            ("https://memory.example.com/", None),
            ("http://localhost:8080/", None),
            ("http://[::1]:8080/", None),
            ("http://memory.example.com/", Some("not https")),
            ("https://memory.example.com/mcp", Some("without /mcp")),
        ] {
            let found = form(&url(address));
            assert_eq!(found.is_some(), said.is_some(), "{address}: {found:?}");
            assert!(found.unwrap_or_default().contains(said.unwrap_or_default()));
        }
        let own = url("https://memory.example.com/");
        let health = |status, body: &str| {
            let Finding { health, text } = judge(&own, status, body.as_bytes());
            (health, text)
        };
        let (found, _) = health(StatusCode::OK, r#"{"resource":"https://memory.example.com/mcp"}"#);
        assert_eq!(found, Health::Well);
        for (status, body, said) in [
            (StatusCode::OK, r#"{"resource":"http://10.0.0.1/mcp"}"#, "calls itself http://10.0.0.1/mcp"),
            (StatusCode::FORBIDDEN, r#"{"error":{"code":"host_not_allowed"}}"#, "MEMSER_ALLOWED_HOSTS"),
            (StatusCode::FORBIDDEN, "denied", "something else"),
            (StatusCode::BAD_GATEWAY, "", "502"),
        ] {
            let (found, text) = health(status, body);
            assert!(found == Health::Warning && text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_memser_without_a_name_is_well_on_this_machine_alone() {
        let health = |bind: &str, has_hosts| without_url(bind.parse().unwrap(), has_hosts).health;
        assert_eq!(health("127.0.0.1:8080", false), Health::Well);
        assert_eq!(health("0.0.0.0:8080", false), Health::Warning);
        assert!(without_url("0.0.0.0:8080".parse().unwrap(), true).text.contains("OAuth"));
    }
}
