//! The client's configuration: the environment first, then `/etc/gpupool/client.toml`, key by key.
//!
//! | key in the file | variable | meaning | without it |
//! |---|---|---|---|
//! | `server` | `GPUPOOL_SERVER` | `HOST:PORT`, `[IPV6]:PORT` or `unix:/path` | no server |
//! | | `GPUPOOL_TOKEN` | the token itself | |
//! | `token_file` | `GPUPOOL_TOKEN_FILE` | a file that holds the token and that not everybody can read | no token |
//! | `transport` | `GPUPOOL_TRANSPORT` | `auto`, `shm` or `tcp` | `auto` |
//! | `tcp_connections` | `GPUPOOL_TCP_CONNECTIONS` | data connections of a session over TCP, 1 to 8; all but the first carry large copies | 1 |
//! | `log` | `GPUPOOL_LOG` | `off`, `error`, `warn`, `info`, `debug` or `trace`, to stderr; `LEVEL:/path` appends to a file | `off` |
//! | `connect_timeout_ms` | `GPUPOOL_CONNECT_TIMEOUT_MS` | time for the whole set-up of a session | 3000 |
//! | `disable` | `GPUPOOL_DISABLE` | optimisations to switch off, by name (a list in the file, commas in the variable) | none |
//! | `insecure` | `GPUPOOL_INSECURE` | `true`: a token may cross a plain network connection, if the server says so too | `false` |
//! | `driver_version` | `GPUPOOL_DRIVER_VERSION` | what `cuDriverGetVersion` answers, instead of asking the server | asks |
//! | `gpus` | `GPUPOOL_GPUS` | number of GPUs | all |
//! | `memory` | `GPUPOOL_MEMORY` | device memory a GPU: bytes, or with `KiB`, `MiB`, `GiB`, `TiB` | no limit |
//! | `share` | `GPUPOOL_SHARE` | share of a GPU's time, above 0 and up to 1 | no claim |
//! | `class` | `GPUPOOL_CLASS` | `elastic` or `latency` | `elastic` |
//! | `site` | `GPUPOOL_SITE` | where to run | anywhere |
//! | `labels` | `GPUPOOL_LABELS` | `name=value,…` (a table in the file) | none |
//!
//! A variable that is empty counts as not set. `GPUPOOL_CONFIG` names another file. A key that is not in the table and
//! a value that does not fit are errors that name it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::control::{CONNECTIONS_MAX, Class, Needs, ServerAddress, Token};
use crate::small_file;

/// The file that is read where `GPUPOOL_CONFIG` names no other.
pub const DEFAULT_FILE: &str = "/etc/gpupool/client.toml";

/// How the client is set up.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConfig {
    /// Where the pool is.
    pub server: Option<ServerAddress>,
    /// The credential.
    pub token: Option<Token>,
    /// Which transport to use.
    pub transport: TransportChoice,
    /// Data connections of a session over TCP.
    pub tcp_connections: u8,
    /// What to log, and where.
    pub log: Log,
    /// Time for the whole set-up of a session.
    pub connect_timeout: Duration,
    /// Optimisations to switch off.
    pub disable: Vec<String>,
    /// A token may cross a plain network connection, if the server agrees.
    pub insecure: bool,
    /// Answer to `cuDriverGetVersion`, instead of the server's.
    pub driver_version: Option<u32>,
    /// What sessions ask for.
    pub needs: Needs,
}

/// Which transport to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The best that works.
    #[default]
    Auto,
    /// Shared memory or nothing.
    Shm,
    /// TCP or nothing.
    Tcp,
}

/// What to log, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The least severe level that is shown.
    pub level: LogLevel,
    /// A file to append to; `None`: stderr.
    pub file: Option<PathBuf>,
}

/// Severity; each level includes the ones before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum LogLevel {
    #[default]
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Why the configuration cannot be used; one line that names the key and where it stands.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A value that does not fit.
    #[error("{place}: {problem}")]
    Value {
        /// The variable, or the file and key.
        place: String,
        /// What is wrong, and what would fit.
        problem: String,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {problem}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The parser's words.
        problem: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {problem}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error. Not by the name of `source`: it is in the text, and would be said twice where causes are listed.
        problem: io::Error,
    },
}

/// Characters of a problem that are shown, about.
const SHOWN: usize = 400;

impl ConfigError {
    /// A value that does not fit. Of a problem that repeats a very long value, beginning and end are kept.
    fn value(place: String, problem: &str) -> Self {
        let problem = match problem.char_indices().nth(SHOWN) {
            None => problem.into(),
            Some(_) => {
                let end: Vec<char> = problem.chars().rev().take(SHOWN / 2).collect();
                let begin = problem.chars().take(SHOWN / 2);
                begin.chain(['…']).chain(end.into_iter().rev()).collect()
            }
        };
        Self::Value { place, problem }
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            server: None,
            token: None,
            transport: TransportChoice::Auto,
            tcp_connections: 1,
            log: Log::default(),
            connect_timeout: Duration::from_millis(3000),
            disable: Vec::new(),
            insecure: false,
            driver_version: None,
            needs: Needs::default(),
        }
    }
}

type Set = fn(&mut ClientConfig, &str) -> Result<(), String>;

/// Every key with its variable and its reader. `token` has no key in the file, since that file is for everybody.
const KEYS: [(&str, &str, Set); 16] = [
    ("server", "GPUPOOL_SERVER", |c, v| put(&mut c.server, v.parse().map(Some).map_err(text))),
    ("token_file", "GPUPOOL_TOKEN_FILE", |c, v| put(&mut c.token, token_from(Path::new(v)).map(Some))),
    ("", "GPUPOOL_TOKEN", |c, v| put(&mut c.token, one_word(v).map(|word| Some(Token::new(word))))),
    ("transport", "GPUPOOL_TRANSPORT", |c, v| put(&mut c.transport, transport(v))),
    ("tcp_connections", "GPUPOOL_TCP_CONNECTIONS", |c, v| {
        put(&mut c.tcp_connections, number(v, 1, CONNECTIONS_MAX.into()).map(|n| n as u8))
    }),
    ("log", "GPUPOOL_LOG", |c, v| put(&mut c.log, log(v))),
    ("connect_timeout_ms", "GPUPOOL_CONNECT_TIMEOUT_MS", |c, v| {
        put(&mut c.connect_timeout, number(v, 1, 600_000).map(|ms| Duration::from_millis(ms.into())))
    }),
    ("disable", "GPUPOOL_DISABLE", |c, v| put(&mut c.disable, names(v))),
    ("insecure", "GPUPOOL_INSECURE", |c, v| put(&mut c.insecure, truth(v))),
    ("driver_version", "GPUPOOL_DRIVER_VERSION", |c, v| {
        put(&mut c.driver_version, number(v, 1000, 99_990).map(Some))
    }),
    ("gpus", "GPUPOOL_GPUS", |c, v| put(&mut c.needs.gpus, number(v, 1, 1024))),
    ("memory", "GPUPOOL_MEMORY", |c, v| put(&mut c.needs.memory_bytes, bytes(v))),
    ("share", "GPUPOOL_SHARE", |c, v| put(&mut c.needs.share_permille, permille(v))),
    ("class", "GPUPOOL_CLASS", |c, v| put(&mut c.needs.class, class(v))),
    ("site", "GPUPOOL_SITE", |c, v| put(&mut c.needs.site, short(v))),
    ("labels", "GPUPOOL_LABELS", |c, v| put(&mut c.needs.labels, labels(v))),
];

impl ClientConfig {
    /// Reads environment and file.
    pub fn load() -> Result<Self, ConfigError> {
        Self::load_with(|name| std::env::var_os(name))
    }

    /// The same with another environment.
    pub fn load_with(environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let variable = |name: &str| environment(name).filter(|v| !v.is_empty());
        let mut config = Self::default();
        let named = variable("GPUPOOL_CONFIG").map(PathBuf::from);
        let file = named.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        match small_file::read(&file) {
            Ok((content, _)) => config.take_file(&file, &content, &variable)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound && named.is_none() => {}
            Err(problem) => return Err(ConfigError::Read { file, problem }),
        }
        for (_, name, set) in KEYS {
            let Some(value) = variable(name) else { continue };
            let wrong = |problem: String| ConfigError::value(name.into(), &problem);
            let value = value.to_str().ok_or_else(|| wrong("is not UTF-8".into()))?;
            set(&mut config, value).map_err(wrong)?;
        }
        Ok(config)
    }

    /// Is this optimisation switched off?
    pub fn disabled(&self, optimisation: &str) -> bool {
        self.disable.iter().any(|name| name == optimisation)
    }

    /// Takes every key of the file that no variable overrides, after checking that all keys exist.
    fn take_file(
        &mut self,
        file: &Path,
        content: &str,
        variable: &impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigError> {
        let table: toml::Table = content.parse().map_err(|e: toml::de::Error| {
            let before = e.span().map_or(0, |span| span.start).min(content.len());
            let line = content.as_bytes()[..before].iter().filter(|b| **b == b'\n').count() + 1;
            ConfigError::Syntax { file: file.into(), line, problem: e.message().replace('\n', " ") }
        })?;
        for (key, value) in &table {
            let wrong =
                |problem: String| ConfigError::value(format!("{}, `{key}`", file.display()), &problem);
            let Some((_, name, set)) = KEYS.iter().find(|(k, ..)| k == key && !k.is_empty()) else {
                let known: Vec<&str> = KEYS.iter().map(|k| k.0).filter(|k| !k.is_empty()).collect();
                return Err(wrong(format!("there is no such key; the keys are {}", known.join(", "))));
            };
            let value = flat(value).map_err(wrong)?;
            // What a variable overrides is not looked at: another user's token file need not be readable.
            let overridden =
                variable(name).is_some() || (key == "token_file" && variable("GPUPOOL_TOKEN").is_some());
            if !overridden {
                set(self, &value).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

/// A TOML value in the spelling of the variables.
fn flat(value: &toml::Value) -> Result<String, String> {
    let scalar = |value: &toml::Value| match value {
        toml::Value::String(s) => Ok(s.clone()),
        toml::Value::Integer(n) => Ok(n.to_string()),
        toml::Value::Float(x) => Ok(x.to_string()),
        toml::Value::Boolean(b) => Ok(b.to_string()),
        other => Err(format!("a {} does not fit here", other.type_str())),
    };
    let part = |value: &toml::Value| match scalar(value)? {
        s if s.contains(',') => Err(format!("`{s}`: a comma cannot stand inside a value")),
        s => Ok(s),
    };
    match value {
        toml::Value::Array(items) => Ok(items.iter().map(part).collect::<Result<Vec<_>, _>>()?.join(",")),
        toml::Value::Table(table) => {
            let pairs = table.iter().map(|(k, v)| Ok(format!("{k}={}", part(v)?)));
            Ok(pairs.collect::<Result<Vec<String>, String>>()?.join(","))
        }
        other => scalar(other),
    }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn number(value: &str, least: u32, most: u32) -> Result<u32, String> {
    match value.parse::<u32>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("`{value}` is not a whole number from {least} to {most}")),
    }
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{value}` is neither true nor false")),
    }
}

fn transport(value: &str) -> Result<TransportChoice, String> {
    match value {
        "auto" => Ok(TransportChoice::Auto),
        "shm" => Ok(TransportChoice::Shm),
        "tcp" => Ok(TransportChoice::Tcp),
        _ => Err(format!("`{value}` is not one of auto, shm, tcp")),
    }
}

fn class(value: &str) -> Result<Class, String> {
    match value {
        "elastic" => Ok(Class::Elastic),
        "latency" => Ok(Class::Latency),
        _ => Err(format!("`{value}` is not one of elastic, latency")),
    }
}

fn log(value: &str) -> Result<Log, String> {
    let (level, file) = match value.split_once(':') {
        Some((level, path)) => (level, Some(PathBuf::from(path))),
        None => (value, None),
    };
    let level = match level {
        "off" => LogLevel::Off,
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        _ => {
            return Err(format!(
                "`{value}` is not off, error, warn, info, debug or trace, or one of them with :/path"
            ));
        }
    };
    match file {
        Some(path) if !path.is_absolute() => Err(format!("`{value}`: the file needs an absolute path")),
        file => Ok(Log { level, file }),
    }
}

fn names(value: &str) -> Result<Vec<String>, String> {
    let name = |part: &str| match part.trim() {
        p if !p.is_empty()
            && p.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') =>
        {
            Ok(p.to_owned())
        }
        p => Err(format!("`{p}` is not the name of an optimisation (small letters, digits and _)")),
    };
    if value.trim().is_empty() { Ok(Vec::new()) } else { value.split(',').map(name).collect() }
}

/// Bytes, with an optional binary unit.
fn bytes(value: &str) -> Result<u64, String> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(format!("`{value}` is not a number of bytes (units: KiB, MiB, GiB, TiB)")),
    };
    let number: Option<u64> = number.parse().ok();
    let total = number.and_then(|n| n.checked_mul(1 << shift));
    total.filter(|n| *n > 0).ok_or_else(|| format!("`{value}` is not a number of bytes above 0"))
}

fn permille(value: &str) -> Result<u32, String> {
    match value.parse::<f64>() {
        // At most 1000 by the guard, and rounding keeps it whole.
        Ok(x) if (0.001..=1.0).contains(&x) => Ok((x * 1000.0).round() as u32),
        _ => Err(format!("`{value}` is not a share from 0.001 to 1")),
    }
}

fn short(value: &str) -> Result<String, String> {
    match value {
        v if v.len() > 256 => Err(format!("{} bytes are too long, at most 256 fit", v.len())),
        v if v.chars().any(char::is_control) => Err("a control character".into()),
        v => Ok(v.into()),
    }
}

fn labels(value: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |part: &str| match part.trim().split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((short(name)?, short(value)?)),
        _ => Err(format!("`{part}` is not name=value")),
    };
    let parts = value.split(',').filter(|p| !p.trim().is_empty());
    let labels: BTreeMap<_, _> = parts.map(pair).collect::<Result<_, String>>()?;
    if labels.len() > 64 {
        Err(format!("{} labels, at most 64 are allowed", labels.len()))
    } else {
        Ok(labels)
    }
}

/// Never repeats the value, which may be a token with a typing error in it.
fn one_word(value: &str) -> Result<&str, String> {
    match value.trim() {
        "" => Err("the token is empty".into()),
        v if v.len() > 1024 => Err("a token has at most 1024 bytes".into()),
        v if v.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Err("a token is one word, without spaces or line breaks".into())
        }
        v => Ok(v),
    }
}

fn token_from(file: &Path) -> Result<Token, String> {
    let shown = file.display();
    let (content, meta) = small_file::read(file).map_err(|e| format!("cannot read {shown}: {e}"))?;
    if meta.mode() & 0o007 != 0 {
        return Err(format!("{shown} is open to everybody; say chmod 600 {shown}"));
    }
    Ok(Token::new(one_word(&content).map_err(|e| format!("{shown}: {e}"))?))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
