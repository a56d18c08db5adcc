//! Vectors of texts that were embedded before, in memory, so that nothing is computed twice.
//!
//! The key is a hash of exactly what the embedder gets, so that a vector is always that of its text, and no text is
//! kept. Failures are not kept either.

use std::sync::Arc;

use moka::future::Cache;
use sha2::{Digest, Sha256};

use super::embed::EmbedError;

/// What stands for a text: 32 bytes in which two texts never meet.
pub(super) type Key = [u8; 32];

/// The bytes that an entry takes beside its numbers.
const ENTRY_BYTES: usize = 160;

/// Up to so many bytes of vectors; those asked for most stay.
#[derive(Clone)]
pub(super) struct Vectors(Cache<Key, Arc<[f32]>>);

impl Vectors {
    pub(super) fn new(max_bytes: u64) -> Self {
        let bytes = |_: &Key, vector: &Arc<[f32]>| {
            u32::try_from(size_of_val(&**vector) + ENTRY_BYTES).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(max_bytes).weigher(bytes).build())
    }

    pub(super) async fn get(&self, key: &Key) -> Option<Vec<f32>> {
        self.0.get(key).await.map(|vector| vector.to_vec())
    }

    pub(super) async fn keep(&self, key: Key, vector: &[f32]) {
        self.0.insert(key, vector.into()).await;
    }

    /// The vector that is known, or else what `compute` gives. Calls for one key at once wait for the first of them; when
    /// that one goes away, another takes its place.
    pub(super) async fn get_or(
        &self,
        key: Key,
        compute: impl Future<Output = Result<Vec<f32>, EmbedError>>,
    ) -> Result<Vec<f32>, EmbedError> {
        let computed = async { compute.await.map(Arc::from) };
        match self.0.try_get_with(key, computed).await {
            Ok(vector) => Ok(vector.to_vec()),
            Err(error) => Err((*error).clone()),
        }
    }
}

pub(super) fn key(text: &str) -> Key {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_size_is_bounded_in_bytes() {
        let vector = vec![0.5; 1_000];
        let cache = Vectors::new(20 * 4_160);
        for n in 0..200 {
            cache.keep(key(&n.to_string()), &vector).await;
        }
        cache.0.run_pending_tasks().await;
        assert!((1..=20).contains(&cache.0.entry_count()), "{}", cache.0.entry_count());
        assert!(cache.0.weighted_size() <= 20 * 4_160);
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let cache = Vectors::new(1_000_000);
        let key = key("text");
        assert_eq!(cache.get_or(key, async { Err(EmbedError::Timeout) }).await, Err(EmbedError::Timeout));
        assert_eq!(cache.get(&key).await, None);
        assert_eq!(cache.get_or(key, async { Ok(vec![1.0]) }).await, Ok(vec![1.0]));
        assert_eq!(cache.get_or(key, async { Err(EmbedError::Timeout) }).await, Ok(vec![1.0]));
    }
}
