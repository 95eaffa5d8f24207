//! The symbols of `cuda.h` and the rule by which `cuGetProcAddress` chooses one.
#![forbid(unsafe_code)]

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

/// Why [`resolve`] gives no symbol.
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

/// The rows of a base name; empty when there is no such function.
pub fn rows_of(base: &str) -> &'static [Row] {
    let start = ROWS.partition_point(|row| row.base < base);
    let length = ROWS[start..].partition_point(|row| row.base == base);
    &ROWS[start..start + length]
}

/// The symbol that `cuGetProcAddress(base, …, cuda_version, flags)` answers with.
///
/// The rule of `cuda.h`: the newest form whose version is not above `cuda_version`; with
/// [`FLAG_PER_THREAD`] its per-thread form if there is one, else the legacy form. Flags 0 and [`FLAG_LEGACY`] give
/// the legacy form. Whether the caller implements the symbol is the caller's question.
///
/// # Errors
/// See [`Refusal`].
pub fn resolve(
    base: &str,
    cuda_version: i32,
    flags: u64,
    driver_version: i32,
) -> Result<&'static str, Refusal> {
    if flags & !(FLAG_LEGACY | FLAG_PER_THREAD) != 0 || flags == (FLAG_LEGACY | FLAG_PER_THREAD) {
        return Err(Refusal::InvalidValue);
    }
    if cuda_version > driver_version {
        return Err(Refusal::InvalidValue);
    }
    let rows = rows_of(base);
    let newest =
        |per_thread| rows.iter().find(|row| row.per_thread == per_thread && row.version <= cuda_version);
    let own = if flags & FLAG_PER_THREAD != 0 { newest(true) } else { None };
    match own.or_else(|| newest(false)) {
        Some(row) => Ok(row.symbol),
        None if rows.is_empty() => Err(Refusal::NotFound),
        None => Err(Refusal::VersionNotSufficient),
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
