//! Where the interposer lies, and the environment that makes a program use it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use gpupool_protocol::config::{ClientConfig, DEFAULT_FILE};
use gpupool_protocol::control::ServerAddress;

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

    /// The client configuration that the program will find: its variables, then the configuration file.
    pub fn client_config(&self) -> anyhow::Result<ClientConfig> {
        let changed = |name: &str| self.changes.iter().rev().find(|(changed, _)| *changed == name);
        let config = ClientConfig::load_with(|name| match changed(name) {
            Some((_, value)) => value.clone(),
            None => std::env::var_os(name),
        })?;
        Ok(config)
    }

    /// Passes the server of the command line on, or makes sure that one is configured elsewhere.
    pub fn choose_server(&mut self, server: Option<&str>, token_file: Option<&Path>) -> anyhow::Result<()> {
        if let Some(file) = token_file {
            // The program may change its directory before it first calls CUDA.
            self.set(
                "GPUPOOL_TOKEN_FILE",
                std::path::absolute(file).context("cannot resolve the token file's path")?,
            );
            self.remove("GPUPOOL_TOKEN");
        }
        if let Some(server) = server {
            self.set("GPUPOOL_SERVER", absolute(server)?.to_string());
        }
        if self.client_config()?.server.is_none() {
            bail!(
                "no pool server is configured: give --server HOST:PORT, set GPUPOOL_SERVER, write `server = \"HOST:PORT\"` \
                 into {DEFAULT_FILE}, or use --embedded for a private server whose GPU is this machine's CPU"
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

/// A server address; unlike in a variable, a relative path after `unix:` is taken from the current directory.
fn absolute(server: &str) -> anyhow::Result<ServerAddress> {
    let address = match server.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => {
            let path = std::path::absolute(path).context("cannot resolve the socket's path")?;
            format!("unix:{}", path.display()).parse()
        }
        _ => server.parse(),
    };
    Ok(address?)
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
    fn a_relative_socket_becomes_absolute() {
        let expected = std::env::current_dir().unwrap().join("dir/s");
        assert_eq!(absolute("unix:dir/s").unwrap(), ServerAddress::Unix(expected));
        assert_eq!(absolute("host:1").unwrap().to_string(), "host:1");
        assert!(absolute("unix:").is_err());
    }

    #[test]
    fn what_the_program_will_find_counts() {
        let mut environment = Environment { changes: Vec::new() };
        environment.set("GPUPOOL_CONFIG", "/dev/null");
        environment.remove("GPUPOOL_SERVER");
        assert_eq!(environment.client_config().unwrap().server, None);
        environment.set("GPUPOOL_SERVER", "host:1");
        assert_eq!(environment.client_config().unwrap().server.unwrap().to_string(), "host:1");
        environment.set("GPUPOOL_TRANSPORT", "pigeon");
        assert!(environment.client_config().is_err());
    }
}
