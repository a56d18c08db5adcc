//! A worker: takes texts from the queue and answers with vectors.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::model::Model;
use crate::provider::embed::{EmbedError, unit};

/// The windows that go through the model together.
const BATCH: usize = 8;
/// The jobs that one worker has in hand; the rest stays in the queue for all workers.
const JOBS_MAX: usize = 32;

type Answer = Result<Vec<Vec<f32>>, EmbedError>;

/// Texts, and where their vectors go.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) texts: Vec<String>,
    pub(super) reply: oneshot::Sender<Answer>,
}

struct Window {
    ids: Vec<u32>,
    /// The place of its text in the job.
    text: usize,
}

/// A job in hand.
struct Open {
    /// What is still to do, the shortest last.
    windows: Vec<Window>,
    /// For each text the sum of its token vectors so far.
    sums: Vec<Vec<f32>>,
    failure: Option<EmbedError>,
    reply: oneshot::Sender<Answer>,
}

/// Works until nobody can send a job any more.
pub(super) fn run(model: &Model, jobs: &Mutex<mpsc::Receiver<Job>>) {
    let mut open = VecDeque::new();
    loop {
        if open.is_empty() {
            // Workers without work wait in line at the lock.
            match jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv() {
                Some(job) => open.push_back(Open::new(model, job)),
                None => return,
            }
        }
        // A lock that is taken means a worker without work, and that one may have the next job.
        while open.len() < JOBS_MAX
            && let Ok(mut jobs) = jobs.try_lock()
            && let Ok(job) = jobs.try_recv()
        {
            drop(jobs);
            open.push_back(Open::new(model, job));
        }
        turn(model, &mut open);
    }
}

/// One batch through the model. The first job has its turn and goes to the end of the line.
fn turn(model: &Model, open: &mut VecDeque<Open>) {
    // Their callers have gone.
    open.retain(|job| !job.reply.is_closed());
    let (places, windows): (Vec<_>, Vec<_>) =
        batch(open).into_iter().map(|(place, window)| ((place, window.text), window.ids)).unzip();
    if !windows.is_empty() {
        match guarded(|| model.sums(&windows)) {
            Ok(sums) => {
                for ((job, text), sum) in places.into_iter().zip(sums) {
                    open[job].add(text, sum);
                }
            }
            Err(error) => {
                for (job, _) in places {
                    open[job].fail(error.clone());
                }
            }
        }
    }
    if let Some(first) = open.pop_front() {
        open.push_back(first);
    }
    for _ in 0..open.len() {
        if let Some(job) = open.pop_front() {
            if job.windows.is_empty() { job.answer() } else { open.push_back(job) }
        }
    }
}

/// Windows of the first job, and of the others those that can be answered at once: with the place of their job.
///
/// Nothing goes in that would be padded, or make another be padded, to more than twice its length.
fn batch(open: &mut VecDeque<Open>) -> Vec<(usize, Window)> {
    let mut batch: Vec<(usize, Window)> = Vec::with_capacity(BATCH);
    let (mut shortest, mut longest) = (usize::MAX, 0);
    for (place, job) in open.iter_mut().enumerate() {
        let (Some(first), Some(last)) = (job.windows.last(), job.windows.first()) else {
            continue;
        };
        let floor = shortest.min(first.ids.len());
        let ceiling = longest.max(last.ids.len());
        let fits = batch.len() + job.windows.len() <= BATCH && ceiling <= 2 * floor;
        if !batch.is_empty() && !fits {
            continue;
        }
        shortest = floor;
        while batch.len() < BATCH
            && let Some(window) = job.windows.pop_if(|window| window.ids.len() <= 2 * floor)
        {
            longest = longest.max(window.ids.len());
            batch.push((place, window));
        }
    }
    batch
}

impl Open {
    fn new(model: &Model, job: Job) -> Self {
        let mut open = Self { windows: Vec::new(), sums: Vec::new(), failure: None, reply: job.reply };
        for (text, content) in job.texts.iter().enumerate() {
            open.sums.push(vec![0.0; model.dimensions()]);
            match guarded(|| model.windows(content)) {
                Ok(windows) => open.windows.extend(windows.into_iter().map(|ids| Window { ids, text })),
                Err(error) => {
                    open.fail(error);
                    break;
                }
            }
        }
        open.windows.sort_by_key(|window| std::cmp::Reverse(window.ids.len()));
        open
    }

    fn add(&mut self, text: usize, sum: Vec<f32>) {
        for (total, value) in self.sums[text].iter_mut().zip(sum) {
            *total += value;
        }
    }

    fn fail(&mut self, error: EmbedError) {
        self.windows.clear();
        self.failure = Some(error);
    }

    fn answer(self) {
        let answer = match self.failure {
            Some(error) => Err(error),
            None => self.sums.into_iter().map(|sum| unit(sum).map_err(|_| EmbedError::Model)).collect(),
        };
        // Nobody may be waiting any more.
        let _ = self.reply.send(answer);
    }
}

/// A text that the model fails on costs its own job and those beside it, not the worker.
fn guarded<T>(work: impl FnOnce() -> anyhow::Result<T>) -> Result<T, EmbedError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(error = format!("{error:#}"), "the local model failed");
            Err(EmbedError::Model)
        }
        // The panic hook has told it.
        Err(_) => Err(EmbedError::Model),
    }
}
