//! Files that people write by hand: settings and tokens. Whatever a setting names, reading it ends soon and takes little memory.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The longest such file, in bytes.
pub const BYTES_MAX: u64 = 1 << 20;

/// The text of a small file, and what the file is: of the very file that was read.
///
/// # Errors
/// Those of the system; more than [`BYTES_MAX`], or text that is not UTF-8; a pipe, as a shell makes one of `<(command)`: a
/// program, its log and its children all read their settings, and a pipe says everything once.
pub fn read(path: &Path) -> io::Result<(String, Metadata)> {
    // A pipe into which nobody writes would hold up a blocking open for ever.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.file_type().is_fifo() {
        return Err(invalid("it is a pipe, which can be read only once; put it into a file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid("it is longer than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text"))?;
    Ok((text, meta))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
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
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        // Nobody writes into it.
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("pipe") && said.contains("put it into a file"), "{said}");
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        assert!(read(Path::new(&path)).unwrap_err().to_string().contains("pipe"));
    }
}
