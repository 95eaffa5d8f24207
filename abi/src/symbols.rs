//! The symbols of `cuda.h` and the rule by which `cuGetProcAddress` chooses one.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;

use cuda_abi_macros::symbol_rows;

/// One symbol that `cuda.h` declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The name that `cuGetProcAddress` is asked for, without `_v2` and the like.
    pub base: &'static str,
    /// The CUDA version that brought this form, 1000 × major + 10 × minor.
    pub version: i32,
    /// The exported symbol.
    pub symbol: &'static str,
    /// Whether this is the form whose stream 0 is the thread's own (`_ptsz`, `_ptds`).
    pub per_thread: bool,
}

/// Every symbol of `cuda.h` 13.5, old versions and per-thread forms included; sorted by base name, then legacy before
/// per-thread, then newest first.
pub static ROWS: [Row; 685] = symbol_rows!();

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`.
pub const FLAG_LEGACY: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub const FLAG_PER_THREAD: u64 = 2;

/// Why [`choose`] gives no symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The version is newer than the driver, or the flags are none that exist: `CUDA_ERROR_INVALID_VALUE`.
    InvalidValue,
    /// There is no function of that name: success with a null pointer and `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
    /// from `cuGetProcAddress_v2`, `CUDA_ERROR_NOT_FOUND` from its first version.
    NotFound,
    /// The function exists, but came after the version asked for: as `NotFound`, with
    /// `CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`.
    VersionNotSufficient,
}

/// All symbol names, in the table's order.
pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
    ROWS.iter().map(|row| row.symbol)
}

/// The rows of one base name.
#[derive(Clone, Copy)]
struct Rows {
    /// The first one's number.
    first: u16,
    /// How many; 0: the place is empty.
    count: u16,
}

/// Places of [`PLACES`]: a power of two, several times as many as there are base names, so that few meet at one.
const PLACES_COUNT: usize = 2048;

/// The rows of each base name, at the place that [`place`] says or, where that is taken, behind it. Made by the compiler.
static PLACES: [Rows; PLACES_COUNT] = places();

const fn places() -> [Rows; PLACES_COUNT] {
    let mut places = [Rows { first: 0, count: 0 }; PLACES_COUNT];
    let mut first = 0;
    while first < ROWS.len() {
        let base = ROWS[first].base.as_bytes();
        let mut behind = first + 1;
        while behind < ROWS.len() && same(ROWS[behind].base.as_bytes(), base) {
            behind += 1;
        }
        let mut at = place(base);
        while places[at].count > 0 {
            at = next(at);
        }
        places[at] = Rows { first: first as u16, count: (behind - first) as u16 };
        first = behind;
    }
    places
}

/// `==`, which the compiler cannot yet work out while it compiles.
const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Where the rows of a name stand, if no other name stands there. A name is taken 8 bytes at a time: programs ask for
/// hundreds, each many times its own length away from the one before.
const fn place(name: &[u8]) -> usize {
    // Odd, and with as many ones as zeros.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = name.len() as u64;
    let mut rest = name;
    while let Some((word, behind)) = rest.split_first_chunk() {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        hash ^= hash >> 32;
        rest = behind;
    }
    let mut tail = 0;
    if !rest.is_empty() {
        if let Some(last) = name.last_chunk() {
            tail = u64::from_le_bytes(*last);
        } else {
            while let Some((byte, behind)) = rest.split_first() {
                tail = tail << 8 | *byte as u64;
                rest = behind;
            }
        }
    }
    ((hash ^ tail).wrapping_mul(FACTOR) >> 32) as usize % PLACES_COUNT
}

const fn next(place: usize) -> usize {
    (place + 1) % PLACES_COUNT
}

/// The numbers of a base name's rows; empty when there is no such function.
#[inline]
fn numbers_of(base: &[u8]) -> Range<usize> {
    let mut at = place(base);
    loop {
        let Rows { first, count } = PLACES[at];
        let (first, count) = (usize::from(first), usize::from(count));
        if count == 0 || ROWS[first].base.as_bytes() == base {
            return first..first + count;
        }
        at = next(at);
    }
}

/// The rows of a base name; empty when there is no such function.
pub fn rows_of(base: &str) -> &'static [Row] {
    &ROWS[numbers_of(base.as_bytes())]
}

/// The number (in [`ROWS`]) of the symbol that `cuGetProcAddress(base, …, cuda_version, flags)` answers with.
///
/// The rule of `cuda.h`: the newest form whose version is not above `cuda_version`; with
/// [`FLAG_PER_THREAD`] its per-thread form if there is one, else the legacy form. Flags 0 and [`FLAG_LEGACY`] give
/// the legacy form. Whether the caller implements the symbol is the caller's question.
///
/// # Errors
/// See [`Refusal`].
#[inline]
pub fn choose(base: &[u8], cuda_version: i32, flags: u64, driver_version: i32) -> Result<usize, Refusal> {
    if flags & !(FLAG_LEGACY | FLAG_PER_THREAD) != 0 || flags == (FLAG_LEGACY | FLAG_PER_THREAD) {
        return Err(Refusal::InvalidValue);
    }
    if cuda_version > driver_version {
        return Err(Refusal::InvalidValue);
    }
    let numbers = numbers_of(base);
    let newest = |per_thread| {
        let fits = |row: &Row| row.per_thread == per_thread && row.version <= cuda_version;
        numbers.clone().find(|number| fits(&ROWS[*number]))
    };
    let own = if flags & FLAG_PER_THREAD != 0 { newest(true) } else { None };
    match own.or_else(|| newest(false)) {
        Some(number) => Ok(number),
        None if numbers.is_empty() => Err(Refusal::NotFound),
        None => Err(Refusal::VersionNotSufficient),
    }
}

/// As [`choose`], but gives the symbol.
///
/// # Errors
/// See [`Refusal`].
pub fn resolve(
    base: &str,
    cuda_version: i32,
    flags: u64,
    driver_version: i32,
) -> Result<&'static str, Refusal> {
    choose(base.as_bytes(), cuda_version, flags, driver_version).map(|number| ROWS[number].symbol)
}

/// What a library has for each symbol that it implements: for `cuGetProcAddress`, its address.
#[derive(Debug)]
pub struct Implemented<T> {
    /// By number in [`ROWS`].
    rows: Box<[Option<T>]>,
    /// Those of other headers (`cudaProfiler.h`), which have one version.
    others: HashMap<&'static [u8], T>,
}

impl<T: Copy> Implemented<T> {
    /// From symbols and what there is for them.
    pub fn new(all: impl Iterator<Item = (&'static str, T)>) -> Self {
        let numbers: HashMap<&str, usize> = names().zip(0..).collect();
        let (mut rows, mut others) = (vec![None; ROWS.len()], HashMap::new());
        for (symbol, value) in all {
            match numbers.get(symbol) {
                Some(number) => rows[*number] = Some(value),
                None => drop(others.insert(symbol.as_bytes(), value)),
            }
        }
        Self { rows: rows.into(), others }
    }

    /// What `cuGetProcAddress` finds, by the rule of [`choose`]. A symbol that is not implemented is not found, since the
    /// program may have another way.
    ///
    /// # Errors
    /// See [`Refusal`].
    #[inline]
    pub fn find(
        &self,
        base: &[u8],
        cuda_version: i32,
        flags: u64,
        driver_version: i32,
    ) -> Result<T, Refusal> {
        match choose(base, cuda_version, flags, driver_version) {
            Ok(number) => self.rows[number].ok_or(Refusal::NotFound),
            Err(Refusal::NotFound) => self.others.get(base).copied().ok_or(Refusal::NotFound),
            Err(refusal) => Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: i32 = 13050;

    #[test]
    fn rows_are_sorted_and_findable() {
        let key = |r: &Row| (r.base, r.per_thread, -r.version);
        assert!(ROWS.windows(2).all(|w| key(&w[0]) < key(&w[1])));
        assert_eq!(rows_of("cuStreamBeginCapture").len(), 4);
        assert!(
            rows_of("cuStreamBeginCaptur").is_empty() && rows_of("").is_empty() && rows_of("zz").is_empty()
        );
        assert_eq!(names().len(), 685);
    }

    #[test]
    fn names_that_are_not_there_are_told_from_those_that_are() {
        for row in &ROWS {
            let name = row.base.as_bytes();
            for at in 0..name.len() {
                let mut other = name.to_vec();
                other[at] ^= 1;
                assert_eq!(numbers_of(&other).len(), rows_of_by_search(&other).len());
                assert_eq!(numbers_of(&name[..at]).len(), rows_of_by_search(&name[..at]).len());
            }
        }
    }

    /// By a look at every row.
    fn rows_of_by_search(base: &[u8]) -> Vec<&'static Row> {
        ROWS.iter().filter(|row| row.base.as_bytes() == base).collect()
    }

    #[test]
    fn few_names_meet_at_a_place() {
        let steps = |row: &Row| {
            let first = place(row.base.as_bytes());
            let holds = |at: &usize| ROWS[usize::from(PLACES[*at].first)].base == row.base;
            std::iter::successors(Some(first), |at| Some(next(*at))).position(|at| holds(&at)).unwrap()
        };
        let (most, sum) = ROWS.iter().map(steps).fold((0, 0), |(most, sum), n| (most.max(n), sum + n));
        assert!(most <= 8 && sum < ROWS.len() / 2, "{most} steps at most, {sum} in all");
    }

    #[test]
    fn what_a_library_implements_is_found_by_its_rule() {
        let all = [("cuMemAlloc_v2", 1), ("cuStreamQuery_ptsz", 2), ("cuProfilerStart", 3)];
        let library = Implemented::new(all.into_iter());
        let find = |base: &str, version, flags| library.find(base.as_bytes(), version, flags, DRIVER);
        assert_eq!(find("cuMemAlloc", DRIVER, 0), Ok(1));
        assert_eq!(find("cuMemAlloc", 2000, 0), Err(Refusal::NotFound), "not implemented");
        assert_eq!(find("cuMemAlloc", 1000, 0), Err(Refusal::VersionNotSufficient));
        assert_eq!(find("cuStreamQuery", DRIVER, FLAG_PER_THREAD), Ok(2));
        assert_eq!(find("cuStreamQuery", DRIVER, 0), Err(Refusal::NotFound), "not implemented");
        assert_eq!(find("cuProfilerStart", 2000, 0), Ok(3));
        assert_eq!(find("cuProfilerStart", DRIVER + 1, 0), Err(Refusal::InvalidValue));
        assert_eq!(find("cuProfilerStop", DRIVER, 0), Err(Refusal::NotFound));
        assert_eq!(library.find(b"cu\xff", DRIVER, 0, DRIVER), Err(Refusal::NotFound));
    }

    #[test]
    fn every_row_is_the_answer_at_its_own_version() {
        for row in &ROWS {
            let flags = if row.per_thread { FLAG_PER_THREAD } else { FLAG_LEGACY };
            assert_eq!(resolve(row.base, row.version, flags, DRIVER), Ok(row.symbol), "{row:?}");
        }
    }

    #[test]
    fn just_before_its_version_a_row_is_not_the_answer() {
        for row in &ROWS {
            let flags = if row.per_thread { FLAG_PER_THREAD } else { 0 };
            let got = resolve(row.base, row.version - 1, flags, DRIVER);
            assert_ne!(got, Ok(row.symbol));
            let older = ROWS
                .iter()
                .any(|r| r.base == row.base && r.version < row.version && (flags != 0 || !r.per_thread));
            assert_eq!(got.is_ok(), older, "{row:?} {got:?}");
            assert!(older || got == Err(Refusal::VersionNotSufficient));
        }
    }

    #[test]
    fn per_thread_flag_falls_back_to_the_legacy_form() {
        assert_eq!(resolve("cuMemAlloc", DRIVER, FLAG_PER_THREAD, DRIVER), Ok("cuMemAlloc_v2"));
        assert_eq!(resolve("cuMemcpyHtoD", DRIVER, FLAG_PER_THREAD, DRIVER), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(resolve("cuMemcpyHtoD", 3020, FLAG_PER_THREAD, DRIVER), Ok("cuMemcpyHtoD_v2"));
        assert_eq!(resolve("cuLaunchKernel", DRIVER, 0, DRIVER), Ok("cuLaunchKernel"));
    }

    #[test]
    fn what_cudart_asks_for_in_old_versions() {
        for (base, version, want) in [
            ("cuStreamBeginCapture", 10000, "cuStreamBeginCapture"),
            ("cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"),
            ("cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset"),
            ("cuCtxCreate", 3020, "cuCtxCreate_v2"),
            ("cuLinkCreate", 5050, "cuLinkCreate"),
        ] {
            assert_eq!(resolve(base, version, 0, DRIVER), Ok(want));
        }
    }

    #[test]
    fn refusals() {
        assert_eq!(resolve("cuInit", 13051, 0, DRIVER), Err(Refusal::InvalidValue));
        assert_eq!(resolve("cuInit", 2000, 3, DRIVER), Err(Refusal::InvalidValue));
        assert_eq!(resolve("cuInit", 2000, 4, DRIVER), Err(Refusal::InvalidValue));
        assert_eq!(resolve("cuGLInit", 2000, 0, DRIVER), Err(Refusal::NotFound));
        assert_eq!(resolve("", 0, 0, DRIVER), Err(Refusal::NotFound));
        assert_eq!(resolve("cuInit", 1000, 0, DRIVER), Err(Refusal::VersionNotSufficient));
    }
}
