//! A test for each way that a program can take to its device: `on_every_road!` and `on_both_transports!`.

/// Makes of each function `fn(Road)` that is named a module with the tests `native`, `shm` and `tcp`.
#[macro_export]
macro_rules! on_every_road {
    ($($name:ident)*) => {
        $(mod $name {
            $crate::on_road!($name native Native);
            $crate::on_road!($name shm Shm);
            $crate::on_road!($name tcp Tcp);
        })*
    };
}

/// Makes of each function `fn(Road)` that is named a module with the tests `shm` and `tcp`.
#[macro_export]
macro_rules! on_both_transports {
    ($($name:ident)*) => {
        $(mod $name {
            $crate::on_road!($name shm Shm);
            $crate::on_road!($name tcp Tcp);
        })*
    };
}

/// One test of a function of the module above.
#[doc(hidden)]
#[macro_export]
macro_rules! on_road {
    ($name:ident $test:ident $road:ident) => {
        #[test]
        fn $test() {
            super::$name($crate::Road::$road);
        }
    };
}
