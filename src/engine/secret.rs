//! Text that looks like a credential: found by a list of rules, and kept out of what is stored. Pure.

mod keyword;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, ensure};
use regex::{Captures, Match, Regex, RegexSet};
use serde::Deserialize;
use serde_json::Value;

use crate::api::StoreArgs;
use crate::error::{Error, Result};
use keyword::keyword;

/// What becomes of text that looks like a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretPolicy {
    /// It is stored like any other.
    Allow,
    /// The credential is replaced by its kind; the rest is stored.
    #[default]
    Redact,
    /// The call is refused.
    Refuse,
}

/// The rules with what to do about what they find.
#[derive(Clone, Debug)]
pub struct Sieve {
    policy: SecretPolicy,
    rules: Arc<Rules>,
}

/// How much of a key stands before each of its values. A label is shorter; a long key before every one of many values would
/// be read as often.
const LABEL_MAX_BYTES: usize = 64;

/// Read once in a process: they are many.
static RULES: OnceLock<Arc<Rules>> = OnceLock::new();

#[derive(Debug)]
struct Rules {
    /// The keyword of each rule, to learn in one pass which of them can find anything at all.
    keywords: RegexSet,
    each: Vec<Rule>,
    placeholder: Regex,
    /// What stands where a credential could and is none, by name.
    other: BTreeMap<String, Pattern>,
}

#[derive(Debug, Deserialize)]
struct Pattern(#[serde(deserialize_with = "regex")] Regex);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    kind: String,
    #[serde(deserialize_with = "regex")]
    pattern: Regex,
    #[serde(default)]
    entropy: f64,
    #[serde(default)]
    mixed: bool,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    except: Vec<String>,
    #[serde(default, deserialize_with = "some_regex")]
    unless: Option<Regex>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(deserialize_with = "regex")]
    placeholder: Regex,
    other: BTreeMap<String, Pattern>,
    rule: Vec<Rule>,
}

fn regex<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Regex, D::Error> {
    // Boundaries of ASCII words: others keep the engine from its fast path as soon as a text has a letter like é.
    let pattern = String::deserialize(deserializer)?.replace(r"\b", r"(?-u:\b)");
    Regex::new(&pattern).map_err(serde::de::Error::custom)
}

fn some_regex<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Regex>, D::Error> {
    regex(deserializer).map(Some)
}

/// A store's arguments without credentials, and which there were.
#[derive(Debug)]
pub(super) struct Sifted {
    pub(super) args: StoreArgs,
    /// Field and kind, in the order of the fields.
    pub(super) found: Vec<(&'static str, String)>,
}

impl Sieve {
    /// Reads the rules that memser comes with.
    ///
    /// # Errors
    /// When one of them is wrong.
    pub fn new(policy: SecretPolicy) -> anyhow::Result<Self> {
        let rules = if let Some(rules) = RULES.get() {
            Arc::clone(rules)
        } else {
            let rules = Arc::new(Rules::read()?);
            Arc::clone(RULES.get_or_init(|| rules))
        };
        Ok(Self { policy, rules })
    }

    /// Takes credentials out of everything that a store keeps: content, tags, source, metadata and actor. This comes
    /// before anything is embedded, hashed, logged or written.
    pub(super) fn sift(&self, mut args: StoreArgs) -> Sifted {
        let mut found = Vec::new();
        if self.policy != SecretPolicy::Allow {
            let mut sift = |field: &'static str, text: &mut String| {
                let (clean, kinds) = self.rules.redact(text);
                found.extend(kinds.into_iter().map(|kind| (field, kind)));
                if let Some(clean) = clean {
                    *text = clean;
                }
            };
            sift("content", &mut args.content);
            args.tags.iter_mut().for_each(|tag| sift("tags", tag));
            args.source.iter_mut().for_each(|source| sift("source", source));
            args.actor.iter_mut().for_each(|actor| sift("actor", actor));
            args.metadata =
                sift_fields(std::mem::take(&mut args.metadata), &mut |text| sift("metadata", text));
        }
        Sifted { args, found }
    }
}

impl Sifted {
    /// The kinds that were found, each once; an error where the policy is to refuse them.
    ///
    /// # Errors
    /// `invalid_argument` with the field.
    pub(super) fn judge(&self, sieve: &Sieve) -> Result<Vec<String>> {
        if let (SecretPolicy::Refuse, Some((field, kind))) = (sieve.policy, self.found.first()) {
            return Err(Error::invalid(
                *field,
                format!("{field} looks like it holds a credential ({kind}); this memser stores none"),
                "Leave the credential out; say where it is kept instead.",
            ));
        }
        let kinds: BTreeSet<&String> = self.found.iter().map(|(_, kind)| kind).collect();
        Ok(kinds.into_iter().cloned().collect())
    }
}

/// A value is read with its key before it, because it is the key that tells what `{"password": "…"}` is.
fn sift_fields(
    fields: BTreeMap<String, Value>,
    sift: &mut impl FnMut(&mut String),
) -> BTreeMap<String, Value> {
    let mut clean = BTreeMap::new();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for (mut key, mut value) in fields {
        sift_value(&key, &mut value, sift);
        sift(&mut key);
        // Two keys that were two credentials stay two.
        let cleaned = key.clone();
        while clean.contains_key(&key) {
            let number = alike.entry(cleaned.clone()).or_insert(1);
            *number += 1;
            key = format!("{cleaned} {number}");
        }
        clean.insert(key, value);
    }
    clean
}

fn sift_value(key: &str, value: &mut Value, sift: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => {
            let label = &key[key.ceil_char_boundary(key.len().saturating_sub(LABEL_MAX_BYTES))..];
            let label = format!("{label}: ");
            let mut labelled = format!("{label}{text}");
            sift(&mut labelled);
            // A credential in the key itself is found when the key is read.
            match labelled.strip_prefix(&label) {
                Some(clean) => clean.clone_into(text),
                None => sift(text),
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| sift_value(key, item, sift)),
        Value::Object(fields) => {
            let taken: BTreeMap<String, Value> = std::mem::take(fields).into_iter().collect();
            *fields = sift_fields(taken, sift).into_iter().collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Rules {
    fn read() -> anyhow::Result<Self> {
        let file: RuleFile =
            toml::from_str(include_str!("secret/rules.toml")).context("the rules for secrets")?;
        let RuleFile { placeholder, other, rule: each } = file;
        for name in each.iter().flat_map(|rule| &rule.except) {
            ensure!(other.contains_key(name), "the rules for secrets: [other] has no {name:?}");
        }
        let keywords = each.iter().map(|rule| {
            keyword(rule.pattern.as_str()).with_context(|| format!("the rules for secrets: {}", rule.kind))
        });
        let keywords = RegexSet::new(keywords.collect::<anyhow::Result<Vec<_>>>()?)?;
        Ok(Self { keywords, each, placeholder, other })
    }

    /// The text without credentials, where it has any, and their kinds.
    fn redact(&self, text: &str) -> (Option<String>, Vec<String>) {
        let mut spans: Vec<(Range<usize>, &str)> = Vec::new();
        for at in self.keywords.matches(text) {
            let rule = &self.each[at];
            for captures in rule.pattern.captures_iter(text) {
                if let Some(secret) =
                    rule.secret(&captures).filter(|found| !self.is_other(rule, found.as_str()))
                {
                    spans.push((secret.range(), &rule.kind));
                }
            }
        }
        if spans.is_empty() {
            return (None, Vec::new());
        }
        // Of two that overlap the earlier counts, with the end of the later.
        spans.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
        let mut apart: Vec<(Range<usize>, &str)> = Vec::new();
        for (span, kind) in spans {
            match apart.last_mut() {
                Some((before, _)) if span.start < before.end => before.end = before.end.max(span.end),
                _ => apart.push((span, kind)),
            }
        }
        let (mut clean, mut end) = (String::with_capacity(text.len()), 0);
        for (span, kind) in &apart {
            clean.push_str(&text[end..span.start]);
            clean.push_str("[redacted: ");
            clean.push_str(kind);
            clean.push(']');
            end = span.end;
        }
        clean.push_str(&text[end..]);
        (Some(clean), apart.into_iter().map(|(_, kind)| kind.to_owned()).collect())
    }

    /// Whether what a rule found is a placeholder, a path, a name or the like.
    fn is_other(&self, rule: &Rule, found: &str) -> bool {
        let mut others = rule.except.iter().filter_map(|name| self.other.get(name));
        !rule.whole && self.placeholder.is_match(found) || others.any(|Pattern(other)| other.is_match(found))
    }
}

impl Rule {
    /// What the pattern found, where its label is one and it is more than a word.
    fn secret<'t>(&self, captures: &Captures<'t>) -> Option<Match<'t>> {
        let groups = self.pattern.capture_names().zip(captures.iter()).skip(1);
        let secret = groups.filter(|(name, _)| name.is_none()).find_map(|(_, group)| group);
        let secret = secret.or(captures.get(0))?;
        let text = secret.as_str();
        let label = captures.name("label").map_or("", |label| label.as_str());
        let is_mixed =
            || text.bytes().any(|byte| byte.is_ascii_digit()) && text.chars().any(char::is_alphabetic);
        let is_like = self.unless.as_ref().is_none_or(|unless| !unless.is_match(label))
            && (!self.mixed || is_mixed())
            && (self.entropy == 0.0 || entropy(text) >= self.entropy);
        is_like.then_some(secret)
    }
}

/// Shannon's entropy, in bits a character.
fn entropy(text: &str) -> f64 {
    let mut counts: BTreeMap<char, u32> = BTreeMap::new();
    for c in text.chars() {
        *counts.entry(c).or_default() += 1;
    }
    let total = f64::from(counts.values().sum::<u32>());
    -counts.values().map(|&count| f64::from(count) / total).map(|share| share * share.log2()).sum::<f64>()
}

#[cfg(test)]
mod tests;
