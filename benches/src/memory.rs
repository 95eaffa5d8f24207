//! What processes hold of memory, by /proc/PID/smaps: proc_pid_smaps(5).

use std::path::Path;

use anyhow::Context;

/// A mapping: what it is of, and the bytes of it that the process has.
struct Mapping {
    name: String,
    /// Of its own: dirty or not, but shared with no other process.
    private: u64,
    /// In memory, shared or not.
    resident: u64,
}

/// Mappings of memory files: rings and arenas.
fn is_shared_memory(name: &str) -> bool {
    name.starts_with("/memfd:")
}

fn mappings(pid: &str) -> anyhow::Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/smaps");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Vec<Mapping> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let Some(key) = first.strip_suffix(':') else {
            // address, permissions, offset, device, inode, name
            let name = words.skip(4).collect::<Vec<_>>().join(" ");
            all.push(Mapping { name, private: 0, resident: 0 });
            continue;
        };
        let bytes = || words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
        if let Some(mapping) = all.last_mut() {
            match key {
                "Private_Clean" | "Private_Dirty" => mapping.private += { bytes }(),
                "Rss" => mapping.resident += { bytes }(),
                _ => {}
            }
        }
    }
    all
}

/// Bytes that this process has for itself and that are of no file and no ring.
pub fn own_anonymous() -> anyhow::Result<u64> {
    Ok(mappings("self")?.iter().filter(|m| !m.name.starts_with('/')).map(|m| m.private).sum())
}

/// Bytes of the client library that are in memory.
pub fn own_library() -> anyhow::Result<u64> {
    Ok(mappings("self")?.iter().filter(|m| m.name.ends_with("libgpupool_cuda.so")).map(|m| m.resident).sum())
}

/// Bytes that a worker has for itself, without its driver's library and its rings.
pub fn beyond(pid: u32, driver: &Path) -> anyhow::Result<u64> {
    let driver = driver.to_string_lossy();
    let counts = |m: &&Mapping| m.name != driver && !is_shared_memory(&m.name);
    Ok(mappings(&pid.to_string())?.iter().filter(counts).map(|m| m.private).sum())
}

/// The processes that a process has started.
pub fn children(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that has ended meanwhile is none.
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // The parent is the second word behind the name in parentheses.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(pid) {
            all.push(child);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read() {
        let text = "\
7f0000000000-7f0000100000 rw-s 00000000 00:01 1026 /memfd:ring (deleted)
Rss:                  12 kB
Private_Clean:         4 kB
Private_Dirty:         8 kB
55d000000000-55d000021000 rw-p 00000000 00:00 0                          [heap]
Rss:                   4 kB
Private_Dirty:         4 kB
";
        let all = parse(text);
        assert_eq!(all.len(), 2);
        assert!(is_shared_memory(&all[0].name) && all[0].private == 12 << 10 && all[0].resident == 12 << 10);
        assert_eq!((all[1].name.as_str(), all[1].private), ("[heap]", 4 << 10));
    }
}
