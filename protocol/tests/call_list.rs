//! The callback macros expand outside of the crate, and agree with the tables.

use gpupool_protocol::api::{CALLS, Class, SYMBOLS};

macro_rules! count_symbols {
    ($({ $symbol:ident $mode:ident $class:ident $name:ident ($($param:tt)*) })*) => {
        [$((stringify!($symbol), stringify!($mode), stringify!($name))),*]
    };
}

macro_rules! count_records {
    ($({ $number:literal $class:ident $pace:ident $body:ident $origin:ident $name:ident
         ($($param:ident: $kind:ty [$extent:expr]),*) })*) => {
        [$(($number, stringify!($class), stringify!($pace), stringify!($name), (&[$(stringify!($kind)),*] as &[&str]).len())),*]
    };
}

#[test]
fn callbacks_and_tables_agree() {
    let hand = gpupool_protocol::for_each_hand_symbol!(count_symbols);
    let auto = gpupool_protocol::for_each_auto_symbol!(count_symbols);
    assert_eq!(hand.len() + auto.len(), SYMBOLS.len());
    for (symbol, mode, name) in hand.iter().chain(&auto) {
        let row = SYMBOLS.iter().find(|s| s.symbol == *symbol).unwrap();
        assert_eq!((row.per_thread, row.call), (*mode == "per_thread", *name));
    }
    let records = gpupool_protocol::for_each_record!(count_records);
    for ((number, class, pace, name, _), call) in records.iter().zip(CALLS) {
        assert_eq!((*number, *name, *pace == "slow"), (call.number, call.name, call.slow));
        assert_eq!(*class == "post", call.class == Class::Post);
    }
    let (.., params) = records.iter().find(|r| r.3 == "launch").unwrap();
    assert_eq!(*params, 12);
}
