//! Where the interposer lies, and the environment that makes a program use it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Deserialize;

use crate::Transport;

/// The machine-wide client configuration; environment variables come first.
const CLIENT_CONFIG: &str = "/etc/gpupool/client.toml";

/// Where the installed parts of gpupool lie.
pub struct Place {
    /// The directory that holds the interposer's `libcuda.so.1` and `libcuda.so`.
    pub interposer: PathBuf,
    /// The directory of pool-run itself; `pool-server` lies there too.
    pub programs: PathBuf,
}

impl Place {
    /// Finds the parts from pool-run's own place: `<dir>/gpupool` (a build directory), else `<dir>/../lib/gpupool` (installed).
    pub fn find() -> anyhow::Result<Place> {
        let own =
            std::env::current_exe().context("cannot tell where pool-run itself lies (is /proc mounted?)")?;
        let programs = own.parent().context("pool-run has no directory")?.to_path_buf();
        let tried = [programs.join("gpupool"), programs.join("../lib/gpupool")];
        for candidate in &tried {
            if candidate.join("libcuda.so.1").is_file() {
                let interposer = candidate
                    .canonicalize()
                    .with_context(|| format!("cannot resolve {}", candidate.display()))?;
                return Ok(Place { interposer, programs });
            }
        }
        bail!(
            "found no interposer: neither {} nor {} holds libcuda.so.1; build it (cargo build --release) or reinstall gpupool",
            tried[0].display(),
            tried[1].display()
        )
    }
}

/// The changes to make to a program's environment.
#[derive(Debug)]
pub struct Environment {
    changes: Vec<(&'static str, Option<OsString>)>,
}

impl Environment {
    /// The loader's variables, so that every way of finding `libcuda` ends at the interposer: `LD_PRELOAD` answers
    /// `dlopen("libcuda.so.1")`, `LD_LIBRARY_PATH` those that look for a file.
    pub fn for_interposer(place: &Place) -> anyhow::Result<Environment> {
        let library = place.interposer.join("libcuda.so.1");
        let preload = prepend(library.as_os_str(), std::env::var_os("LD_PRELOAD"), &[':', ' '])?;
        let path = prepend(place.interposer.as_os_str(), std::env::var_os("LD_LIBRARY_PATH"), &[':', ';'])?;
        Ok(Environment { changes: vec![("LD_PRELOAD", Some(preload)), ("LD_LIBRARY_PATH", Some(path))] })
    }

    /// Sets a variable for the program.
    pub fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.changes.push((name, Some(value.into())));
    }

    /// Takes a variable away from the program.
    pub fn remove(&mut self, name: &'static str) {
        self.changes.push((name, None));
    }

    /// Applies the changes to a command.
    pub fn apply(&self, command: &mut Command) {
        for (name, value) in &self.changes {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Passes the server named on the command line on, or makes sure that one is configured elsewhere.
    pub fn choose_server(&mut self, server: Option<&str>, token_file: Option<&Path>) -> anyhow::Result<()> {
        if let Some(file) = token_file {
            // The program may change its directory before it first calls CUDA.
            let file = std::path::absolute(file).context("cannot make the token file's path absolute")?;
            if !file.is_file() {
                bail!("the token file {} does not exist or is no file", file.display());
            }
            self.set("GPUPOOL_TOKEN_FILE", file);
            self.remove("GPUPOOL_TOKEN");
        }
        if let Some(server) = server {
            check_server(server)?;
            self.set("GPUPOOL_SERVER", absolute_server(server)?);
            return Ok(());
        }
        let variable = std::env::var("GPUPOOL_SERVER").unwrap_or_default();
        if !variable.is_empty() {
            return check_server(&variable).context("in GPUPOOL_SERVER");
        }
        if configured_server(Path::new(CLIENT_CONFIG))?.is_none() {
            bail!(
                "no pool server is configured: give --server HOST:PORT, set GPUPOOL_SERVER, write `server = \"HOST:PORT\"` \
                 into {CLIENT_CONFIG}, or use --embedded for a private server whose GPU is this machine's CPU"
            );
        }
        Ok(())
    }
}

/// Puts `first` before the entries of a list variable of the dynamic loader.
fn prepend(first: &OsStr, rest: Option<OsString>, separators: &[char]) -> anyhow::Result<OsString> {
    let text = first.to_string_lossy();
    if text.contains(separators) {
        bail!("the path {text} cannot be given to the dynamic loader: it contains one of {separators:?}");
    }
    let mut list = first.to_os_string();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    Ok(list)
}

/// Checks the form of a server address: `HOST:PORT` or `unix:PATH`.
fn check_server(server: &str) -> anyhow::Result<()> {
    let good = match server.strip_prefix("unix:") {
        Some(path) => !path.is_empty(),
        None => server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)),
    };
    if !good {
        bail!("'{server}' names no server: it must be HOST:PORT or unix:PATH");
    }
    Ok(())
}

/// Makes the path of `unix:PATH` absolute: the program may change its directory before it first calls CUDA.
fn absolute_server(server: &str) -> anyhow::Result<OsString> {
    let Some(path) = server.strip_prefix("unix:") else { return Ok(server.into()) };
    let mut address = OsString::from("unix:");
    address.push(std::path::absolute(path).context("cannot make the socket's path absolute")?);
    Ok(address)
}

/// The `server` entry of a client configuration; `None` when there is no such file or entry.
fn configured_server(file: &Path) -> anyhow::Result<Option<String>> {
    // Only the one entry that is needed: the interposer, which reads the whole file, judges the others.
    #[derive(Deserialize)]
    struct ClientConfig {
        server: Option<String>,
    }
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let config: ClientConfig = toml::from_str(&text)
        .with_context(|| format!("{} is not a valid client configuration", file.display()))?;
    Ok(config.server.filter(|server| !server.is_empty()))
}

/// The transport that `GPUPOOL_TRANSPORT` asks for.
pub fn transport_from_variable() -> anyhow::Result<Option<Transport>> {
    match std::env::var("GPUPOOL_TRANSPORT") {
        Ok(name) if !name.is_empty() => match Transport::from_str(&name, false) {
            Ok(transport) => Ok(Some(transport)),
            Err(_) => bail!("GPUPOOL_TRANSPORT is '{name}': it must be auto, shm or tcp"),
        },
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepend_keeps_what_was_there() {
        let list =
            |rest: Option<&str>| prepend(OsStr::new("/a"), rest.map(OsString::from), &[':', ' ']).unwrap();
        assert_eq!(list(None), "/a");
        assert_eq!(list(Some("")), "/a");
        assert_eq!(list(Some("/b:/c")), "/a:/b:/c");
    }

    #[test]
    fn prepend_refuses_what_the_loader_would_split() {
        assert!(prepend(OsStr::new("/a b"), None, &[':', ' ']).is_err());
        assert!(prepend(OsStr::new("/a:b"), None, &[':', ' ']).is_err());
    }

    #[test]
    fn server_addresses() {
        for good in ["host:1", "10.0.0.1:65535", "[::1]:4040", "unix:/run/gpupool.sock", "unix:s"] {
            assert!(check_server(good).is_ok(), "{good}");
        }
        for bad in ["", "host", "host:", ":4040", "host:0", "host:65536", "host:x", "unix:"] {
            assert!(check_server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_relative_socket_becomes_absolute() {
        let address = absolute_server("unix:dir/s").unwrap();
        let expected = std::env::current_dir().unwrap().join("dir/s");
        assert_eq!(address, OsString::from(format!("unix:{}", expected.display())));
        assert_eq!(absolute_server("host:1").unwrap(), "host:1");
    }

    #[test]
    fn client_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("client.toml");
        assert_eq!(configured_server(&file).unwrap(), None);
        std::fs::write(&file, "transport = \"tcp\"\n").unwrap();
        assert_eq!(configured_server(&file).unwrap(), None);
        std::fs::write(&file, "server = \"h:1\"\ntransport = \"tcp\"\n").unwrap();
        assert_eq!(configured_server(&file).unwrap().as_deref(), Some("h:1"));
        std::fs::write(&file, "server = [").unwrap();
        assert!(configured_server(&file).is_err());
    }
}
