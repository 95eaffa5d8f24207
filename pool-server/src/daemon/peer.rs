//! Whose socket is at the other end of a loopback TCP connection: the kernel lists it in `/proc/net/tcp` (proc(5)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// TCP_ESTABLISHED, as `/proc/net/tcp` writes it.
const ESTABLISHED: &str = "01";

/// The user who owns the socket at `peer` of the connection from `peer` to `local`, both ends being on this host.
/// `None`: there is no such connection any more, or `/proc` does not show it.
pub fn tcp_owner(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        owner_in(&table, peer, local)
    })
}

/// A row is `sl local_address rem_address st queues timer retransmits uid …`. Seen from the client, its own end is the
/// local one. Only an established connection counts: a socket that its process has closed is listed as root's.
fn owner_in(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let wanted = (canonical(peer), canonical(local));
    table.lines().skip(1).find_map(|row| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        let ends = (endpoint(fields.get(1)?)?, endpoint(fields.get(2)?)?);
        if ends == wanted && *fields.get(3)? == ESTABLISHED { fields.get(7)?.parse().ok() } else { None }
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:1F90` is 127.0.0.1:8080: the address as 32-bit words in the host's byte order, the port as a number.
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(i * 8)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_belongs_to_this_user() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let peer = client.local_addr().unwrap();
            assert_eq!(tcp_owner(peer, local), Some(own), "{address}");
            assert_eq!(tcp_owner(peer, "127.0.0.1:1".parse().unwrap()), None);
            drop(client);
            assert_eq!(tcp_owner(peer, local), None, "closed");
        }
    }

    #[test]
    fn rows_are_read_as_the_kernel_writes_them() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1234        0 99 1\n\
             1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  4321        0 98 1\n\
             2: 0100007F:9C41 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
        let (client, server) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(owner_in(table, client, server), Some(4321));
            assert_eq!(owner_in(table, server, client), Some(1234));
            assert_eq!(
                owner_in(table, "127.0.0.1:40001".parse().unwrap(), server),
                None,
                "closed by its owner"
            );
        }
        for broken in ["", "head\n", "head\n0: x y\n", "head\n0: 0100007F:1F90\n"] {
            assert_eq!(owner_in(broken, client, server), None);
        }
    }
}
