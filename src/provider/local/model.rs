//! The model: from a folder to sums of token vectors.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

use crate::provider::embed::HARMLESS;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
/// How far below the named folder the model may be.
const DEPTH_MAX: usize = 3;

/// The tokens that the model reads at once. Sentence transformers of this kind were trained on no more.
const WINDOW: usize = 256;
/// A smaller window has no room for words.
const WINDOW_MIN: usize = 16;
/// The windows of a text that count.
const WINDOWS_MAX: usize = 8;

/// What `config.json` says beyond candle's own settings.
#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "_name_or_path")]
    name: Option<String>,
    model_type: String,
}

/// What a sentence transformer says about its pooling.
#[derive(Deserialize)]
struct Pooling {
    pooling_mode_mean_tokens: bool,
}

/// A sentence transformer in memory.
pub(super) struct Model {
    bert: BertModel,
    tokenizer: Tokenizer,
    /// The tokens that stand before and behind every window.
    marks: [u32; 2],
    /// The tokens of a window, marks included.
    window: usize,
    pad: u32,
    name: String,
    dimensions: usize,
}

/// The folder of a model: `root` or one below it. A package of a model has further `config.json` files, so that only
/// the one beside the weights counts.
#[must_use]
pub fn find(root: &Path) -> Option<PathBuf> {
    search(root, DEPTH_MAX)
}

fn search(folder: &Path, depth: usize) -> Option<PathBuf> {
    if [CONFIG, TOKENIZER, WEIGHTS].iter().all(|file| folder.join(file).is_file()) {
        return Some(folder.to_owned());
    }
    if depth == 0 {
        return None;
    }
    let mut below: Vec<PathBuf> =
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().find_map(|folder| search(folder, depth - 1))
}

/// The name by which the model in `root` is known, without loading it; none where there is no model. Reads its weights.
#[must_use]
pub fn identify(root: &Path) -> Option<String> {
    let folder = find(root)?;
    let identity: Identity = serde_json::from_slice(&fs::read(folder.join(CONFIG)).ok()?).ok()?;
    Some(full_name(identity.name, root, &fs::read(folder.join(WEIGHTS)).ok()?))
}

/// The name with the start of the weights' SHA-256: the name alone stays the same when a model is trained further.
fn full_name(own: Option<String>, root: &Path, weights: &[u8]) -> String {
    format!("{}@{}", name(own, root), &hex::encode(Sha256::digest(weights))[..8])
}

impl Model {
    pub(super) fn load(root: &Path) -> anyhow::Result<Self> {
        let folder = find(root)
            .with_context(|| format!("there are no {CONFIG}, {TOKENIZER} and {WEIGHTS} side by side"))?;
        let config = fs::read(folder.join(CONFIG)).context(CONFIG)?;
        let identity: Identity = serde_json::from_slice(&config).context(CONFIG)?;
        ensure!(identity.model_type == "bert", "{CONFIG}: model_type is {:?}, not bert", identity.model_type);
        let config: Config = serde_json::from_slice(&config).context(CONFIG)?;
        let window = config.max_position_embeddings.min(WINDOW);
        ensure!(window >= WINDOW_MIN, "{CONFIG}: max_position_embeddings is {window}");
        check_pooling(&folder)?;

        let weights = fs::read(folder.join(WEIGHTS)).context(WEIGHTS)?;
        let name = full_name(identity.name, root, &weights);
        let weights =
            VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).context(WEIGHTS)?;
        let tokenizer = tokenizer(&folder)?;
        let marks = tokenizer.encode("", true).map_err(|error| anyhow!(error))?.get_ids().to_vec();
        let model = Self {
            bert: BertModel::load(weights, &config).context(WEIGHTS)?,
            tokenizer,
            marks: marks.try_into().map_err(|_| anyhow!("{TOKENIZER}: a text has no mark on each side"))?,
            window,
            pad: u32::try_from(config.pad_token_id).context(CONFIG)?,
            name,
            dimensions: config.hidden_size,
        };
        // Files that do not belong together are found now and not by the first memory.
        model.sums(&model.windows(HARMLESS)?).context("the model cannot embed")?;
        Ok(model)
    }

    /// Tells models apart.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The windows of a text, at least one, each with the model's special tokens around it.
    pub(super) fn windows(&self, text: &str) -> anyhow::Result<Vec<Vec<u32>>> {
        // Cut here: the overflow that the tokenizer's own truncation reports was seen to end early.
        let encoding = self.tokenizer.encode(text, false).map_err(|error| anyhow!(error))?;
        let [start, end] = self.marks;
        let mark = |ids: &[u32]| [&[start], ids, &[end]].concat();
        if encoding.is_empty() {
            return Ok(vec![mark(&[])]);
        }
        let windows = encoding.get_ids().chunks(self.window - self.marks.len()).take(WINDOWS_MAX);
        Ok(windows.map(mark).collect())
    }

    /// For each window the sum of its token vectors, whatever windows it is with: padding is masked out.
    pub(super) fn sums(&self, windows: &[Vec<u32>]) -> anyhow::Result<Vec<Vec<f32>>> {
        let (rows, length) = (windows.len(), windows.iter().map(Vec::len).max().unwrap_or_default());
        let padded = |window: &[u32], inside: &dyn Fn(u32) -> u32, outside: u32| {
            let mut row: Vec<u32> = window.iter().map(|id| inside(*id)).collect();
            row.resize(length, outside);
            row
        };
        let ids: Vec<u32> = windows.iter().flat_map(|window| padded(window, &|id| id, self.pad)).collect();
        let mask: Vec<u32> = windows.iter().flat_map(|window| padded(window, &|_| 1, 0)).collect();
        let ids = Tensor::from_vec(ids, (rows, length), &Device::Cpu)?;
        let mask = Tensor::from_vec(mask, (rows, length), &Device::Cpu)?;
        let tokens = self.bert.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let sums = mask.to_dtype(DType::F32)?.unsqueeze(1)?.matmul(&tokens)?;
        Ok(sums.squeeze(1)?.to_vec2()?)
    }
}

fn tokenizer(folder: &Path) -> anyhow::Result<Tokenizer> {
    let unusable = |error: tokenizers::Error| anyhow!("{TOKENIZER}: {error}");
    let mut tokenizer = Tokenizer::from_file(folder.join(TOKENIZER)).map_err(unusable)?;
    // The file has settings of its own for both; with them, every text of all-MiniLM-L6-v2 would be 128 tokens long.
    tokenizer.with_padding(None).with_truncation(None).map_err(unusable)?;
    Ok(tokenizer)
}

/// A model that pools in another way would give vectors that mean little. Without a word on it, the mean is usual.
fn check_pooling(folder: &Path) -> anyhow::Result<()> {
    let file = "1_Pooling/config.json";
    let Ok(pooling) = fs::read(folder.join(file)) else {
        return Ok(());
    };
    let pooling: Pooling = serde_json::from_slice(&pooling).context(file)?;
    ensure!(pooling.pooling_mode_mean_tokens, "{file}: the model does not pool by the mean");
    Ok(())
}

/// The name that the model has on its hub, or else the folder's. A path on the trainer's machine says nothing.
fn name(own: Option<String>, root: &Path) -> String {
    own.filter(|name| {
        !name.is_empty() && !name.starts_with(['/', '.', '~']) && name.matches('/').count() <= 1
    })
    .or_else(|| root.file_name().map(|name| name.to_string_lossy().into_owned()))
    .unwrap_or_else(|| "local".to_owned())
}
