//! One connection from its first byte to the point where it is a probe, a data connection or a session.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpupool_protocol::control::{
    Attach, ClientMessage, FIRST_MESSAGE_MAX, PREAMBLE_LEN, ProbeReply, ServerMessage, Transport, decode,
    encode, frame_length, preamble, read_preamble,
};

use super::Shared;
use super::auth::Peer;
use super::places::Waiting;
use super::registry::DataConnection;
use super::session;
use super::stream::Stream;

/// CUDA_ERROR_NO_DEVICE of cuda.h: there is nothing here for this client.
pub const NO_DEVICE: u32 = 100;
/// CUDA_ERROR_SYSTEM_NOT_READY of cuda.h: not now.
pub const NOT_READY: u32 = 802;

/// How long a peer may take to say what it wants.
pub const FIRST_MESSAGE_LIMIT: Duration = Duration::from_secs(5);

/// Serves a connection to its end, once there is a place for one more peer that is not known; it is given back as soon as
/// the peer is known.
pub async fn serve(shared: Arc<Shared>, stream: Stream, peer: Peer, waiting: Waiting) {
    let mut unknown = waiting.place().await;
    let first = tokio::time::timeout(FIRST_MESSAGE_LIMIT, first_message(&shared, &stream));
    let Some(first) = unknown.listen(first).await else {
        return tracing::info!(?peer, "connection dropped: silent, and others wanted its place");
    };
    let message = match first {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => return tracing::info!(?peer, "connection dropped: {error}"),
        Err(_) => {
            return tracing::info!(?peer, "connection dropped: no message within {FIRST_MESSAGE_LIMIT:?}");
        }
    };
    match message {
        ClientMessage::Probe => {
            let reply = ProbeReply {
                driver_version: shared.inventory.driver_version,
                server_version: env!("CARGO_PKG_VERSION").into(),
            };
            say(&stream, &ServerMessage::ProbeReply(reply)).await;
        }
        ClientMessage::Attach(attach) => data_connection(&shared, stream, &peer, attach).await,
        ClientMessage::Open(open) => match shared.authority.admit(&peer, open.token.as_ref()) {
            Ok(tenant) => {
                drop(unknown);
                session::serve(shared, stream, *open, tenant, peer).await;
            }
            Err(reason) => {
                tracing::info!(?peer, program = open.client.program, "session refused: {reason}");
                refuse(&stream, reason, NO_DEVICE).await;
            }
        },
        ClientMessage::Ping { .. } | ClientMessage::Revoked { .. } | ClientMessage::Unused { .. } => {
            refuse(&stream, "a message of an open session came before Open".into(), NO_DEVICE).await;
        }
    }
}

/// Greets, and reads exactly the first message, so that what follows it is left to whoever gets the socket.
async fn first_message(shared: &Shared, stream: &Stream) -> io::Result<ClientMessage> {
    let invalid = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let mut greeting = preamble().to_vec();
    greeting.extend(encode(&ServerMessage::Hello(shared.hello.clone())).map_err(|e| invalid(&e))?);
    stream.write_all(&greeting).await?;

    let mut theirs = [0; PREAMBLE_LEN];
    stream.read_exact(&mut theirs).await?;
    read_preamble(theirs).map_err(|e| invalid(&e))?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let mut body = vec![0; frame_length(head, FIRST_MESSAGE_MAX).map_err(|e| invalid(&e))?];
    stream.read_exact(&mut body).await?;
    decode(&body).map_err(|e| invalid(&e))
}

/// Checks the secret and hands the socket to the session's worker.
async fn data_connection(shared: &Shared, stream: Stream, peer: &Peer, attach: Attach) {
    let ticket = match shared.registry.claim(&attach, Instant::now()) {
        Ok(_) if attach.transport == Transport::Shm && matches!(peer, Peer::Tcp { .. }) => {
            Err("shared memory needs a data connection over the Unix socket".into())
        }
        other => other,
    };
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(reason) => {
            tracing::info!(?peer, "data connection refused: {reason}");
            return refuse(&stream, reason, NOT_READY).await;
        }
    };
    // The answer goes first: once the worker has the socket, only the worker writes to it.
    if !say(&stream, &ServerMessage::Attached).await {
        return;
    }
    match stream.into_data_fd() {
        Ok(fd) => {
            let Attach { transport, connection, connections, .. } = attach;
            ticket.hand_over(DataConnection { fd, transport, connection, connections });
        }
        Err(error) => tracing::warn!("a data connection cannot be handed over: {error}"),
    }
}

/// Sends a refusal.
pub async fn refuse(stream: &Stream, reason: String, cuda_code: u32) {
    say(stream, &ServerMessage::Refused { reason, cuda_code }).await;
}

/// Sends one message to a peer that waits for it; `false`: the peer is gone or does not read.
pub async fn say(stream: &Stream, message: &ServerMessage) -> bool {
    let Ok(frame) = encode(message) else { return false };
    matches!(tokio::time::timeout(FIRST_MESSAGE_LIMIT, stream.write_all(&frame)).await, Ok(Ok(())))
}
