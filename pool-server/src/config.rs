//! The server's settings: command line first, then `/etc/gpupool/server.toml`, then the defaults.
//!
//! | key in the file | flag | meaning | default |
//! |---|---|---|---|
//! | `driver` | `--driver` | absolute path of a CUDA driver library, or `nvidia`, or `soft` | `nvidia` |
//! | `socket` | `--socket` | Unix socket, or `none` | `/run/gpupool/pool.sock` |
//! | `listen` | `--listen` | address and port for TCP, or `none` | `127.0.0.1:7070` |
//! | `token_file` | `--token-file` | lines of `NAME TOKEN`; not readable for everybody | none |
//! | `insecure` | `--insecure` | tokens may cross a plain network connection | `false` |
//! | `allow_anonymous_loopback` | `--allow-anonymous-loopback` | every user of this host may come in over loopback TCP | `false` |
//! | `max_sessions` | `--max-sessions` | sessions at one time | 64 |
//! | `warm_workers` | `--warm-workers` | workers that wait with their driver loaded | 1 |
//! | `log` | `--log` | filter of what is logged to stderr | `info` |
//!
//! Who is let in without a token: see [`crate::daemon::auth`].

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use gpupool_protocol::small_file;
use serde::Deserialize;

use crate::daemon::DaemonConfig;
use crate::daemon::process::WorkerProgram;

/// The file that is read where `--config` names no other.
pub const DEFAULT_FILE: &str = "/etc/gpupool/server.toml";

/// Settings from one source; what it does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// CUDA driver that workers load: an absolute path, `nvidia`, or `soft` [default: nvidia]
    #[arg(long, value_name = "PATH|nvidia|soft")]
    pub driver: Option<String>,
    /// Unix socket to listen on, or `none` [default: /run/gpupool/pool.sock]
    #[arg(long, value_name = "PATH|none")]
    pub socket: Option<String>,
    /// TCP address to listen on, or `none` [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR:PORT|none")]
    pub listen: Option<String>,
    /// File with a line `NAME TOKEN` for each tenant
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Let tokens and data cross a plain network connection
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", require_equals = true)]
    pub insecure: Option<bool>,
    /// Let every user of this host in over loopback TCP, without a token
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", require_equals = true)]
    pub allow_anonymous_loopback: Option<bool>,
    /// Sessions at one time [default: 64]
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<usize>,
    /// Workers that wait with their driver loaded [default: 1]
    #[arg(long, value_name = "N")]
    pub warm_workers: Option<usize>,
    /// What is logged to stderr: error, warn, info, debug, trace, or a filter [default: info]
    #[arg(long, value_name = "FILTER", env = crate::LOG_VARIABLE)]
    pub log: Option<String>,
}

impl Settings {
    /// These settings, completed by those of `file`, or of the default file if that exists.
    pub fn completed_by_file(self, file: Option<&Path>) -> anyhow::Result<Self> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let (content, _) = match small_file::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && file.is_none() => return Ok(self),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let from_file: Self = toml::from_str(&content)
            .map_err(|e| anyhow::anyhow!("{}", e.to_string().trim_end()))
            .with_context(|| format!("{} cannot be used", path.display()))?;
        Ok(self.or(from_file))
    }

    fn or(self, other: Self) -> Self {
        Self {
            driver: self.driver.or(other.driver),
            socket: self.socket.or(other.socket),
            listen: self.listen.or(other.listen),
            token_file: self.token_file.or(other.token_file),
            insecure: self.insecure.or(other.insecure),
            allow_anonymous_loopback: self.allow_anonymous_loopback.or(other.allow_anonymous_loopback),
            max_sessions: self.max_sessions.or(other.max_sessions),
            warm_workers: self.warm_workers.or(other.warm_workers),
            log: self.log.or(other.log),
        }
    }

    /// The log filter.
    pub fn log_filter(&self) -> &str {
        self.log.as_deref().unwrap_or("info")
    }

    /// Checks everything and finds the driver.
    pub fn resolve(self) -> anyhow::Result<DaemonConfig> {
        let worker = WorkerProgram::own(self.log_filter());
        let max_sessions = self.max_sessions.unwrap_or(64);
        ensure!(
            (1..=100_000).contains(&max_sessions),
            "max_sessions is {max_sessions}, not from 1 to 100000"
        );
        let warm_workers = self.warm_workers.unwrap_or(1);
        ensure!(warm_workers <= 64, "warm_workers is {warm_workers}, more than 64");
        Ok(DaemonConfig {
            driver: find_driver(self.driver.as_deref().unwrap_or("nvidia"))?,
            socket: match self.socket.as_deref() {
                Some("none") => None,
                other => Some(other.unwrap_or("/run/gpupool/pool.sock").into()),
            },
            listen: listen(self.listen.as_deref())?,
            token_file: self.token_file,
            insecure: self.insecure.unwrap_or(false),
            allow_anonymous_loopback: self.allow_anonymous_loopback.unwrap_or(false),
            max_sessions,
            warm_workers,
            worker,
        })
    }
}

fn listen(text: Option<&str>) -> anyhow::Result<Option<SocketAddr>> {
    match text.unwrap_or("127.0.0.1:7070") {
        "none" => Ok(None),
        text => {
            let address = text.parse();
            Ok(Some(
                address
                    .with_context(|| format!("listen: `{text}` is not an IP address with a port, or none"))?,
            ))
        }
    }
}

/// Where distributions, containers and WSL put NVIDIA's driver library.
const DRIVER_DIRECTORIES: [&str; 9] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
];

/// The library behind `--driver`, as an absolute path to an existing file.
fn find_driver(name: &str) -> anyhow::Result<PathBuf> {
    let candidates: Vec<PathBuf> = match name {
        "nvidia" => DRIVER_DIRECTORIES.iter().map(|d| Path::new(d).join("libcuda.so.1")).collect(),
        "soft" => {
            let own = std::env::current_exe().context("cannot find this program's own directory")?;
            let bin = own.parent().unwrap_or(Path::new("/"));
            vec![bin.join("libsoftcuda.so"), bin.join("../lib/gpupool/libsoftcuda.so")]
        }
        path if Path::new(path).is_absolute() => vec![path.into()],
        other => bail!("driver: `{other}` is not an absolute path, nor nvidia, nor soft"),
    };
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return found.canonicalize().with_context(|| format!("cannot resolve {}", found.display()));
    }
    let looked = candidates.iter().map(|c| c.display().to_string()).collect::<Vec<_>>().join(", ");
    match name {
        "nvidia" => bail!(
            "no NVIDIA driver: libcuda.so.1 is in none of the usual places ({looked}); --driver takes its path, and \
             --driver soft needs no GPU"
        ),
        "soft" => bail!("the software driver is not installed: no {looked}"),
        _ => bail!("no driver: {looked} does not exist or is not a file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(content: &str, flags: Settings) -> anyhow::Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.toml");
        std::fs::write(&path, content).unwrap();
        flags.completed_by_file(Some(&path))
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let content =
            "driver = \"/lib/d.so\"\nlisten = \"none\"\ninsecure = true\nmax_sessions = 3\nlog = \"warn\"";
        let flags = Settings { max_sessions: Some(5), insecure: Some(false), ..Settings::default() };
        let settings = from_file(content, flags).unwrap();
        assert_eq!((settings.max_sessions, settings.insecure), (Some(5), Some(false)));
        assert_eq!((settings.driver.as_deref(), settings.log_filter()), (Some("/lib/d.so"), "warn"));
    }

    #[test]
    fn wrong_files_and_values_are_named() {
        let unknown = format!("{:#}", from_file("max_session = 3", Settings::default()).unwrap_err());
        assert!(unknown.contains("server.toml") && unknown.contains("max_session"), "{unknown}");
        let missing =
            Settings::default().completed_by_file(Some(Path::new("/nonexistent.toml"))).unwrap_err();
        assert!(format!("{missing:#}").contains("/nonexistent.toml"));
        for (settings, part) in [
            (Settings { driver: Some("relative.so".into()), ..Settings::default() }, "not an absolute path"),
            (Settings { driver: Some("/nonexistent.so".into()), ..Settings::default() }, "does not exist"),
            (Settings { max_sessions: Some(0), ..Settings::default() }, "max_sessions"),
            (
                Settings {
                    driver: Some("/proc/version".into()),
                    listen: Some("7070".into()),
                    ..Settings::default()
                },
                "`7070` is not an IP address",
            ),
        ] {
            let said = settings.resolve().unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn defaults_listen_on_the_own_host_only() {
        let settings = Settings { driver: Some("/proc/version".into()), ..Settings::default() };
        let config = settings.resolve().unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:7070".parse().unwrap()));
        assert_eq!(config.socket, Some("/run/gpupool/pool.sock".into()));
        assert!(!config.insecure && !config.allow_anonymous_loopback);
        let settings = Settings {
            driver: Some("/proc/version".into()),
            socket: Some("none".into()),
            ..Settings::default()
        };
        assert_eq!(settings.resolve().unwrap().socket, None);
    }
}
