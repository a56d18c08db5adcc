//! What can be said about a setting: its names, the values it takes, and how a value is checked.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use url::Url;

use super::keys::GROUPS;

/// Settings that the reference tells of under one heading.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// The settings.
    pub keys: &'static [Key],
    /// What there is to say beside the table, as Markdown.
    pub introduction: &'static str,
}

/// A setting.
#[derive(Debug)]
pub struct Key {
    /// The environment variable, and the name in every message about it.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it does, for the reference.
    pub doc: &'static str,
    /// The value where none is set, as text.
    pub default: Option<&'static str>,
    /// What holds without a value, where there is no fixed default.
    pub unset: &'static str,
    /// Whether the value, or a part of it, is never shown.
    pub is_secret: bool,
}

/// A setting without a default.
pub(super) const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, doc, default: None, unset: "none", is_secret: false }
}

/// What a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A path.
    Path,
    /// A URL such as this one; whoever uses it checks it.
    Url(&'static str),
    /// `address:port`.
    Address,
    /// Several texts: an array in a file, separated by commas in a variable.
    List,
    /// `true` or `false`.
    Switch,
    /// A whole number from one to another.
    Whole(u64, u64),
    /// A number from one to another.
    Number(f64, f64),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Key {
    pub(super) const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }

    pub(super) const fn unset(mut self, meaning: &'static str) -> Self {
        self.unset = meaning;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    /// A value that it would take, where its kind has one.
    pub(super) const fn example(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Url(example) => Some(example),
            _ => None,
        }
    }

    /// The variables that set it, the first before the second: the one that says whose it is, where the name itself
    /// does not, before one that other programs may share.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let prefixed = (!self.name.starts_with(PREFIX)).then(|| format!("{PREFIX}{}", self.name));
        prefixed.into_iter().chain([self.name.to_owned()]).collect()
    }

    /// The variables that name a file with its value, in the same order: only a secret has any.
    #[must_use]
    pub fn file_variables(&self) -> Vec<String> {
        if !self.is_secret {
            return Vec::new();
        }
        self.variables().into_iter().map(|name| format!("{name}_FILE")).collect()
    }

    /// What holds where nobody sets it, for a person.
    #[must_use]
    pub fn otherwise(&self) -> String {
        self.default.map_or_else(|| self.unset.to_owned(), |value| format!("`{value}`"))
    }

    /// The name in a configuration file.
    #[must_use]
    pub fn in_file(&self) -> String {
        self.name.strip_prefix(PREFIX).unwrap_or(self.name).to_ascii_lowercase()
    }

    /// Checks a value and gives it as it is to be parsed. `called` is the name that it was set under.
    ///
    /// # Errors
    /// When the setting does not take the value; the message never repeats a secret.
    pub fn check(&self, called: &str, value: &str) -> anyhow::Result<String> {
        let shown = if self.is_secret { String::new() } else { format!("={value:?}") };
        let wrong = |expected: String| anyhow::anyhow!("{called}{shown}: {expected}");
        match self.kind {
            Kind::Text | Kind::Path | Kind::Url(_) | Kind::List => {}
            Kind::Address => {
                let parsed: Result<SocketAddr, _> = value.parse();
                ensure!(
                    parsed.is_ok(),
                    wrong("an IP address and a port, for example 127.0.0.1:8080".to_owned())
                );
            }
            Kind::Switch => {
                return match value.to_ascii_lowercase().as_str() {
                    "true" | "1" | "yes" | "on" => Ok("true".to_owned()),
                    "false" | "0" | "no" | "off" => Ok("false".to_owned()),
                    _ => Err(wrong("true or false".to_owned())),
                };
            }
            Kind::Whole(least, most) => {
                let in_range = value.parse().is_ok_and(|number: u64| (least..=most).contains(&number));
                ensure!(in_range, wrong(format!("a whole number from {least} to {most}")));
            }
            Kind::Number(least, most) => {
                // A NaN is in no range.
                let in_range = value.parse().is_ok_and(|number: f64| (least..=most).contains(&number));
                ensure!(in_range, wrong(format!("a number from {least} to {most}")));
            }
            Kind::OneOf(words) => {
                let known = words.iter().find(|word| word.eq_ignore_ascii_case(value));
                let word = known.ok_or_else(|| wrong(format!("one of {}", words.join(", "))))?;
                return Ok((*word).to_owned());
            }
        }
        Ok(value.to_owned())
    }

    /// A file's value as text.
    ///
    /// # Errors
    /// When it is of a type that the setting does not take.
    pub fn text_of(&self, value: &toml::Value) -> anyhow::Result<String> {
        let name = self.in_file();
        Ok(match (value, self.kind) {
            (toml::Value::String(text), _) => text.clone(),
            (toml::Value::Integer(number), Kind::Whole(..) | Kind::Number(..)) => number.to_string(),
            (toml::Value::Float(number), Kind::Number(..)) => number.to_string(),
            (toml::Value::Boolean(switch), Kind::Switch) => switch.to_string(),
            (toml::Value::Array(items), Kind::List) => {
                let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                items.with_context(|| format!("{name}: an array of strings"))?.join(",")
            }
            _ => bail!("{name}: a {} does not belong here; it takes {}", value.type_str(), self.takes()),
        })
    }

    /// What it takes, for a person.
    #[must_use]
    pub fn takes(&self) -> String {
        match self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Url(form) => format!("a URL such as `{form}`"),
            Kind::Address => "address:port".to_owned(),
            Kind::List => "comma-separated texts, an array in the file".to_owned(),
            Kind::Switch => "`true`, `false`".to_owned(),
            Kind::Whole(least, most) => format!("{least} to {most}"),
            Kind::Number(least, most) => format!("{least} to {most}"),
            Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        }
    }

    /// A value that may be shown: a secret's is hidden, of any URL only the password and the query, where a key may
    /// stand.
    #[must_use]
    pub fn shown(&self, value: &str) -> String {
        match self.kind {
            Kind::Url(_) => shown_url(value).unwrap_or_else(|| HIDDEN.to_owned()),
            _ if self.is_secret => HIDDEN.to_owned(),
            _ => value.to_owned(),
        }
    }
}

/// `None` for what is no URL, and could be anything.
fn shown_url(value: &str) -> Option<String> {
    let mut url = Url::parse(value).ok()?;
    if url.password().is_none() && url.query().is_none() {
        return Some(value.to_owned());
    }
    let query = url.query().map_or(String::new(), |_| format!("?{HIDDEN}"));
    url.set_query(None);
    if url.password().is_some() {
        url.set_password(Some(HIDDEN)).ok()?;
    }
    Some(format!("{url}{query}"))
}

/// What a hidden value is shown as.
const HIDDEN: &str = "***";

/// What every variable of memser may begin with, and those do whose name would not say whose they are.
pub(super) const PREFIX: &str = "MEMSER_";

/// Every setting.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|group| group.keys)
}

/// The known name that was probably meant: one slip away, or one is the beginning of the other.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let begins = |known: &str| name.len() >= 4 && (known.starts_with(name) || name.starts_with(known));
    known
        .filter(|known| is_slip(name, known) || begins(known))
        .min_by_key(|known| strsim::damerau_levenshtein(name, known))
}

/// Whether a name misses another by a slip of the keyboard: two letters, or a quarter of a short name. Letters in the
/// wrong order are the commonest, and count as one.
pub(super) fn is_slip(name: &str, known: &str) -> bool {
    name != known && strsim::damerau_levenshtein(name, known) <= (known.len() / 4).min(2)
}
