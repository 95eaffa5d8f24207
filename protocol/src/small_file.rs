//! Files that people write by hand: settings and tokens. Whatever a setting names, reading it ends soon and takes little memory.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// The longest such file, in bytes.
pub const BYTES_MAX: u64 = 1 << 20;
/// How long a pipe, as a shell makes one of `<(command)`, may take to say everything.
pub const PIPE_TIME: Duration = Duration::from_secs(2);

/// The text of a small file, and what the file is: of the very file that was read.
///
/// # Errors
/// Those of the system; more than [`BYTES_MAX`], or text that is not UTF-8; a pipe that is not at its end after [`PIPE_TIME`].
pub fn read(path: &Path) -> io::Result<(String, Metadata)> {
    read_within(path, PIPE_TIME)
}

fn read_within(path: &Path, time: Duration) -> io::Result<(String, Metadata)> {
    // A pipe into which nobody writes would hold up a blocking open for ever.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    if meta.file_type().is_fifo() {
        read_pipe(&mut file, &mut bytes, Instant::now() + time)?;
    } else {
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        within_bound(&bytes)?;
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text"))?;
    Ok((text, meta))
}

/// Reads until all writers have closed the pipe.
fn read_pipe(pipe: &mut File, bytes: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    let mut part = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("at most some seconds");
        match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it is a pipe that does not end")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(problem) => return Err(problem.into()),
        }
        match pipe.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {}
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
        within_bound(bytes)?;
    }
}

fn within_bound(bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > BYTES_MAX { Err(invalid("it is longer than 1 MiB")) } else { Ok(()) }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_read_with_what_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "server = 1\n").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        let (text, meta) = read(file.path()).unwrap();
        assert_eq!((text.as_str(), meta.permissions().mode() & 0o777), ("server = 1\n", 0o640));
        assert_eq!(read(Path::new("/dev/null")).unwrap().0, "");
    }

    #[test]
    fn what_never_ends_is_refused() {
        let said = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(said.contains("longer than 1 MiB"), "{said}");
    }

    #[test]
    fn text_is_utf_8() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert_eq!(read(file.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let mut writer = File::from(writer);
        // More than the pipe holds at once, by a writer that comes later.
        let text = "word ".repeat(40_000);
        let written = text.clone();
        let thread = std::thread::spawn(move || writer.write_all(written.as_bytes()));
        assert!(read_within(Path::new(&path), Duration::from_secs(60)).unwrap().0 == text);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_pipe_into_which_nobody_writes_holds_up_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // With a writer that says nothing.
        let _writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let kind = read_within(&path, Duration::from_millis(20)).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::TimedOut);
    }
}
