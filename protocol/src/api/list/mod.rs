//! The list itself, a file a subject. Each file is a macro that puts its lines behind what it was given and goes on to the
//! next, so that [`gpupool_macros::calls`] sees the whole list at once and errors point into the file.

#[macro_use]
mod session;
#[macro_use]
mod context;
#[macro_use]
mod memory;
#[macro_use]
mod copy;
#[macro_use]
mod module;
#[macro_use]
mod launch;
#[macro_use]
mod stream;
#[macro_use]
mod event;

macro_rules! list_end {
    ([] $($list:tt)*) => { gpupool_macros::calls! { $($list)* } };
}

macro_rules! collect_calls {
    () => {
        list_session! { [list_context list_memory list_copy list_module list_launch list_stream list_event list_end] }
    };
}
