//! Where values come from: the environment over a configuration file over the defaults.
//!
//! An empty value counts as none, so that a compose file may pass on what is not set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};

use super::key::{Key, PREFIX, is_slip, keys, nearest};

/// The variable that names the configuration file.
pub const FILE_VARIABLE: &str = "MEMSER_CONFIG";

/// Every value that is set, checked one by one.
#[derive(Debug, Default)]
pub struct Source {
    values: BTreeMap<&'static str, Value>,
    /// What an operator should look at although memser can start.
    pub warnings: Vec<String>,
}

#[derive(Debug)]
struct Value {
    text: String,
    origin: Origin,
}

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// This variable.
    Variable(String),
}

impl Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

impl Source {
    /// Reads the environment of this process, and the file that `file` or else `MEMSER_CONFIG` names.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_process(file: Option<&Path>) -> anyhow::Result<Self> {
        Self::read(file, std::env::vars_os())
    }

    /// Reads these variables, and the file that `file` or else `MEMSER_CONFIG` among them names.
    ///
    /// # Errors
    /// When a name is unknown or a setting does not take its value. All of them are told at once, by name, and no secret
    /// is repeated.
    pub fn read(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> anyhow::Result<Self> {
        let variables = Variables::of(variables);
        let mut reader = Reader::default();
        let named = variables.get(FILE_VARIABLE).map(PathBuf::from);
        if let Some(path) = file.map(Path::to_owned).or(named) {
            reader.read_file(&path)?;
        }
        for key in keys() {
            reader.read_variable(key, &variables);
        }
        reader.look_for_typos(&variables);
        match reader.problems.as_slice() {
            [] => Ok(reader.source),
            [problem] => bail!("{problem}"),
            problems => {
                bail!("the configuration has {} mistakes:\n  {}", problems.len(), problems.join("\n  "))
            }
        }
    }

    /// The value of a setting, where it is set or has a default.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let default = || keys().find(|key| key.name == name).and_then(|key| key.default);
        self.values.get(name).map(|value| value.text.as_str()).or_else(default)
    }

    /// Who set it.
    #[must_use]
    pub fn origin(&self, name: &str) -> Origin {
        self.values.get(name).map_or(Origin::Default, |value| value.origin.clone())
    }

    pub(super) fn maybe<T: FromStr>(&self, name: &str) -> anyhow::Result<Option<T>>
    where
        T::Err: Display,
    {
        let parse = |text: &str| {
            text.parse().map_err(|error| {
                let example = keys().find(|key| key.name == name).and_then(Key::example);
                let example = example.map(|example| format!(", for example {example}")).unwrap_or_default();
                anyhow::anyhow!("{name}: {error}{example}")
            })
        };
        self.text(name).map(parse).transpose()
    }

    /// The value of a setting with a default.
    pub(super) fn set<T: FromStr>(&self, name: &str) -> anyhow::Result<T>
    where
        T::Err: Display,
    {
        self.maybe(name)?.with_context(|| format!("{name} has no value"))
    }

    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let items = self.text(name).unwrap_or_default().split(',');
        items.map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }
}

/// The variables that could be memser's. One that is not UTF-8 is kept apart: it only matters where memser reads it.
struct Variables {
    texts: BTreeMap<String, String>,
    unreadable: Vec<String>,
}

impl Variables {
    fn of(all: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let (mut texts, mut unreadable) = (BTreeMap::new(), Vec::new());
        for (name, value) in all {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) if value.trim().is_empty() => {}
                Ok(value) => {
                    texts.insert(name, value.trim().to_owned());
                }
                Err(_) => unreadable.push(name),
            }
        }
        Self { texts, unreadable }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// The first of these that is set, with its name.
    fn first<'a>(&'a self, names: &[String]) -> Option<(&'a str, &'a str)> {
        let found = names.iter().find_map(|name| self.texts.get_key_value(name))?;
        Some((found.0, found.1))
    }
}

#[derive(Default)]
struct Reader {
    source: Source,
    problems: Vec<String>,
}

impl Reader {
    fn read_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the configuration {shown}"))?;
        // The parser's own words would show the line, and with it a secret.
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map_or(1, |before| before.lines().count().max(1));
            anyhow::anyhow!("{shown}, line {line}: {}", error.message())
        })?;
        for (name, value) in &table {
            let Some(key) = keys().find(|key| key.in_file() == *name) else {
                let names: Vec<String> = keys().map(Key::in_file).collect();
                let hint = hint(nearest(name, names.iter().map(String::as_str)));
                self.problems.push(format!("{shown}: unknown key {name}{hint}"));
                continue;
            };
            let value = key.text_of(value).and_then(|text| match text.trim() {
                "" => Ok(None),
                text => key.check(name, text).map(Some),
            });
            match value {
                Ok(None) => {}
                Ok(Some(text)) => self.put(key, text, Origin::File(path.to_owned())),
                Err(error) => self.problems.push(format!("{shown}: {error}")),
            }
        }
        let is_open = fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0);
        if is_open && keys().any(|key| key.is_secret && self.source.values.contains_key(key.name)) {
            self.source
                .warnings
                .push(format!("{shown} holds secrets and others can read it: chmod 600 {shown}"));
        }
        Ok(())
    }

    fn read_variable(&mut self, key: &'static Key, variables: &Variables) {
        let names = key.variables();
        if let Some(name) = names.iter().find(|name| variables.unreadable.contains(name)) {
            self.problems.push(format!("{name} is not UTF-8 text"));
        } else if let Some((name, text)) = variables.first(&names) {
            self.check(key, name, text);
        } else if let Some((name, path)) = variables.first(&key.file_variables()) {
            self.read_secret_file(key, name, path);
        }
    }

    /// A secret may come from a file that a variable names, as container engines hand out secrets.
    fn read_secret_file(&mut self, key: &'static Key, name: &str, path: &str) {
        match fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => {
                self.problems.push(format!("{name}={path}: the file is empty"));
            }
            Ok(text) => self.check(key, name, text.trim()),
            Err(error) => self.problems.push(format!("{name}={path}: {error}")),
        }
    }

    fn check(&mut self, key: &'static Key, name: &str, text: &str) {
        match key.check(name, text) {
            Ok(text) => self.put(key, text, Origin::Variable(name.to_owned())),
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    fn put(&mut self, key: &'static Key, text: String, origin: Origin) {
        self.source.values.insert(key.name, Value { text, origin });
    }

    /// Every unknown `MEMSER_…` is a mistake. So is a name that misses one of memser's own by a slip; where other
    /// programs use such names too it is only worth a warning.
    fn look_for_typos(&mut self, variables: &Variables) {
        let known: Vec<String> = keys()
            .flat_map(|key| [key.variables(), key.file_variables()].concat())
            .chain([FILE_VARIABLE.to_owned()])
            .collect();
        let unknown = variables.texts.iter().filter(|(name, _)| !known.contains(name));
        for (name, value) in unknown {
            if name.starts_with(PREFIX) {
                if !is_from_kubernetes(name, value) && !name.starts_with(TEST_PREFIX) {
                    let hint = hint(nearest(name, known.iter().map(String::as_str)));
                    self.problems.push(format!("unknown variable {name}{hint}"));
                }
            } else if let Some(key) = keys().find(|key| is_slip(name, key.name)) {
                let found = format!("unknown variable {name}; did you mean {}?", key.name);
                if SHARED.contains(&key.name) || !key.name.contains('_') {
                    self.source.warnings.push(format!("{found} It is not read"));
                } else {
                    self.problems.push(found);
                }
            }
        }
    }
}

/// Variables of memser's own tests and scripts.
const TEST_PREFIX: &str = "MEMSER_TEST_";

/// Names that other programs use as well, so that a like one may well be theirs.
const SHARED: &[&str] = &["DATABASE_URL", "REDIS_URL", "OPENAI_API_KEY"];

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; memser config --reference lists all".to_owned(),
        |name| format!("; did you mean {name}?"),
    )
}

/// Kubernetes tells every container of a namespace about every Service: one named memser, or memser-anything, makes
/// `MEMSER_SERVICE_HOST`, `MEMSER_SERVICE_PORT_HTTP`, `MEMSER_PORT=tcp://10.0.0.1:8080`, `MEMSER_PORT_8080_TCP_ADDR`.
fn is_from_kubernetes(name: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let of_port = ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| name.contains(protocol));
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.contains("_PORT") && (is_address || of_port))
}
