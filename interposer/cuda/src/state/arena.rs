//! The host arena on the client's side: which pieces of it are pinned memory of the program.

use std::sync::Mutex;

use gpupool_protocol::transport::arena::ArenaMap;

use super::objects::lock;
use super::ranges::Ranges;
use crate::code::{ALREADY_MAPPED, Answer, OUT_OF_MEMORY};
use crate::log::say;

/// Pieces are whole pages.
const PAGE: u64 = 4096;
/// Addresses that are proposed to the worker before pinned memory goes without the arena.
const TRIES: u32 = 8;
/// From here on it is looked first whether the machine has so much memory left: the pages are taken at once, and the system
/// would rather end a program than refuse them.
const LARGE: u64 = 64 << 20;

/// The arena.
#[derive(Default)]
pub struct Arena {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// There is none: pinned memory is private and its bytes are staged.
    #[default]
    Absent,
    /// Mapped here, and not yet in the worker.
    Proposed(ArenaMap),
    /// Mapped at the same address in the worker.
    Shared(ArenaMap, Ranges),
}

impl Arena {
    /// The arena of a session, if it has one.
    pub fn new(map: Option<ArenaMap>) -> Self {
        Self { state: Mutex::new(map.map_or(State::Absent, State::Proposed)) }
    }

    /// Whether there is, or may be, memory that client and worker share.
    pub fn exists(&self) -> bool {
        !matches!(*lock(&self.state), State::Absent)
    }

    /// Takes a piece; `None` if there is no arena. `place` asks the worker to map it at an address.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY.
    pub fn take(&self, bytes: u64, place: impl FnMut(u64) -> Answer) -> Answer<Option<u64>> {
        let mut state = lock(&self.state);
        if let State::Proposed(map) = &mut *state {
            let agreed = agree(map, place);
            *state = match (std::mem::take(&mut *state), agreed) {
                (State::Proposed(map), Ok(())) => {
                    let mut free = Ranges::default();
                    free.give(map.base(), map.len());
                    State::Shared(map, free)
                }
                _ => {
                    say!(
                        Info,
                        "pinned memory is staged: the worker cannot map the host arena where this program can"
                    );
                    State::Absent
                }
            };
        }
        let State::Shared(map, free) = &mut *state else { return Ok(None) };
        let bytes = pages(bytes)?;
        if bytes >= LARGE && available().is_some_and(|available| bytes > available) {
            return Err(OUT_OF_MEMORY);
        }
        let address = free.take(bytes).ok_or(OUT_OF_MEMORY)?;
        if map.open(address - map.base(), bytes).is_err() {
            free.give(address, bytes);
            return Err(OUT_OF_MEMORY);
        }
        Ok(Some(address))
    }

    /// Gives a piece's memory back to the system. `again`: its addresses may be used again, since the worker has done with
    /// them too.
    pub fn give(&self, address: u64, bytes: u64, again: bool) {
        if let State::Shared(map, free) = &mut *lock(&self.state)
            && let Ok(bytes) = pages(bytes)
        {
            map.close(address - map.base(), bytes);
            if again {
                free.give(address, bytes);
            }
        }
    }
}

fn pages(bytes: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)
}

/// Finds an address that is free in both processes.
fn agree(map: &mut ArenaMap, mut place: impl FnMut(u64) -> Answer) -> Answer {
    let (first, step) = (map.base(), map.len().next_power_of_two());
    let mut answer = place(first);
    for attempt in 1..u64::from(TRIES) {
        if answer != Err(ALREADY_MAPPED) {
            break;
        }
        map.relocate(first + attempt * step).or(Err(OUT_OF_MEMORY))?;
        answer = place(map.base());
    }
    answer
}

/// Bytes of memory that the system could give.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::NOT_SUPPORTED;
    use gpupool_protocol::transport::arena::ArenaFile;

    fn arena() -> Arena {
        Arena::new(Some(ArenaFile::create().unwrap().reserve(0x2300_0000_0000).unwrap()))
    }

    #[test]
    fn an_address_that_the_worker_cannot_have_is_not_insisted_on() {
        let mut asked = Vec::new();
        let arena = arena();
        let piece = arena.take(10, |base| {
            asked.push(base);
            if asked.len() < 3 { Err(ALREADY_MAPPED) } else { Ok(()) }
        });
        assert_eq!(piece, Ok(Some(asked[2])));
        assert!(asked[0] != asked[1] && asked[1] != asked[2] && asked[0] != asked[2], "{asked:x?}");
        assert_eq!(arena.take(10, |_| unreachable!()), Ok(Some(asked[2] + PAGE)));
        arena.give(asked[2], 10, true);
        assert_eq!(arena.take(PAGE, |_| unreachable!()), Ok(Some(asked[2])));
    }

    #[test]
    fn without_a_common_address_there_is_no_arena() {
        for code in [ALREADY_MAPPED, NOT_SUPPORTED] {
            let (arena, mut asked) = (arena(), 0);
            let mut refuse = |_| {
                asked += 1;
                Err(code)
            };
            assert_eq!((arena.take(10, &mut refuse), arena.take(10, &mut refuse)), (Ok(None), Ok(None)));
            assert!(!arena.exists());
            assert_eq!(asked, if code == ALREADY_MAPPED { TRIES } else { 1 });
        }
    }

    #[test]
    fn more_than_there_is_is_out_of_memory() {
        let arena = arena();
        for bytes in [u64::MAX, 1 << 46, available().unwrap() + (1 << 30)] {
            assert_eq!(arena.take(bytes, |_| Ok(())), Err(OUT_OF_MEMORY), "{bytes}");
        }
    }
}
