//! The version probe that a CUDA runtime causes before `cuInit`, and its caches.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::address::ServerAddress;
use super::again;
use super::error::ConnectError;
use crate::config::ClientConfig;

/// How long an answer in the file is believed.
const FRESH: Duration = Duration::from_secs(60);

/// The answers of this process, one a server. A failure is kept as well: hundreds of symbol look-ups must not each
/// wait for a server that is not there. `cuInit` connects for itself and reports the reason.
struct Known {
    server: ServerAddress,
    answer: Result<u32, Arc<ConnectError>>,
    /// How long it took, until somebody was told ([`probed_in_vain`]).
    took: Duration,
}
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// How long a probe of the configured server has waited without an answer; zero when asked again.
pub fn probed_in_vain(config: &ClientConfig) -> Duration {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let probe = known.iter_mut().find(|k| Some(&k.server) == config.server.as_ref() && k.answer.is_err());
    probe.map(|probe| std::mem::take(&mut probe.took)).unwrap_or_default()
}

/// The driver version that the configured server stands for: from the configuration, else as this process already
/// knows it, else from the file of the last minute, else by asking. Asks at most once a process and server.
pub fn driver_version(config: &ClientConfig) -> Result<u32, Arc<ConnectError>> {
    driver_version_via(config, ProbeCache::of_user)
}

/// The same with another cache, or none.
pub fn driver_version_via(
    config: &ClientConfig,
    cache: impl FnOnce() -> Option<ProbeCache>,
) -> Result<u32, Arc<ConnectError>> {
    if let Some(version) = config.driver_version {
        return Ok(version);
    }
    let server = config.server.as_ref().ok_or(ConnectError::NoServer)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.iter().find(|k| k.server == *server) {
        return known.answer.clone();
    }
    let start = Instant::now();
    let answer = ask(config, server, cache().as_ref()).map_err(Arc::new);
    known.push(Known { server: server.clone(), answer: answer.clone(), took: start.elapsed() });
    answer
}

fn ask(
    config: &ClientConfig,
    server: &ServerAddress,
    cache: Option<&ProbeCache>,
) -> Result<u32, ConnectError> {
    if let Some(version) = cache.and_then(|c| c.read(server)) {
        return Ok(version);
    }
    let deadline = Instant::now() + config.connect_timeout;
    let version = again::probe(config, deadline)?.driver_version;
    if let Some(cache) = cache {
        // A cache that cannot be written costs a probe a process, nothing else.
        let _ = cache.write(server, version);
    }
    Ok(version)
}

/// Files that keep an answer for a minute, one a server, in a directory that only this user can write.
#[derive(Debug, Clone)]
pub struct ProbeCache {
    directory: PathBuf,
}

impl ProbeCache {
    /// In the first of `$XDG_RUNTIME_DIR`, `/run/user/UID` and `~/.cache` that exists and belongs to this user.
    pub fn of_user() -> Option<Self> {
        let user = rustix::process::geteuid().as_raw();
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let places = [
            variable("XDG_RUNTIME_DIR"),
            Some(PathBuf::from(format!("/run/user/{user}"))),
            variable("HOME").map(|home| home.join(".cache")),
        ];
        let place = places.into_iter().flatten().find(|place| is_private(place, user))?;
        Some(Self { directory: place.join("gpupool") })
    }

    /// In this directory, which is made at the first write.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn file(&self, server: &ServerAddress) -> PathBuf {
        let hash = blake3::hash(server.to_string().as_bytes()).to_hex();
        self.directory.join(format!("probe-{}", &hash[..16]))
    }

    /// The answer of the last minute, if this user wrote it and nobody else could.
    pub fn read(&self, server: &ServerAddress) -> Option<u32> {
        let user = rustix::process::geteuid().as_raw();
        if !is_private(&self.directory, user) {
            return None;
        }
        let no_follow = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(no_follow).open(self.file(server)).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.uid() != user || meta.mode() & 0o022 != 0 {
            return None;
        }
        let mut content = String::new();
        Read::by_ref(&mut file).take(512).read_to_string(&mut content).ok()?;
        parse(&content, server, SystemTime::now())
    }

    /// Writes by renaming, so that a reader sees the old or the new file. Answers too old to be read go, or each
    /// private server of a program's would leave a file behind.
    pub fn write(&self, server: &ServerAddress, driver_version: u32) -> std::io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        self.sweep();
        let target = self.file(server);
        let part = target.with_extension(format!("{}.part", std::process::id()));
        let _ = fs::remove_file(&part);
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        let written = file
            .write_all(render(server, driver_version, SystemTime::now()).as_bytes())
            .and_then(|()| fs::rename(&part, &target));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }
}

impl ProbeCache {
    /// Removes our files that nobody believes any more. One that cannot be removed stays.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let ours = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"probe-");
        for entry in entries.flatten().filter(ours) {
            let written = entry.metadata().and_then(|meta| meta.modified()).ok();
            if written.is_some_and(|at| at.elapsed().is_ok_and(|age| age > FRESH)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A directory of this user in which nobody else can put files.
fn is_private(directory: &Path, user: u32) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|m| m.is_dir() && m.uid() == user && m.mode() & 0o022 == 0)
}

fn render(server: &ServerAddress, driver_version: u32, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    format!("{} {driver_version} {seconds} {server}\n", crate::WIRE_VERSION)
}

fn parse(content: &str, server: &ServerAddress, now: SystemTime) -> Option<u32> {
    let mut fields = content.strip_suffix('\n')?.splitn(4, ' ');
    let wire: u32 = fields.next()?.parse().ok()?;
    let version: u32 = fields.next()?.parse().ok()?;
    let written = UNIX_EPOCH.checked_add(Duration::from_secs(fields.next()?.parse().ok()?))?;
    let same = wire == crate::WIRE_VERSION && fields.next()? == server.to_string();
    // A file from the future is an error of `duration_since`, hence not fresh.
    (same && now.duration_since(written).ok()? < FRESH).then_some(version)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn cache() -> (tempfile::TempDir, ProbeCache, ServerAddress) {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProbeCache::in_directory(dir.path().join("gpupool"));
        (dir, cache, "gpu.example:7070".parse().unwrap())
    }

    #[test]
    fn what_is_written_is_read_and_only_for_its_server() {
        let (_dir, cache, server) = cache();
        assert_eq!(cache.read(&server), None);
        cache.write(&server, 13000).unwrap();
        cache.write(&server, 12080).unwrap();
        assert_eq!(cache.read(&server), Some(12080));
        assert_eq!(cache.read(&"gpu.example:7071".parse().unwrap()), None);
        assert_eq!(fs::read_dir(cache.directory).unwrap().count(), 1, "no part file is left");
    }

    #[test]
    fn old_answers_do_not_pile_up() {
        let (_dir, cache, server) = cache();
        cache.write(&server, 13000).unwrap();
        fs::write(cache.directory.join("other"), "not ours").unwrap();
        let old = SystemTime::now() - Duration::from_secs(120);
        for name in [cache.file(&server), cache.directory.join("other")] {
            File::options().write(true).open(name).unwrap().set_modified(old).unwrap();
        }
        let next: ServerAddress = "gpu.example:7071".parse().unwrap();
        cache.write(&next, 13000).unwrap();
        assert_eq!(cache.read(&next), Some(13000));
        assert!(!cache.file(&server).exists() && cache.directory.join("other").exists());
    }

    #[test]
    fn an_answer_lives_for_a_minute_and_never_comes_from_the_future() {
        let wire = crate::WIRE_VERSION;
        let server: ServerAddress = "gpu.example:7070".parse().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let content = render(&server, 13000, now);
        assert_eq!(parse(&content, &server, now + Duration::from_secs(59)), Some(13000));
        assert_eq!(parse(&content, &server, now + Duration::from_secs(60)), None);
        assert_eq!(parse(&content, &server, now - Duration::from_secs(1)), None);
        let broken = ["", "\n", "V", "V 13000 5 gpu.example:7070", "V -5 1000000 gpu.example:7070\n"];
        for broken in broken.map(|text| text.replace('V', &wire.to_string())) {
            assert_eq!(parse(&broken, &server, now), None, "{broken:?}");
        }
        let other = content.replacen(&wire.to_string(), &(wire + 1).to_string(), 1);
        assert_eq!(parse(&other, &server, now), None, "another wire version");
    }

    #[test]
    fn files_that_others_could_have_written_are_not_believed() {
        let (_dir, cache, server) = cache();
        cache.write(&server, 13000).unwrap();
        let file = cache.file(&server);
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();

        set(&file, 0o620);
        assert_eq!(cache.read(&server), None);
        set(&file, 0o600);
        assert_eq!(cache.read(&server), Some(13000));
        set(&cache.directory, 0o777);
        assert_eq!(cache.read(&server), None);
        set(&cache.directory, 0o700);

        let elsewhere = file.with_extension("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert_eq!(cache.read(&server), None, "a symbolic link");
    }

    #[test]
    fn the_configured_version_asks_nobody() {
        let config = ClientConfig { driver_version: Some(12040), ..ClientConfig::default() };
        assert_eq!(driver_version(&config).unwrap(), 12040);
        assert!(matches!(*driver_version(&ClientConfig::default()).unwrap_err(), ConnectError::NoServer));
    }
}
