//! The configuration on paper: what is in force, the sample file, the reference page.

use std::fmt::Write;

use super::key::{Key, Kind};
use super::keys::GROUPS;
use super::source::Source;

/// Every setting with the value in force and who set it, as a configuration file. Secrets are hidden.
#[must_use]
pub fn effective(source: &Source) -> String {
    let mut out = String::new();
    for group in GROUPS {
        let _ = writeln!(out, "# {}", group.title);
        for key in group.keys {
            let _ = match source.text(key.name) {
                Some(text) => {
                    let value = literal(key, &key.shown(text));
                    writeln!(out, "{} = {value}  # {}", key.in_file(), source.origin(key.name))
                }
                None => writeln!(out, "# {} is not set: {}", key.in_file(), key.unset),
            };
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The sample file: every setting, explained and commented out.
#[must_use]
pub fn sample() -> String {
    let mut out = SAMPLE_HEAD.to_owned();
    for group in GROUPS {
        let _ = write!(out, "\n# ===== {} =====\n", group.title);
        for key in group.keys {
            out.push('\n');
            for line in wrapped(&format!("{} Takes {}. Default: {}.", key.doc, key.takes(), key.otherwise()))
            {
                let _ = writeln!(out, "# {line}");
            }
            let value = key.default.map_or_else(|| example(key), |value| literal(key, value));
            let _ = writeln!(out, "#{} = {value}", key.in_file());
        }
    }
    out
}

/// `docs/configuration.md`.
#[must_use]
pub fn page() -> String {
    let mut out = PAGE_HEAD.to_owned();
    for group in GROUPS {
        let _ = write!(
            out,
            "\n## {}\n\n| Variable | Default | Takes | Meaning |\n|---|---|---|---|\n",
            group.title
        );
        for key in group.keys {
            let _ = writeln!(out, "| `{}` | {} | {} | {} |", key.name, key.otherwise(), key.takes(), key.doc);
        }
        if !group.introduction.is_empty() {
            let _ = write!(out, "\n{}", group.introduction);
        }
    }
    out
}

/// A value as TOML writes it.
fn literal(key: &Key, text: &str) -> String {
    match key.kind {
        Kind::Whole(..) | Kind::Number(..) | Kind::Switch => text.to_owned(),
        Kind::List => {
            let items = text.split(',').map(|item| toml::Value::from(item.trim()).to_string());
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        _ => toml::Value::from(text).to_string(),
    }
}

/// Something that a setting without a default takes.
fn example(key: &Key) -> String {
    match key.kind {
        Kind::Url(example) => literal(key, example),
        Kind::Whole(_, most) => most.min(1_024).to_string(),
        Kind::Number(_, most) => (most / 2.0).to_string(),
        Kind::OneOf([first, ..]) => literal(key, first),
        Kind::Switch => "true".to_owned(),
        Kind::List => "[]".to_owned(),
        _ => "\"\"".to_owned(),
    }
}

/// Lines of at most 100 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() > 100);
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

const SAMPLE_HEAD: &str = "\
# memser's configuration: every setting with its default, made by `memser config --sample`.
#
# memser reads it where MEMSER_CONFIG or --config names it. Variables win over it; a key is the
# variable's name in lower case without MEMSER_. `memser config` shows what is in force.
";

const PAGE_HEAD: &str = "\
<!-- Made by `make reference` from src/config/: change it there. -->
# Configuration

memser takes each setting from an environment variable, else from the configuration file, else from its default. An empty
value counts as not set. An unknown name or an impossible value stops the start with a message that names it, the nearest
name that memser knows, and where it stands.

- **Variables**: as below. Those that do not begin with `MEMSER_` are also read with it in front (`MEMSER_REDIS_URL`), and
  that name wins. A secret may stand in a file instead: `NAME_FILE` is its path, as container engines hand out secrets
  (`OPENAI_API_KEY_FILE=/run/secrets/openai`).
- **File**: TOML, named by `--config` or `MEMSER_CONFIG`; there is no other place where memser looks. A key is the
  variable's name in lower case without `MEMSER_`: `bind`, `redis_url`. [memser.default.toml](../memser.default.toml) has
  them all, explained and commented out.
- **`memser config`** prints what is in force and who set it, with secrets hidden, and exits with 1 where memser would
  refuse to start. `--sample` prints the file, `--reference` this page.

memser reads no `.env`; a shell or a container engine does that. Variables that Kubernetes makes for a Service named
`memser` (`MEMSER_PORT=tcp://…`, `MEMSER_SERVICE_HOST`) are not taken for settings.
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::key::keys;
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_possible() {
        let mut names = HashSet::new();
        for key in keys() {
            assert!(names.insert(key.in_file()), "{} is there twice", key.name);
            if let Some(default) = key.default {
                assert_eq!(key.check(key.name, default).unwrap(), default);
            }
            assert!(key.doc.ends_with('.') && !key.doc.contains("  "), "{}", key.name);
        }
    }

    #[test]
    fn the_sample_with_every_comment_taken_away_is_a_configuration_file() {
        let lines = sample();
        let settings =
            lines.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' '));
        let text: Vec<&str> = settings.filter(|line| line.contains(" = ")).collect();
        assert_eq!(text.len(), keys().count());
        let table: toml::Table = text.join("\n").parse().unwrap();
        for key in keys() {
            key.text_of(&table[&key.in_file()]).unwrap();
        }
    }

    #[test]
    fn the_committed_pages_are_these() {
        let root = env!("CARGO_MANIFEST_DIR");
        for (path, made) in [("memser.default.toml", sample()), ("docs/configuration.md", page())] {
            let committed = std::fs::read_to_string(format!("{root}/{path}")).unwrap();
            assert!(committed == made, "{path} is out of date: make reference");
        }
    }
}
