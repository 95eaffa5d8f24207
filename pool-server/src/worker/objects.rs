//! What the client's handles name: the driver's objects, and whether they are still alive.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpupool_protocol::api::kinds::{Context, Event, Function, HandleKind, Library, MemPool, Module, Stream};
use gpupool_protocol::handle::{Handle, HandleTable, Kind};
use gpupool_protocol::wire::codec::BadRecord;

use super::code::{Code, Fail};
use super::context::Cx;

/// How long something lives, with all that depends on it. A driver's handle is not used after its owner is gone: what
/// the driver would make of it is not defined.
#[derive(Debug, Default)]
pub struct Life {
    ended: AtomicI32,
    owner: Option<Arc<Life>>,
}

impl Life {
    /// A life that ends with its owner's at the latest.
    pub fn within(owner: &Arc<Life>) -> Arc<Life> {
        Arc::new(Life { ended: AtomicI32::new(0), owner: Some(owner.clone()) })
    }

    /// Ends it: from now on everything that depends on it answers `code`.
    pub fn end(&self, code: Code) {
        self.ended.store(code.0, Ordering::Release);
    }

    /// `Err` with the code of what has ended.
    #[inline]
    pub fn check(&self) -> Result<(), Code> {
        let mut life = self;
        loop {
            match life.ended.load(Ordering::Acquire) {
                0 => {}
                code => return Err(Code(code)),
            }
            match &life.owner {
                Some(owner) => life = owner,
                None => return Ok(()),
            }
        }
    }
}

/// A context. All names of a device's primary context share one.
#[derive(Debug)]
pub struct ContextState {
    /// The driver's handle; 0 while a primary context was never retained.
    pub native: AtomicU64,
    /// The driver's number of the device.
    pub device: i32,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// How often the session has retained the primary context.
    pub retained: AtomicU32,
    life: Mutex<Arc<Life>>,
}

impl ContextState {
    /// A context that lives.
    pub fn new(native: u64, device: i32, primary: bool) -> Arc<Self> {
        Arc::new(Self {
            native: AtomicU64::new(native),
            device,
            primary,
            retained: AtomicU32::new(0),
            life: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of what is created in it now.
    pub fn life(&self) -> Arc<Life> {
        self.lock().clone()
    }

    /// Ends everything that was created in it. A primary context can be used again after the next retain.
    pub fn end(&self) {
        let mut life = self.lock();
        life.end(Code::CONTEXT_IS_DESTROYED);
        if self.primary {
            *life = Arc::default();
        }
    }
}

/// A kernel of a module or library.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// The driver's function or kernel handle.
    pub native: u64,
    /// Offset and size of each parameter in the block.
    pub params: Box<[(u32, u32)]>,
    /// Bytes of the parameter block.
    pub block: usize,
}

/// The kernels of an image, in the order of its contents.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Whether they are a library's `CUkernel`s rather than a module's `CUfunction`s.
    pub library: bool,
    /// All of them.
    pub all: Vec<Arc<Kernel>>,
}

/// The driver's handle of the context that a stream or event was made in; 0: the current one.
pub type Home = u64;

/// What a module is made of.
#[derive(Debug, Clone)]
pub struct ModuleParts {
    /// Its functions; those of a library's module are the library's kernels.
    pub kernels: Arc<Kernels>,
    /// Ends when it is unloaded.
    pub life: Arc<Life>,
    /// It belongs to a library and cannot be unloaded by itself.
    pub of_library: bool,
}

/// What a library is made of.
#[derive(Debug, Clone)]
pub struct LibraryParts {
    /// Its kernels.
    pub kernels: Arc<Kernels>,
    /// Ends when it is unloaded.
    pub life: Arc<Life>,
}

/// Which kernel a function handle names.
#[derive(Debug)]
pub struct FunctionParts {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// The handle is a `CUkernel`.
    pub is_kernel: bool,
}

/// A kind of object that a session has a table of.
pub trait Object: HandleKind + Sized {
    /// What is known of it beside the driver's handle.
    type Parts: Clone + Send + Sync + 'static;
    /// What using a value that names nothing answers.
    const NONE: Code = Code::INVALID_HANDLE;
    /// Its table.
    fn table(objects: &mut Objects) -> &mut HandleTable<State<Self>>;
    /// Objects that the thread has looked up before, where it is worth keeping them.
    #[inline]
    fn memos(_cx: &mut Cx) -> Option<&mut Memos<Self>> {
        None
    }
    /// Values that mean something without standing in the table.
    #[inline]
    fn special(_cx: &mut Cx, _bits: u64) -> Option<Result<Found<Self>, Fail>> {
        None
    }
}

/// What stands in a place of a table.
pub enum State<K: Object> {
    /// The record that creates it is being carried out.
    Pending,
    /// Creating it failed, after the program was told that it would not.
    Poisoned(Code),
    /// It is there.
    Live(Entry<K>),
}

/// An object.
pub struct Entry<K: Object> {
    /// The driver's handle.
    pub native: u64,
    /// How long it may be used.
    pub life: Arc<Life>,
    /// What else is known.
    pub parts: K::Parts,
}

impl<K: Object> Clone for Found<K> {
    #[inline]
    fn clone(&self) -> Self {
        Self { handle: self.handle, native: self.native, parts: self.parts.clone() }
    }
}

/// Places for what a thread has looked up: a few, each for the handles whose index ends alike.
const MEMOS: usize = 16;

/// Objects that one thread has looked up before. A record that names one of them again finds it without a lock.
pub struct Memos<K: Object>([Option<Memo<K>>; MEMOS]);

struct Memo<K: Object> {
    found: Found<K>,
    life: Arc<Life>,
    /// The count of removals when it was looked up.
    removals: u64,
}

impl<K: Object> Default for Memos<K> {
    fn default() -> Self {
        Self([const { None }; MEMOS])
    }
}

impl<K: Object> Memos<K> {
    /// What `handle` named when nothing had been removed since, if that still lives.
    #[inline]
    pub fn get(&self, handle: u64, removals: u64) -> Option<&Found<K>> {
        let memo = self.0[handle as usize % MEMOS].as_ref()?;
        (memo.found.handle == handle && memo.removals == removals && memo.life.check().is_ok())
            .then_some(&memo.found)
    }

    /// Keeps what was found.
    pub fn keep(&mut self, found: &Found<K>, life: Arc<Life>, removals: u64) {
        self.0[found.handle as usize % MEMOS] = Some(Memo { found: found.clone(), life, removals });
    }
}

/// An object that a record named, copied out of the table.
#[derive(Debug)]
pub struct Found<K: Object> {
    /// The client's handle.
    pub handle: u64,
    /// The driver's handle.
    pub native: u64,
    /// What else is known.
    pub parts: K::Parts,
}

/// A handle whose object the record creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    /// The kind.
    pub kind: Kind,
    /// The handle.
    pub handle: Handle,
}

macro_rules! tables {
    ($($field:ident: $kind:ident = $parts:ty $(, none $none:expr)? $(, memos $memos:ident)? $(, special $special:expr)?;)*) => {
        /// All tables.
        #[derive(Default)]
        pub struct Objects {
            $($field: HandleTable<State<$kind>>,)*
        }

        $(impl Object for $kind {
            type Parts = $parts;
            $(const NONE: Code = $none;)?
            #[inline]
            fn table(objects: &mut Objects) -> &mut HandleTable<State<Self>> {
                &mut objects.$field
            }
            $(#[inline]
            fn memos(cx: &mut Cx) -> Option<&mut Memos<Self>> {
                Some(&mut cx.$memos)
            })?
            $(#[inline]
            fn special(cx: &mut Cx, bits: u64) -> Option<Result<Found<Self>, Fail>> {
                $special(cx, bits)
            })?
        })*

        impl Objects {
            /// The creation of `fresh` failed. After a post the handle stays, poisoned; after a call the client knows
            /// and uses the place again.
            pub fn failed(&mut self, fresh: Fresh, code: Code, keep: bool) {
                match fresh.kind {
                    $(Kind::$kind => fail(&mut self.$field, fresh.handle, code, keep),)*
                    _ => {}
                }
            }
        }
    };
}

tables! {
    contexts: Context = Arc<ContextState>, none Code::INVALID_CONTEXT;
    streams: Stream = Home, memos streams, special Cx::default_stream;
    events: Event = Home;
    modules: Module = ModuleParts;
    libraries: Library = LibraryParts;
    functions: Function = Arc<FunctionParts>, memos functions;
    pools: MemPool = ();
}

fn fail<K: Object>(table: &mut HandleTable<State<K>>, handle: Handle, code: Code, keep: bool) {
    if !keep {
        let _ = table.remove(handle);
    } else if let Ok(state) = table.get_mut(handle)
        && matches!(state, State::Pending)
    {
        *state = State::Poisoned(code);
    }
}

impl Objects {
    /// Takes a new handle into its table.
    ///
    /// # Errors
    /// [`BadRecord`] if it is neither free nor next in line.
    pub fn reserve<K: Object>(&mut self, bits: u64) -> Result<Fresh, Fail> {
        let handle = Handle::from_bits(bits).ok_or(BadRecord::OutOfRange)?;
        K::table(self).insert(handle, State::Pending).or(Err(BadRecord::OutOfRange))?;
        Ok(Fresh { kind: K::KIND, handle })
    }

    /// Gives a reserved handle its object.
    pub fn bind<K: Object>(&mut self, fresh: Fresh, entry: Entry<K>) {
        debug_assert_eq!(fresh.kind, K::KIND);
        if let Ok(state) = K::table(self).get_mut(fresh.handle) {
            *state = State::Live(entry);
        }
    }

    /// The object that a handle names, and how long it lives.
    ///
    /// # Errors
    /// CUDA's code for a handle that names nothing (any more); the code of its failed creation.
    pub fn find<K: Object>(&mut self, bits: u64) -> Result<(Found<K>, &Arc<Life>), Fail> {
        let handle = Handle::from_bits(bits).ok_or(K::NONE)?;
        match K::table(self).get(handle) {
            Ok(State::Live(entry)) => {
                entry.life.check()?;
                Ok((Found { handle: bits, native: entry.native, parts: entry.parts.clone() }, &entry.life))
            }
            Ok(State::Poisoned(code)) => Err(Fail::Poisoned(*code)),
            Ok(State::Pending) | Err(_) => Err(K::NONE.into()),
        }
    }

    /// Takes an object off its table. One whose owner is gone goes as well, with its owner's code.
    ///
    /// # Errors
    /// As [`Objects::find`].
    pub fn remove<K: Object>(&mut self, bits: u64) -> Result<Found<K>, Fail> {
        let handle = Handle::from_bits(bits).ok_or(K::NONE)?;
        if let Ok(State::Pending) = K::table(self).get(handle) {
            return Err(K::NONE.into());
        }
        match K::table(self).remove(handle) {
            Ok(State::Live(entry)) => {
                entry.life.check()?;
                Ok(Found { handle: bits, native: entry.native, parts: entry.parts })
            }
            Ok(State::Poisoned(code)) => Err(Fail::Poisoned(code)),
            Ok(State::Pending) | Err(_) => Err(K::NONE.into()),
        }
    }
}
