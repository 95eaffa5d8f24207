//! The daemon's sockets.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use tokio::net::{TcpListener, UnixListener};

/// A listening Unix socket whose file goes with it.
#[derive(Debug)]
pub struct UnixEndpoint {
    /// The socket.
    pub listener: UnixListener,
    path: PathBuf,
}

impl UnixEndpoint {
    /// Listens at `path`. Takes the place of a socket that nobody serves any more; refuses to take a living one's or a
    /// file's. `open_to_all`: the daemon's tokens decide who comes in, instead of the file's mode.
    pub fn bind(path: &Path, open_to_all: bool) -> anyhow::Result<Self> {
        ensure!(path.is_absolute(), "the socket's path {} is not absolute", path.display());
        if let Some(directory) = path.parent().filter(|d| !d.exists()) {
            std::fs::create_dir_all(directory).with_context(|| {
                format!("cannot make the directory of the socket, {}", directory.display())
            })?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on {}; --socket names another place", path.display()))?;
        let endpoint = Self { listener, path: path.into() };
        // Connecting needs the right to write. Until here only the owner had it, by any sensible umask.
        let mode = if open_to_all { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {}", path.display()))?;
        Ok(endpoint)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixEndpoint {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    ensure!(meta.file_type().is_socket(), "{} exists and is not a socket", path.display());
    match std::os::unix::net::UnixStream::connect(path) {
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .with_context(|| format!("cannot remove the old socket {}", path.display())),
        Ok(_) => bail!("another server listens on {}; --socket names another place", path.display()),
        Err(e) => Err(e).with_context(|| format!("cannot tell whether {} is in use", path.display())),
    }
}

/// Listens on a TCP address.
pub async fn bind_tcp(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; --listen names another address, or none"))
}
