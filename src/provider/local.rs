//! A sentence transformer of the BERT family, such as all-MiniLM-L6-v2, run in this process: no key, no network, and no
//! text leaves it.
//!
//! A text's vector is the mean over its tokens, of length 1. The model reads at most 256 tokens at once, so a longer
//! text is cut into windows of that size, and the mean is taken over the tokens of all of them. Only the first 8
//! windows count: what comes after is found by its words alone.
//!
//! Workers on threads of their own do the work, each with one core. Calls hand it to them a few texts at a time, so that
//! a question does not wait until a long list of texts is done.

mod hub;
mod model;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

use tokio::sync::{mpsc, oneshot};

use self::model::Model;
use self::worker::Job;
use super::embed::EmbedError;
use crate::error::{Error, Result};

pub use self::hub::{HubName, fetch};
pub use self::model::{find, identify};

/// A call hands over this many texts, and waits for them before it hands over more.
const SLICE: usize = 8;
/// How many slices wait for a worker; further calls wait to get in, in their order.
const QUEUE: usize = 32;
const WORKERS_MAX: usize = 4;

/// Which model, and how it is run.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// A folder with, at some depth, `config.json`, `tokenizer.json` and `model.safetensors` side by side.
    pub dir: PathBuf,
    /// The number of threads that work.
    pub workers: usize,
}

impl LocalSettings {
    /// The model in `dir` on half of the machine's cores, at most four.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { dir: dir.into(), workers: (cores / 2).clamp(1, WORKERS_MAX) }
    }
}

/// A running model. Its workers end with its last clone.
#[derive(Clone, Debug)]
pub struct Local {
    queue: mpsc::Sender<Job>,
    name: Arc<str>,
    dimensions: usize,
}

impl Local {
    /// Loads the model and starts its workers. Reads and computes for about a second.
    ///
    /// # Errors
    /// `invalid_argument` on `EMBEDDING_MODEL_DIR` when the folder holds no model that memser can run.
    pub fn start(settings: &LocalSettings) -> Result<Self> {
        let model = Arc::new(Model::load(&settings.dir).map_err(|error| {
            Error::invalid(
                "EMBEDDING_MODEL_DIR",
                format!("{}: {error:#}", settings.dir.display()),
                "Name the folder of a BERT sentence transformer with mean pooling; `make model` gets one.",
            )
        })?);
        let (queue, jobs) = mpsc::channel(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..settings.workers.max(1) {
            let (model, jobs) = (model.clone(), jobs.clone());
            // candle spreads its work over the pool that it is called in: here that is the worker's own thread. A pool
            // ends when it is dropped and its work is done.
            rayon::ThreadPoolBuilder::new()
                .num_threads(1)
                .thread_name(|_| "memser-embed".to_owned())
                .build()
                .map_err(|error| Error::Internal(error.into()))?
                .spawn(move || worker::run(&model, &jobs));
        }
        Ok(Self { queue, name: model.name().into(), dimensions: model.dimensions() })
    }

    pub(super) fn model(&self) -> &str {
        &self.name
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Whether its workers take texts.
    pub(super) fn is_up(&self) -> bool {
        !self.queue.is_closed()
    }

    pub(super) async fn embed(&self, texts: &[&str]) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
        // Texts of like length together: a batch is padded to its longest.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|place| texts[*place].len());
        let mut vectors = vec![Vec::new(); texts.len()];
        for slice in order.chunks(SLICE) {
            let (reply, answer) = oneshot::channel();
            let job = Job { texts: slice.iter().map(|place| texts[*place].to_owned()).collect(), reply };
            self.queue.send(job).await.map_err(|_| EmbedError::Stopped)?;
            let embedded = answer.await.map_err(|_| EmbedError::Stopped)??;
            for (place, vector) in slice.iter().zip(embedded) {
                vectors[*place] = vector;
            }
        }
        Ok(vectors)
    }
}
