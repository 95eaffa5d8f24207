//! The macro that the lists of exports are written in.

/// Declares exports.
///
/// ```text
/// exports! { ($) names_macro, gate;
///     cuFirst(argument: Type, …) { body that gives a Result }
///     cuSecond(argument: Type, …) [cuSecond_ptsz, default] { body in which `default` is stream 1 or 2 }
/// }
/// ```
///
/// `gate` is a function of `entry`. A body may follow the program's pointers, for the program promised CUDA that they are
/// good; it must look for null itself.
macro_rules! exports {
    (($d:tt) $names:ident, $gate:ident;
     $($symbol:ident $args:tt $([$own:ident, $default:ident])? $body:block)*) => {
        $(
            export_one! { $gate $symbol $args [$($default = crate::stream::LEGACY)?] $body }
            $(export_one! { $gate $own $args [$default = crate::stream::PER_THREAD] $body })?
        )*

        /// The functions of this list, by symbol.
        pub(super) const TABLE: &[(&str, super::Address)] = &[
            $(
                (stringify!($symbol), super::Address($symbol as *const ())),
                $((stringify!($own), super::Address($own as *const ())),)?
            )*
        ];

        #[allow(unused_macros, reason = "the last list is not handed on")]
        macro_rules! $names {
            ($d next:ident $d($d rest:ident)* ; $d($d before:ident)*) => {
                $d next! { $d($d rest)* ; $d($d before)* $($symbol $($own)?)* }
            };
        }
    };
}

/// One exported function. It returns a number: a launch has an answer that is none of `CUresult`.
macro_rules! export_one {
    ($gate:ident $symbol:ident ($($argument:ident : $type:ty),* $(,)?) [$($default:ident = $stream:expr)?] $body:block) => {
        #[doc = concat!("`", stringify!($symbol), "` of the driver API.")]
        ///
        /// # Safety
        /// As CUDA demands of its caller.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
            $(let $default: usize = $stream;)?
            if let Some(code) = crate::failures::code(stringify!($symbol)) {
                return code;
            }
            crate::entry::$gate(|| {
                // SAFETY: the body follows only pointers that it found not to be null and that the caller, by CUDA's
                // contract, made good.
                #[allow(unused_unsafe, reason = "not every body follows a pointer")]
                unsafe { $body }
            })
        }
    };
}
