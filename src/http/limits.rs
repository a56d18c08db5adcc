//! How much one token may ask of this process: requests a second, and requests at once.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http_body_util::BodyExt;

use super::reply::rate_limited;
use crate::auth::TokenLimits;
use crate::error::Error;

/// From this many subjects on, the limiter drops those that are at rest.
const SUBJECTS_KEPT: usize = 10_000;

/// The limits with what was asked for so far.
pub(super) struct Limits {
    rate: Option<DefaultKeyedRateLimiter<String>>,
    at_once: Option<NonZeroU32>,
    running: Arc<Running>,
}

/// How many requests of each subject are under way; a subject without any is not in it.
#[derive(Default)]
struct Running(Mutex<HashMap<String, u32>>);

impl Limits {
    pub(super) fn new(limits: TokenLimits) -> Self {
        let rate = limits.per_second.map(|per_second| {
            let burst = limits.burst.unwrap_or(per_second);
            RateLimiter::keyed(Quota::per_second(per_second).allow_burst(burst))
        });
        Self { rate, at_once: limits.at_once, running: Arc::default() }
    }

    /// Answers a subject's request, or refuses it with 429. It counts until the answer's last byte is read or dropped.
    pub(super) async fn run(&self, subject: &str, answer: impl Future<Output = Response>) -> Response {
        if let Some(wait) = self.over_rate(subject) {
            return refuse(wait);
        }
        let Some(most) = self.at_once else {
            return answer.await;
        };
        let Some(place) = Place::take(&self.running, subject, most) else {
            return refuse(Duration::from_secs(1));
        };
        answer.await.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &place;
                frame
            }))
        })
    }

    /// How long the subject has to wait, if it asked too often.
    fn over_rate(&self, subject: &str) -> Option<Duration> {
        let limiter = self.rate.as_ref()?;
        if limiter.len() > SUBJECTS_KEPT {
            limiter.retain_recent();
        }
        let refused = limiter.check_key(&subject.to_owned()).err()?;
        Some(refused.wait_time_from(DefaultClock::default().now()))
    }
}

fn refuse(wait: Duration) -> Response {
    let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
    rate_limited(&Error::RateLimited { retry_after: Duration::from_secs(seconds) }, seconds)
}

/// One of a subject's places, given back when dropped.
struct Place {
    running: Arc<Running>,
    subject: String,
}

impl Place {
    fn take(running: &Arc<Running>, subject: &str, most: NonZeroU32) -> Option<Self> {
        let mut counts = running.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(subject.to_owned()).or_default();
        if *count >= most.get() {
            return None;
        }
        *count += 1;
        Some(Self { running: Arc::clone(running), subject: subject.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.subject) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::{StatusCode, header};

    use super::*;

    fn limits(per_second: u32, burst: u32, at_once: u32) -> Limits {
        let [per_second, burst, at_once] = [per_second, burst, at_once].map(NonZeroU32::new);
        Limits::new(TokenLimits { per_second, burst, at_once })
    }

    fn answer() -> std::future::Ready<Response> {
        std::future::ready(Response::new(Body::from("done")))
    }

    #[tokio::test]
    async fn a_burst_is_served_and_what_comes_after_it_is_told_to_wait() {
        let limits = limits(1, 3, 0);
        for _ in 0..3 {
            assert_eq!(limits.run("a", answer()).await.status(), StatusCode::OK);
        }
        let refused = limits.run("a", answer()).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        assert_eq!(limits.run("b", answer()).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_place_is_taken_until_the_answer_is_read_or_dropped() {
        let limits = limits(0, 0, 2);
        let first = limits.run("a", answer()).await;
        let second = limits.run("a", answer()).await;
        assert_eq!(limits.run("a", answer()).await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(limits.run("b", answer()).await.status(), StatusCode::OK);
        assert_eq!(to_bytes(first.into_body(), 10).await.unwrap(), "done");
        let third = limits.run("a", answer()).await;
        assert_eq!(third.status(), StatusCode::OK);
        drop((second, third));
        drop(limits.run("a", std::future::pending()));
        assert!(limits.running.0.lock().unwrap().is_empty());
    }
}
