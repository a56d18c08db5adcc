//! What the table holds: vectors and texts from files or made up, spread over scopes of several sizes.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use memser::db::recall::Filter;
use memser::text;
use uuid::Uuid;

use crate::rows::Row;

pub const DIMENSIONS: usize = 384;
const ROWS: usize = 200_000;
/// Every so many vectors one is kept for asking.
const HELD_OUT: usize = 250;
/// Texts and vectors to start from, where no file has any.
const MADE_UP: usize = 50_000;

/// A memory as it was written.
pub struct Stored {
    pub id: Uuid,
    pub tags: Vec<String>,
    pub source: String,
    pub occurred_at: DateTime<Utc>,
    pub valid_to: Option<DateTime<Utc>>,
    at: usize,
}

pub struct Data {
    vectors: Vec<Vec<f32>>,
    texts: Vec<String>,
    queries: Vec<Vec<f32>>,
    scopes: BTreeMap<String, Vec<Stored>>,
}

/// `SplitMix64`, so that every run has the same data.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// 0..1
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Near enough to a normal distribution.
    fn normal(&mut self) -> f32 {
        ((0..6).map(|_| self.share()).sum::<f64>() - 3.0) as f32
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

pub fn start() -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn normalised(vector: Vec<f32>) -> Vec<f32> {
    let length = cosine(&vector, &vector).sqrt();
    vector.into_iter().map(|x| x / length).collect()
}

fn read_vectors(path: &str) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    let numbers: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    numbers.chunks_exact(DIMENSIONS).map(<[f32]>::to_vec).collect()
}

fn made_up_vectors(random: &mut Random) -> Vec<Vec<f32>> {
    let direction = |random: &mut Random| (0..DIMENSIONS).map(|_| random.normal()).collect::<Vec<f32>>();
    let centres: Vec<Vec<f32>> = (0..2_000).map(|_| direction(random)).collect();
    (0..MADE_UP)
        .map(|_| {
            let centre = &centres[random.below(centres.len())];
            normalised(centre.iter().zip(direction(random)).map(|(c, noise)| c + 0.7 * noise).collect())
        })
        .collect()
}

/// Eight to fifteen words, the n-th of which is asked for as often as 1 / n.
fn made_up_text(random: &mut Random) -> String {
    let words = 8 + random.below(8);
    let word = |random: &mut Random| format!("word{}", (30_000_f64.powf(random.share())) as u64);
    (0..words).map(|_| word(random)).collect::<Vec<_>>().join(" ")
}

impl Data {
    pub fn new(vectors: Option<&String>, texts: Option<&String>) -> Self {
        let mut random = Random(7);
        let vectors = vectors.map_or_else(|| made_up_vectors(&mut random), |path| read_vectors(path));
        let mut texts: Vec<String> = match texts {
            Some(path) => std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect(),
            None => (0..vectors.len()).map(|_| made_up_text(&mut random)).collect(),
        };
        let mut pairs: Vec<(Vec<f32>, String)> = vectors.into_iter().zip(texts.drain(..)).collect();
        random.shuffle(&mut pairs);
        let (asked, mut pairs): (Vec<_>, Vec<_>) =
            pairs.into_iter().enumerate().partition(|(at, _)| at % HELD_OUT == 0);
        let given = pairs.len();
        while pairs.len() < ROWS {
            let (a, b) = (random.below(given), random.below(given));
            let mixed = pairs[a].1.0.iter().zip(&pairs[b].1.0).map(|(a, b)| 0.7 * a + 0.3 * b).collect();
            let text = pairs[a].1.1.clone();
            pairs.push((0, (normalised(mixed), text)));
        }
        pairs.truncate(ROWS);
        random.shuffle(&mut pairs);
        println!("{given} vectors as given, {} mixed from two of them", ROWS - given.min(ROWS));
        let (vectors, texts) = pairs.into_iter().map(|(_, pair)| pair).unzip();
        let queries = asked.into_iter().map(|(_, (vector, _))| vector).collect();
        Self { vectors, texts, queries, scopes: BTreeMap::new() }
    }

    /// The rows to write, which are many: what is kept of them is less.
    pub fn take_rows(&mut self) -> Vec<(&'static str, Vec<Row>)> {
        let mut sizes: Vec<(String, usize)> =
            [("large", 80_000), ("half", 40_000), ("twenty", 20_000), ("ten", 10_000)]
                .map(|(name, rows)| (name.to_owned(), rows))
                .to_vec();
        sizes.extend((0..30).map(|number| (format!("middle-{number}"), 1_500)));
        sizes.extend((0..10).map(|number| (format!("small-{number}"), 500)));
        let mut at = 0;
        let mut written = Vec::new();
        for (name, count) in sizes {
            let stored: Vec<Stored> = (0..count).map(|number| stored(number, count, at + number)).collect();
            let rows = stored.iter().enumerate().map(|(number, row)| Row {
                id: row.id,
                content: format!("{} ({number})", self.texts[row.at]),
                tags: row.tags.clone(),
                source: Some(row.source.clone()),
                seq: i64::try_from(number % 40).unwrap(),
                created_at: row.occurred_at,
                occurred_at: Some(row.occurred_at),
                valid_to: row.valid_to,
                vector: Some(self.vectors[row.at].clone()),
            });
            written.push((&*name.clone().leak(), rows.collect()));
            at += count;
            self.scopes.insert(name, stored);
        }
        written
    }

    pub fn count(&self) -> usize {
        self.scopes.values().map(Vec::len).sum()
    }

    pub fn scope(&self, name: &str) -> &[Stored] {
        &self.scopes[name]
    }

    pub fn vector(&self, row: &Stored) -> &[f32] {
        &self.vectors[row.at]
    }

    pub fn query(&self, number: usize) -> &[f32] {
        &self.queries[number]
    }

    pub fn by_size(&self) -> BTreeMap<usize, Vec<&str>> {
        let mut sizes = BTreeMap::<usize, Vec<&str>>::new();
        for (name, rows) in &self.scopes {
            sizes.entry(rows.len()).or_default().push(name);
        }
        sizes
    }

    fn terms(&self, row: &Stored) -> Vec<(String, u32)> {
        text::analyse(&self.texts[row.at]).terms
    }

    pub fn holds(&self, row: &Stored, terms: &[String]) -> bool {
        self.terms(row).iter().any(|(term, _)| terms.contains(term))
    }

    /// The terms of a scope, the most frequent first.
    fn frequent(&self, name: &str) -> Vec<(String, usize)> {
        let mut counts = HashMap::<String, usize>::new();
        for (term, _) in self.scope(name).iter().flat_map(|row| self.terms(row)) {
            *counts.entry(term).or_default() += 1;
        }
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }

    /// The most frequent word of a scope.
    pub fn common_word(&self, name: &str) -> String {
        self.frequent(name)[0].0.clone()
    }

    /// Questions of six words each with all its spellings: as texts have them, and the most frequent ones.
    pub fn questions(&self, name: &str) -> Vec<(&'static str, Vec<Vec<Vec<String>>>)> {
        let of_texts = self.scope(name).iter().map(|row| text::query_words(&self.texts[row.at]));
        let of_texts = of_texts.filter(|words| words.len() >= 6).map(|words| words[..6].to_vec());
        let most = self.frequent(name).into_iter().flat_map(|(term, _)| text::query_words(&term));
        vec![("of a text", of_texts.take(20).collect()), ("most frequent", vec![most.take(6).collect()])]
    }
}

/// A minute apart, one in 20 superseded a day later; 40 rows a source, 12 with the rare tag.
fn stored(number: usize, count: usize, at: usize) -> Stored {
    let occurred_at = start() + TimeDelta::minutes(i64::try_from(number).unwrap());
    let mut tags = vec!["all".to_owned()];
    if number.is_multiple_of(2) {
        tags.push("half".to_owned());
    }
    if number % (count / 12) == 5 {
        tags.push("rare".to_owned());
    }
    Stored {
        id: Uuid::new_v4(),
        tags,
        source: format!("chat-{}", number / 40),
        occurred_at,
        valid_to: number.is_multiple_of(20).then(|| occurred_at + TimeDelta::days(1)),
        at,
    }
}

impl Stored {
    /// The rules of recall, written once more.
    pub fn satisfies(&self, filter: &Filter) -> bool {
        let carries = |tag: &String| self.tags.contains(tag);
        let tags =
            if filter.any_tag { filter.tags.iter().any(carries) } else { filter.tags.iter().all(carries) };
        let valid = match filter.as_of {
            Some(at) => self.occurred_at <= at && self.valid_to.is_none_or(|end| at < end),
            None => filter.superseded || self.valid_to.is_none(),
        };
        tags && valid
            && filter.source.as_ref().is_none_or(|source| self.source == *source)
            && (filter.tiers.is_empty() || filter.tiers.iter().any(|tier| tier == "episodic"))
            && filter.occurred_after.is_none_or(|after| self.occurred_at >= after)
            && filter.occurred_before.is_none_or(|before| self.occurred_at < before)
    }
}
