//! Fetching a model once from a hub, where the operator allows it by naming one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::{Client, StatusCode};
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;
use url::Url;

/// The files of a sentence transformer, and whether every model has them. The weights come last: a folder without them
/// holds no model, so that an interrupted fetch leaves none.
const FILES: [(&str, bool); 4] = [
    ("1_Pooling/config.json", false),
    ("config.json", true),
    ("tokenizer.json", true),
    ("model.safetensors", true),
];
/// The largest file taken: models of this kind have up to half of it.
const FILE_MAX_BYTES: u64 = 2 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a transfer may stand still.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A model on a hub: `owner/name`, or `owner/name@revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    repository: String,
    revision: String,
}

impl HubName {
    /// As a folder is named.
    #[must_use]
    pub fn folder(&self) -> String {
        self.repository.replace('/', "--")
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository, self.revision)
    }
}

impl FromStr for HubName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, "main"));
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let parts: Vec<_> = repository.split('/').collect();
        ensure!(
            parts.len() == 2 && parts.into_iter().all(is_plain) && is_plain(revision),
            "write it as owner/name or owner/name@revision"
        );
        Ok(Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }
}

/// Fetches a model into `dir`, which is made if need be; what is there already is written over.
///
/// # Errors
/// When the hub cannot be reached, has no such model or breaks off, or the folder cannot be written. The folder holds no
/// model then, unless it did before.
pub async fn fetch(hub: &Url, model: &HubName, dir: &Path) -> anyhow::Result<()> {
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(STALL_TIMEOUT).build()?;
    // Beside the files, so that each is put into its place in one step.
    let partial = dir.join(format!(".fetch-{:08x}", rand::random::<u32>()));
    fs::create_dir_all(&partial).await.with_context(|| format!("cannot write to {}", dir.display()))?;
    let fetched = fetch_into(&client, hub, model, dir, &partial).await;
    let removed = fs::remove_dir_all(&partial).await;
    fetched.with_context(|| format!("cannot fetch {model} from {hub}"))?;
    Ok(removed?)
}

async fn fetch_into(
    client: &Client,
    hub: &Url,
    model: &HubName,
    dir: &Path,
    partial: &Path,
) -> anyhow::Result<()> {
    for (file, is_needed) in FILES {
        let HubName { repository, revision } = model;
        let base = hub.as_str().trim_end_matches('/');
        let url = format!("{base}/{repository}/resolve/{revision}/{file}");
        let part = partial.join("part");
        if !download(client, &url, &part).await.with_context(|| file.to_owned())? {
            ensure!(!is_needed, "{file}: there is none");
            continue;
        }
        let target = dir.join(file);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).await?;
        }
        fs::rename(&part, &target).await?;
    }
    Ok(())
}

/// Writes what the URL gives to `path`, durably. Answers false where there is nothing.
async fn download(client: &Client, url: &str, path: &Path) -> anyhow::Result<bool> {
    let mut response = client.get(url).send().await?;
    match response.status() {
        StatusCode::NOT_FOUND => return Ok(false),
        status if !status.is_success() => bail!("the hub answered {status}"),
        _ => {}
    }
    let announced = response.content_length();
    ensure!(announced.is_none_or(|bytes| bytes <= FILE_MAX_BYTES), "larger than {FILE_MAX_BYTES} bytes");
    let mut file = File::create(path).await?;
    let mut received = 0;
    while let Some(chunk) = response.chunk().await? {
        received += chunk.len() as u64;
        ensure!(received <= FILE_MAX_BYTES, "larger than {FILE_MAX_BYTES} bytes");
        file.write_all(&chunk).await?;
    }
    ensure!(announced.is_none_or(|bytes| bytes == received), "it broke off after {received} bytes");
    file.sync_all().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_stay_below_their_folder() {
        let name: HubName = "sentence-transformers/all-MiniLM-L6-v2".parse().unwrap();
        assert_eq!(name.to_string(), "sentence-transformers/all-MiniLM-L6-v2@main");
        assert_eq!(name.folder(), "sentence-transformers--all-MiniLM-L6-v2");
        assert_eq!("a/b@v1.0".parse::<HubName>().unwrap().to_string(), "a/b@v1.0");
        for wrong in ["", "b", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x", "a b/c", "https://h/a"] {
            assert!(wrong.parse::<HubName>().is_err(), "{wrong}");
        }
    }
}
