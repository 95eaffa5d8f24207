//! Names for driver objects, made by the client so that creating one needs no answer.
//!
//! A handle is a dense index and a generation. The worker's table for each kind is a vector that accepts only an
//! index that is free or next in line, so a client cannot make it large by one message.

/// What a handle names. Each kind has indices of its own. The numbers are part of the wire: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// `CUcontext`.
    Context = 0,
    /// `CUstream`.
    Stream = 1,
    /// `CUevent`.
    Event = 2,
    /// `CUmodule`.
    Module = 3,
    /// `CUlibrary`.
    Library = 4,
    /// `CUfunction` and `CUkernel`: CUDA lets one stand for the other.
    Function = 5,
    /// `CUmemoryPool`.
    MemPool = 6,
    /// `CUarray` and `CUmipmappedArray`.
    Array = 7,
    /// `CUtexObject`. Device code sees its value, so it is the driver's own; listed to name the kind.
    TexObject = 8,
    /// `CUsurfObject`. As `TexObject`.
    SurfObject = 9,
    /// `CUgraph`.
    Graph = 10,
    /// `CUgraphNode`.
    GraphNode = 11,
    /// `CUgraphExec`.
    GraphExec = 12,
    /// `CUlinkState`.
    Link = 13,
    /// `CUmemGenericAllocationHandle`.
    MemHandle = 14,
    /// `CUexternalMemory`.
    ExternalMemory = 15,
    /// `CUexternalSemaphore`.
    ExternalSemaphore = 16,
    /// `CUgreenCtx`.
    GreenContext = 17,
}

impl Kind {
    /// How many kinds there are.
    pub const COUNT: usize = 18;

    /// The first generation of this kind's handles. The kind stands in the generation's top five bits, so that a handle
    /// of one kind that is given for another means nothing, as in CUDA, instead of an object that happens to have
    /// the same number.
    pub const fn first_generation(self) -> u32 {
        (self as u32) << GENERATION_BITS | 1
    }

    /// The generation after `generation`, or `None` where its kind has no more.
    pub const fn next_generation(generation: u32) -> Option<u32> {
        match generation.checked_add(1) {
            Some(next) if next >> GENERATION_BITS == generation >> GENERATION_BITS => Some(next),
            _ => None,
        }
    }
}

/// Bits of a generation below the kind.
const GENERATION_BITS: u32 = 27;
const _: () = assert!(Kind::COUNT <= 1 << (32 - GENERATION_BITS));

/// An index (low half) and a generation (high half, from [`Kind::first_generation`]). As a 64-bit value it is therefore never 0, 1 or 2, which
/// CUDA uses for its default streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Place in the worker's table.
    pub index: u32,
    /// How often that place has been used.
    pub generation: u32,
}

impl Handle {
    /// The 64-bit value that stands on the wire and that the program sees.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.index as u64 | (self.generation as u64) << 32
    }

    /// A handle from its 64-bit value; `None` if no handle has that value.
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let handle = Self { index: bits as u32, generation: (bits >> 32) as u32 };
        if handle.generation == 0 { None } else { Some(handle) }
    }
}

/// Why a handle cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHandle {
    /// Nothing has this value (never made, destroyed, or of another kind): a fault of the program.
    #[error("the handle names nothing")]
    Unknown,
    /// Creating the object failed with this CUDA error.
    #[error("the object could not be created (CUDA error {0})")]
    Poisoned(u32),
}

/// A new handle that no client of ours makes: its index is neither free nor next in line, or its generation is not
/// above the last one. It ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("handle {index}/{generation} is neither free nor next in line")]
pub struct OutOfLine {
    /// The handle's index.
    pub index: u32,
    /// The handle's generation.
    pub generation: u32,
}

/// The objects of one kind, on the worker.
#[derive(Debug)]
pub struct HandleTable<T> {
    places: Vec<Place<T>>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    entry: Entry<T>,
}

#[derive(Debug)]
enum Entry<T> {
    Free,
    Poisoned(u32),
    Live(T),
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> HandleTable<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { places: Vec::new() }
    }

    /// Enters a new object.
    pub fn insert(&mut self, handle: Handle, object: T) -> Result<(), OutOfLine> {
        self.enter(handle, Entry::Live(object))
    }

    /// Enters a handle whose object could not be created: using it gives `code`.
    pub fn poison(&mut self, handle: Handle, code: u32) -> Result<(), OutOfLine> {
        self.enter(handle, Entry::Poisoned(code))
    }

    /// Whether [`HandleTable::insert`] would take this handle. To be asked before the object is created.
    pub fn accepts(&self, handle: Handle) -> Result<(), OutOfLine> {
        let Handle { index, generation } = handle;
        let fine = match self.places.get(index as usize) {
            Some(place) => matches!(place.entry, Entry::Free) && generation > place.generation,
            None => index as usize == self.places.len() && generation > 0,
        };
        if fine { Ok(()) } else { Err(OutOfLine { index, generation }) }
    }

    fn enter(&mut self, handle: Handle, entry: Entry<T>) -> Result<(), OutOfLine> {
        self.accepts(handle)?;
        let place = Place { generation: handle.generation, entry };
        match self.places.get_mut(handle.index as usize) {
            Some(old) => *old = place,
            None => self.places.push(place),
        }
        Ok(())
    }

    /// The object that `handle` names.
    pub fn get(&self, handle: Handle) -> Result<&T, BadHandle> {
        match self.places.get(handle.index as usize) {
            Some(place) if place.generation == handle.generation => match &place.entry {
                Entry::Live(object) => Ok(object),
                Entry::Poisoned(code) => Err(BadHandle::Poisoned(*code)),
                Entry::Free => Err(BadHandle::Unknown),
            },
            _ => Err(BadHandle::Unknown),
        }
    }

    /// As [`HandleTable::get`], to change it.
    pub fn get_mut(&mut self, handle: Handle) -> Result<&mut T, BadHandle> {
        match self.places.get_mut(handle.index as usize) {
            Some(place) if place.generation == handle.generation => match &mut place.entry {
                Entry::Live(object) => Ok(object),
                Entry::Poisoned(code) => Err(BadHandle::Poisoned(*code)),
                Entry::Free => Err(BadHandle::Unknown),
            },
            _ => Err(BadHandle::Unknown),
        }
    }

    /// Takes the object out and frees its place. A poisoned handle's place is freed as well.
    pub fn remove(&mut self, handle: Handle) -> Result<T, BadHandle> {
        match self.places.get_mut(handle.index as usize) {
            Some(place) if place.generation == handle.generation => {
                match std::mem::replace(&mut place.entry, Entry::Free) {
                    Entry::Live(object) => Ok(object),
                    Entry::Poisoned(code) => Err(BadHandle::Poisoned(code)),
                    Entry::Free => Err(BadHandle::Unknown),
                }
            }
            _ => Err(BadHandle::Unknown),
        }
    }

    /// All live objects with their handles, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| match &place.entry {
            Entry::Live(object) => {
                Some((Handle { index: index as u32, generation: place.generation }, object))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a client does: places that were given back come again with the next generation.
    #[derive(Default)]
    struct Client {
        next: u32,
        free: Vec<Handle>,
    }

    impl Client {
        fn make(&mut self) -> Handle {
            match self.free.pop() {
                Some(Handle { index, generation }) => Handle { index, generation: generation + 1 },
                None => {
                    self.next += 1;
                    Handle { index: self.next - 1, generation: 1 }
                }
            }
        }
    }

    #[test]
    fn generations_of_kinds_do_not_meet() {
        let last_of_contexts = (1 << GENERATION_BITS) - 1;
        assert_eq!(Kind::next_generation(Kind::Context.first_generation()), Some(2));
        assert_eq!(Kind::next_generation(last_of_contexts), None);
        assert_eq!(Kind::Stream.first_generation(), last_of_contexts + 2);
        assert_eq!(Kind::next_generation(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn a_handle_is_its_64_bits(bits: u64) {
            match Handle::from_bits(bits) {
                Some(handle) => prop_assert_eq!(handle.to_bits(), bits),
                None => prop_assert!(bits <= u64::from(u32::MAX)),
            }
        }

        /// A client that makes and gives back handles, and a worker that follows: they always agree, and what was
        /// given back names nothing.
        #[test]
        fn client_and_table_agree(ops in proptest::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..300)) {
            let mut source = Client::default();
            let mut table = HandleTable::new();
            let mut live: Vec<(Handle, Result<usize, u32>)> = Vec::new();
            let mut dead = Vec::new();
            for (number, (op, which)) in ops.into_iter().enumerate() {
                match op {
                    0 => {
                        let handle = source.make();
                        prop_assert!(handle.to_bits() > 2);
                        table.insert(handle, number).unwrap();
                        live.push((handle, Ok(number)));
                    }
                    1 => {
                        let handle = source.make();
                        table.poison(handle, 2).unwrap();
                        live.push((handle, Err(2)));
                    }
                    _ if live.is_empty() => {}
                    _ => {
                        let (handle, object) = live.swap_remove(which.index(live.len()));
                        prop_assert_eq!(table.remove(handle), object.map_err(BadHandle::Poisoned));
                        source.free.push(handle);
                        dead.push(handle);
                    }
                }
                for &(handle, object) in &live {
                    prop_assert_eq!(table.get(handle).copied(), object.map_err(BadHandle::Poisoned));
                    prop_assert!(table.insert(handle, 0).is_err());
                }
                for &handle in &dead {
                    prop_assert_eq!(table.get(handle), Err(BadHandle::Unknown));
                    prop_assert!(table.insert(handle, 0).is_err(), "an old generation came back");
                }
            }
            prop_assert!(table.places.len() <= live.len() + dead.len());
            prop_assert_eq!(table.iter().count(), live.iter().filter(|(_, object)| object.is_ok()).count());
        }

        #[test]
        fn a_table_grows_by_one_at_a_time(handles in proptest::collection::vec((0u32..6, 0u32..4), 1..40)) {
            let mut table = HandleTable::new();
            for (index, generation) in handles {
                let before = table.places.len();
                let took = table.insert(Handle { index, generation }, ()).is_ok();
                prop_assert!(!took || generation > 0);
                prop_assert!(table.places.len() <= before + usize::from(took));
            }
        }
    }

    #[test]
    fn indices_far_away_and_generation_zero_are_refused() {
        let mut table = HandleTable::new();
        for (index, generation) in [(1, 1), (u32::MAX, 1), (0, 0)] {
            assert_eq!(table.insert(Handle { index, generation }, ()), Err(OutOfLine { index, generation }));
        }
        table.insert(Handle { index: 0, generation: 5 }, ()).unwrap();
        table.remove(Handle { index: 0, generation: 5 }).unwrap();
        assert!(table.accepts(Handle { index: 0, generation: 5 }).is_err());
        assert!(table.accepts(Handle { index: 0, generation: 6 }).is_ok());
    }
}
