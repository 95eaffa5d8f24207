//! Conversations that a busy server cut short, begun anew.

use std::time::Instant;

use super::client::{Control, connect};
use super::error::ConnectError;
use super::message::{Open, Opened, ProbeReply};
use crate::config::ClientConfig;

/// So often at most. A server behind a crowd closes connections that have not spoken in time, and a client that was not given
/// a processor looks like one.
const TRIES: usize = 3;

/// Connects and asks for a session ([`Control::open`]); once more where the server closed the connection without an answer.
/// No session is left behind by that: it ends with its control connection.
pub fn open_session(
    config: &ClientConfig,
    wanted: &Open,
    deadline: Instant,
) -> Result<(Control, Opened), ConnectError> {
    again(|| {
        let mut control = connect(config, deadline)?;
        let opened = control.open(config, wanted, deadline)?;
        Ok((control, opened))
    })
}

/// Connects and asks for the driver version, in the same way.
pub(super) fn probe(config: &ClientConfig, deadline: Instant) -> Result<ProbeReply, ConnectError> {
    again(|| connect(config, deadline)?.probe(deadline))
}

fn again<T>(mut conversation: impl FnMut() -> Result<T, ConnectError>) -> Result<T, ConnectError> {
    for _ in 1..TRIES {
        match conversation() {
            Err(ConnectError::Broken { .. }) => {}
            other => return other,
        }
    }
    conversation()
}
