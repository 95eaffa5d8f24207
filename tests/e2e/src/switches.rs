//! The optimisations that can be switched off, as the interposer itself names them.

use std::time::Duration;

use crate::build::client;
use crate::process::run;
use crate::road::Road;

/// The variable that switches them off.
pub const DISABLE: &str = "GPUPOOL_DISABLE";

/// Their names: what the interposer says there is when it is asked for one that is not.
pub fn names() -> Vec<String> {
    let mut command = Road::Shm.command(client("init"));
    command.env(DISABLE, "none_of_them").env("GPUPOOL_LOG", "warn");
    let outcome = run(command, Duration::from_secs(60));
    let line = outcome
        .stderr
        .lines()
        .find_map(|line| line.split_once("there is no optimisation `none_of_them`; they are "));
    let (_, list) = line.unwrap_or_else(|| panic!("the interposer names no optimisations: {outcome:?}"));
    let names: Vec<String> = list.trim().split(", ").map(str::to_owned).collect();
    assert!(
        names.len() >= 6 && names.iter().all(|name| !name.is_empty() && !name.contains(' ')),
        "{outcome:?}"
    );
    names
}

/// All of them, as [`DISABLE`] takes them.
pub fn all() -> String {
    names().join(",")
}
